"""Brokers that close on a version of ApiVersions that they don't know, over sockets."""

from __future__ import annotations

import pytest
from tests.unit.api.loopback_scene import PATIENCE

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation import SimulatedCluster
from odradek.testing.loopback import LoopbackServer


@pytest.mark.parametrize("newest", [0, 3])
def test_both_hosts_ask_them_in_an_older_version(newest: int) -> None:
    with LoopbackServer() as server:

        def make() -> SimulatedCluster:
            spoken = {ApiVersionsRequest.API_KEY: (0, newest)}
            made = SimulatedCluster(server, brokers=1, bootstrap_name=None, versions=spoken)
            made.create_topic("t")
            made.brokers[1].closes_on_unknown = True
            return made

        servers = str(server.call(make).bootstrap_servers)
        events: list[Event] = []
        with Producer(bootstrap_servers=servers) as producer:
            producer.listen(events.append)
            producer.send("t", b"x").result(PATIENCE)
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.listen(events.append)
            consumer.assign([TopicPartition("t", 0)])
            assert len(consumer.poll(PATIENCE)) == 1
        assert not [event for event in events if event.kind == "dial_failed"]
