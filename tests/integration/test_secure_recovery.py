"""Kill, freeze, move and restart brokers of a cluster that requires TLS and a password.

The soak is a shorter form of `make soak ARGS=--secured`: all kinds of clients at the same time,
checked record by record. One test of the plaintext cluster runs again with this module's
`mortal_cluster`, since under TLS and SASL connections end in other ways. (Lost logs and different
clusters are handled above the connections.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.integration.test_missing_permissions import OPTIONS as GUARDED
from tests.integration.test_outages import prepared
from tests.integration.test_outages import (
    test_clients_recover_after_a_leader_was_frozen as a_leader_freezes,
)
from tests.interop.other_client import read_all
from tests.interop.our_client import read
from tests.soak.soak import REAUTHENTICATION, SECURED, Plan, Soak

from odradek.admin import AclBinding
from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

__all__ = ["prepared"]


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared({**SECURED, "config": REAUTHENTICATION})
    yield running
    clusters.put_right(running)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_record_is_lost_duplicated_or_out_of_order(mortal_cluster: LocalCluster) -> None:
    """Run all kinds of clients while a broker is killed, all brokers move and sessions expire.

    The clients: an idempotent producer, and in each group protocol a transactional
    read-process-write chain, whose members join and leave, and a group of two; an event loop runs
    one client of each kind. The killed broker is one that they need at that time; sessions expire
    every 10 s. (For a frozen broker see the next test.)
    """
    plan = Plan(
        seconds=540.0,  # an upper limit; a round is shorter
        seed=7,
        rate=80.0,
        partitions=4,
        members=1,
        readers=1,
        asyncio=1,
        quiet=(0.5, 1.0),
        disorder=10.0,
        reader_disorder=1e9,
        troubles=("kill", "move"),
        rounds=1,
        victims=("reader-classic-0", "reader-consumer-0"),
    )
    lines: list[str] = []
    soak = Soak(mortal_cluster, plan, lines.append)
    report = soak.run()
    assert report.failures == [], "\n".join([*report.failures, *lines])
    assert report.troubles == dict.fromkeys(plan.troubles, 1), lines
    assert report.records["in"] == report.records["out-classic"] == report.records["out-consumer"]
    for chain in report.chains.values():
        assert chain["committed"] > 10
    for protocol in plan.protocols:
        group = soak.group(protocol)
        # Members that stay lose no partition, so no record is delivered to a group twice. (On a
        # machine that is too busy for heartbeats a coordinator may revoke partitions.)
        assert report.repeats[protocol] == 0 or any(member.lost for member in group), report
        assert [member.joined for member in group] == [1] * 2
        assert [len(member.had) for member in group] == [2] * 2, [m.had for m in group]
        with Consumer(mortal_cluster.client_config(), group_id=f"readers-{protocol}") as observer:
            committed = observer.committed([place for member in group for place in member.seen])
        for member in group:
            for place, seen in member.seen.items():
                found = committed[place]
                assert found is not None
                assert found.offset > max(seen)


def without_key(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if "keystore" not in name}


@pytest.mark.long
def test_clients_recover_after_a_leader_was_frozen(prepared: LocalCluster, topic: str) -> None:
    a_leader_freezes(prepared, topic)


WAYS = {
    "SASL_PLAINTEXT": GUARDED,
    "SSL": {"brokers": 1, "security": "SSL", "mutual_tls": "requested"},
}


@pytest.mark.parametrize(
    "protocol", ["SASL_PLAINTEXT", pytest.param("SSL", marks=pytest.mark.long)]
)
def test_clients_with_other_security_protocols_recover_after_a_move(
    clusters: SharedClusters, protocol: str, topic: str
) -> None:
    """Use TLS with and without a client certificate, and SASL without TLS."""
    cluster = clusters.shared(WAYS[protocol])
    with ExitStack() as stack:
        stack.callback(clusters.put_right, cluster)
        ways = [cluster.client_config()]
        if protocol == "SSL":
            ways.append(without_key(ways[0]))
        else:
            with Admin(cluster.inner_config()) as admin:
                mine = [("TOPIC", topic), ("GROUP", "reader")]
                admin.create_acls([AclBinding(*one, "User:bob", "ALL") for one in mine])
        cluster.create_topic(topic, 2)  # once the broker knows the topic, it knows the ACL too
        producers = [stack.enter_context(Producer(way)) for way in ways]
        consumers = [stack.enter_context(Consumer(way)) for way in ways]
        for partition, consumer in enumerate(consumers):
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek(TopicPartition(topic, partition), 0)
        for number in range(2):
            if number:
                cluster.move()
            for partition, (producer, consumer) in enumerate(
                zip(producers, consumers, strict=True)
            ):
                producer.send(topic, b"%d" % number, partition=partition).result(timeout=40)
                found = [(r.offset, r.value) for r in read(consumer, timeout=40)]
                assert found == [(number, b"%d" % number)]
        clients: list[Producer | Consumer] = [*producers, *consumers]
        for client in clients:
            counts = client._engine.events.counts
            assert counts["rebootstrap"] == counts["rebootstrapped"] == 1
        rows = read_all(cluster.librdkafka_config(), topic, len(ways))
        assert [[row.value for row in rows[p]] for p in rows] == [[b"0", b"1"]] * len(ways)
