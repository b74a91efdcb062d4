"""Test brokers that close the connection at an unknown version of ApiVersions, and `acks=0`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.api.loopback_scene import PATIENCE, one_broker

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation import SimulatedCluster
from odradek.testing.fake.loopback import LoopbackServer


@pytest.mark.slow
@pytest.mark.parametrize("newest", [0, 3])
def test_producer_and_consumer_fall_back_to_an_older_api_versions_request(newest: int) -> None:
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


def test_acks_0_writes_records_in_order_over_a_socket() -> None:
    rows, count = 200, 40
    with one_broker() as (_, servers):
        with Producer(bootstrap_servers=servers, acks=0, linger_ms=1) as producer:
            first = [producer.send("t", b"%d" % n, partition=0) for n in range(rows)]
            assert {f.result(PATIENCE).offset for f in first} == {-1}
            table = pa.table({"value": [b"x" * 50_000] * count})
            ranges = producer.send_arrow("t", table).result(PATIENCE)
            assert [(r.records, r.first_offset) for r in ranges] == [(count, -1)]
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            found: list[bytes] = []
            while len(found) < rows + count:
                found += [bytes(r.value or b"") for r in consumer.poll(PATIENCE)]
    assert found[:rows] == [b"%d" % n for n in range(rows)]
