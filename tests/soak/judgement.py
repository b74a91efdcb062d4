"""Judge a soak by its history and by the records that librdkafka and Odradek read at the end.

In: the history, a witness that reads the cluster, the offsets that the groups' readers saw. Out:
failures as texts. Without failures, no record was lost, duplicated or out of order, every record
was processed, and no topic was empty. Must not: wait, nor know clients or clusters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import History
from odradek.simulation.checkers.history_check import check

Rows = dict[int, list[tuple[int, str]]]
"""Offsets and values of each partition, in the order in which they were read."""
MOST = 50
"""The largest number of anomalies that are reported."""


class Witness(Protocol):
    """Reads records and committed offsets from the cluster."""

    def rows(self, topic: str) -> Rows:
        """Return the records that librdkafka reads with read_committed."""

    def our_rows(self, topic: str) -> Rows:
        """Return the records that Odradek reads with read_committed."""

    def offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return the group's committed offset and the end offset of each source partition."""


class Judge:
    """Collects failures."""

    def __init__(self, history: History, witness: Witness, topics: Sequence[str]) -> None:
        self.failures: list[str] = []
        self.records: dict[str, int] = {}
        """Visible records by topic."""
        self._history, self._witness, self._topics = history, witness, topics
        self._logs: dict[str, set[tuple[TopicPartition, int]]] = {}

    def not_worked_off(self, groups: Iterable[str]) -> str:
        """Return the partitions that groups haven't processed to the end, as a text."""
        found = []
        for group in groups:
            try:
                offsets = self._witness.offsets(group)
            except Exception as error:  # brokers can't load the group
                found.append(f"{group}, whose offsets can't be read: {error!r}")
                continue
            for partition, (committed, end) in offsets.items():
                if committed < end:
                    found.append(f"{group} {partition} {committed} of {end}")
        return ", ".join(found)

    def read(self) -> None:
        """Read all topics with librdkafka. No producer may run any more."""
        for topic in self._topics:
            self._note("confluent-kafka", topic, self._witness.rows(topic))

    def _note(self, reader: str, topic: str, rows: Rows) -> None:
        log = self._logs.setdefault(topic, set())
        count = 0
        for index, seen in rows.items():
            partition = TopicPartition(topic, index)
            self._history.read(reader, partition, seen, complete=True)
            log.update((partition, offset) for offset, _ in seen)
            count += len(seen)
        self.records.setdefault(topic, count)

    def unread(self, topic: str, members: Iterable[Mapping[TopicPartition, set[int]]]) -> list[str]:
        """Return the places of a topic's records that no member of its group has read."""
        every = list(members)
        return [
            f"{partition} at {offset}"
            for partition, offset in sorted(self._logs.get(topic, ()))
            if not any(offset in seen.get(partition, ()) for seen in every)
        ]

    def compare(
        self,
        groups: Iterable[str],
        seen_within: float | None = None,
        lost: Collection[str] = (),
    ) -> None:
        """Read all topics with Odradek, too, and check the history.

        Inputs of the groups in `lost` may be consumed twice: Kafka has lost their offsets.
        """
        if not self._logs:
            self.failures.append("nothing was read at the end, so nothing can be judged")
            return
        for topic in self._topics:
            if not self.records[topic]:
                self.failures.append(f"{topic} is empty: nothing of it can be judged")
            self._note("odradek", topic, self._witness.our_rows(topic))
        for group in groups:
            try:
                ends = self._witness.offsets(group).items()
            except Exception as error:  # the records can be judged without them
                self.failures.append(f"the offsets of {group} can't be read: {error!r}")
                continue
            self._history.group_ends(group, [(p, committed) for p, (committed, _) in ends])
        self.failures += [
            str(anomaly)
            for anomaly in check(self._history, seen_within=seen_within, lost_groups=lost)[:MOST]
        ]
