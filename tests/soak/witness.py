"""Read a cluster at the end of a soak, with librdkafka and with Odradek.

In: a cluster. Out: records read with read_committed, committed offsets of groups, groups that
Kafka's own coordinator has lost. Must not: judge. librdkafka's calls raise errors while
the cluster recovers, so they are repeated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from tests.interop.other_client import read_all, settings
from tests.soak.judgement import Rows

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition
from odradek.simulation.coordinators.shards import partition_for
from odradek.testing import LocalCluster

PATIENCE = 60.0
GROUPS = "__consumer_offsets"
REFUSED = re.compile(
    rf"Failed to load metadata from {GROUPS}-(\d+) with epoch .*\n"
    r"(?:java\.lang\.RuntimeException: Replaying record .*\n(?:\t.*\n)*Caused by: )?"
    r"(java\.lang\.IllegalStateException.*)"
)
"""The log message of a coordinator that can't replay a partition of its topic. The other brokers
have the same log, so none can load these groups. Some releases name the record first."""
LOAD = re.compile(rf" loading of metadata from {GROUPS}-(\d+) with epoch (\d+)")
"""The begin ("Scheduling") and the end ("Finished") of a coordinator's load of its partition."""
PARTIAL = (
    "the end of the load for leader epoch {ended} has activated the coordinator for epoch {begun}, "
    "which had loaded a part of its records"
)
T = TypeVar("T")


class ClusterWitness:
    """Reads from real brokers; reading a topic may take `limit` seconds."""

    def __init__(self, cluster: LocalCluster, source: str, partitions: int, limit: float) -> None:
        self._cluster = cluster
        self._theirs, self._ours = cluster.librdkafka_config(), cluster.client_config()
        self._source = source
        self._partitions, self._limit = partitions, limit
        self._group_partitions = 0

    def rows(self, topic: str) -> Rows:
        """Return the records that librdkafka reads once no transaction is open."""
        deadline = time.monotonic() + PATIENCE
        while (places := self._open(topic)) and time.monotonic() < deadline:
            time.sleep(0.5)
        if places:
            raise AssertionError(f"transactions are still open in {topic}, partitions {places}")
        found = read_all(self._theirs, topic, self._partitions, timeout=self._limit)
        return {p: [(r.offset, (r.value or b"").decode()) for r in found[p]] for p in found}

    def _open(self, topic: str) -> list[int]:
        """Return the partitions whose last stable offset is below their end offset."""
        admin = AdminClient(settings(self._theirs))
        places = [confluent_kafka.TopicPartition(topic, p) for p in range(self._partitions)]

        def ends(level: Any) -> dict[int, int]:
            latest: Any = OffsetSpec
            asked = {place: latest.latest() for place in places}
            answers = admin.list_offsets(asked, isolation_level=level, request_timeout=30.0)
            return {place.partition: answers[place].result(30.0).offset for place in places}

        all_of_it = _patiently(lambda: ends(IsolationLevel.READ_UNCOMMITTED))
        readable = _patiently(lambda: ends(IsolationLevel.READ_COMMITTED))
        return [p for p in all_of_it if readable[p] < all_of_it[p]]

    def our_rows(self, topic: str) -> Rows:
        """Return the records that Odradek reads."""
        partitions = [TopicPartition(topic, p) for p in range(self._partitions)]
        rows: Rows = {p: [] for p in range(self._partitions)}
        with Consumer(
            self._ours, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + self._limit
            while any(consumer.position(p) < ends[p] for p in partitions):
                for record in consumer.poll(1.0):
                    value = bytes(record.value or b"").decode()
                    rows[record.partition].append((record.offset, value))
                if time.monotonic() > deadline:
                    raise AssertionError(f"Odradek's reader of {topic} doesn't reach the end")
        return rows

    def lost_groups(self, groups: Iterable[str]) -> dict[str, str]:
        """Return the groups whose offsets Kafka has lost, with the reason.

        Either no coordinator can load them any more, or one has served them with a part of their
        state (`partial_loads`).
        """
        refused: dict[int, str] = {}
        for broker in range(len(self._cluster.broker_addresses)):
            log = self._cluster.logs(broker)
            refused |= partial_loads(log)
            refused |= {int(m[1]): m[2].strip() for m in REFUSED.finditer(log)}
        if not refused:
            return {}
        if not self._group_partitions:
            with Consumer(self._ours) as consumer:
                self._group_partitions = len(consumer.partitions_for(GROUPS, timeout=PATIENCE))
        places = {g: partition_for(g, self._group_partitions) for g in groups}
        return {group: refused[place] for group, place in places.items() if place in refused}

    def offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return the committed offset and the end offset of each source partition."""
        return _patiently(lambda: self._offsets(group))

    def _offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        consumer = confluent_kafka.Consumer(settings(self._theirs, **{"group.id": group}))
        places = [confluent_kafka.TopicPartition(self._source, p) for p in range(self._partitions)]
        try:
            committed: list[Any] = consumer.committed(places, timeout=30)
            return {
                TopicPartition(c.topic, c.partition): (
                    max(0, c.offset),
                    consumer.get_watermark_offsets(c, timeout=30)[1],
                )
                for c in committed
            }
        finally:
            consumer.close()


def partial_loads(log: str) -> dict[int, str]:
    """Return the partitions that a coordinator has served before they were loaded, with the reason.

    In Kafka 4.4.0, if a broker becomes the leader twice while it loads a partition, the end of the
    first load activates the second one's coordinator. Until that has loaded the rest, it returns
    old offsets or none, and it loses what it stores meanwhile.
    """
    found: dict[int, str] = {}
    begun: dict[int, int] = {}
    for match in LOAD.finditer(log):
        partition, epoch = int(match[1]), int(match[2])
        if log.endswith("Scheduling", 0, match.start()):
            begun[partition] = epoch
        elif epoch < begun.get(partition, -1):
            found[partition] = PARTIAL.format(ended=epoch, begun=begun[partition])
    return found


def _patiently(ask: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
