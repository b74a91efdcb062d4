"""Brokers die, freeze and move on a cluster that lets nobody in without TLS and a password.

The tests are those of the plaintext cluster, run once more with this module's `mortal_cluster`,
where connections are made or die otherwise under TLS and SASL. (What a lost log or a foreign
cluster means is decided above the connections; a leader is killed in the transactions' test.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.integration.test_outages import (
    made,
    test_a_leader_freezes_for_some_seconds,
    test_the_whole_cluster_moves_away,
)
from tests.integration.test_soak import judged
from tests.interop.other_client import read_all
from tests.soak.soak import Plan

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster
from odradek.testing.shared_clusters import SharedClusters

__all__ = ["made", "test_a_leader_freezes_for_some_seconds", "test_the_whole_cluster_moves_away"]


SECURED: dict[str, Any] = {
    "security": "SASL_SSL",
    "mechanisms": ["SCRAM-SHA-512"],
    "users": {"alice": "alice-secret"},
    "config": {"connections.max.reauth.ms": "10000"},
}


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared(SECURED)
    yield running
    clusters.put_right(running)


@pytest.mark.timeout(600)
def test_transactions_and_groups_survive(mortal_cluster: LocalCluster) -> None:
    """The soak with two troubles: sessions end every 10 s meanwhile (KIP-368)."""
    plan = Plan(
        seconds=120.0,
        seed=11,
        rate=60.0,
        partitions=4,
        quiet=(0.5, 1.0),
        disorder=15.0,
        reader_disorder=1e9,
        troubles=("kill", "move"),
        rounds=1,
    )
    _, report = judged(mortal_cluster, plan)
    for chain in report.chains.values():
        assert chain["committed"] > 10


def without_key(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if "keystore" not in name}


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_other_ways_in_survive_a_restart_and_a_move(protocol: Any, topic: str) -> None:
    """TLS with and without a certificate of the client's own, SASL without TLS."""
    more: Any = {"mutual_tls": "requested"} if protocol == "SSL" else {}
    with LocalCluster(brokers=1, security=protocol, **more) as cluster, ExitStack() as stack:
        cluster.create_topic(topic, 2)
        ways = [cluster.client_config()]
        if protocol == "SSL":
            ways.append(without_key(ways[0]))
        producers = [stack.enter_context(Producer(way)) for way in ways]
        consumers = [stack.enter_context(Consumer(way)) for way in ways]
        for partition, consumer in enumerate(consumers):
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek(TopicPartition(topic, partition), 0)
        for number, trouble in enumerate((None, "kill", "move")):
            if trouble == "kill":
                cluster.kill(0)
                cluster.start(0)
            elif trouble == "move":
                cluster.move()
            for partition, (producer, consumer) in enumerate(
                zip(producers, consumers, strict=True)
            ):
                producer.send(topic, b"%d" % number, partition=partition).result(timeout=40)
                found: list[tuple[int, bytes | None]] = []
                end = time.monotonic() + 40
                while not found:
                    found = [(r.offset, r.value) for r in consumer.poll(1)]
                    assert time.monotonic() < end, str(consumer.explain())
                assert found == [(number, b"%d" % number)]
        rows = read_all(cluster.librdkafka_config(), topic, len(ways))
        assert [[row.value for row in rows[p]] for p in rows] == [[b"0", b"1", b"2"]] * len(ways)
