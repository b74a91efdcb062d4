"""Judge a history as Elle does: infer from the reads which transactions took effect.

In: a `History`. Out: its anomalies, each with the transactions and offsets as text. Every value is
unique and a log only grows, so an offset identifies the transaction that wrote there, and a read
identifies the transaction that it depends on. An unknown outcome is decided by the reads: if one
record is visible, all must be. Kafka doesn't isolate writers from each other, so two transactions
may have different orders in two partitions; but it is an anomaly if they read each other. Must not
know clients, clusters or time.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import (
    History,
    Observation,
    Transaction,
    TransactionOutcome,
)


class Kind(StrEnum):
    """Kind of anomaly."""

    LOST_WRITE = "lost write"
    """Committed (or seen by one reader), but missing where another reader has read everything."""
    DUPLICATE = "duplicate"
    """One record has two offsets."""
    ABORTED_READ = "aborted read"
    """A reader saw a record of a transaction that was aborted (G1a)."""
    UNWRITTEN_READ = "unwritten read"
    """A reader saw a value that no producer wrote."""
    PARTIAL = "intermediate read"
    """A part of a transaction is visible, another part isn't (G1b)."""
    ORDER = "order"
    """Records of one producer aren't in the order in which they were sent."""
    ZOMBIE_WRITE = "zombie write"
    """A record of a fenced producer follows one of the producer that has fenced it."""
    WRONG_PLACE = "wrong place"
    """A record doesn't have the acknowledged offset."""
    READERS_DISAGREE = "readers disagree"
    """Two readers saw different records at one offset, or one skipped or repeated some."""
    CYCLE = "cycle"
    """Transactions that read each other's records, in a cycle (G1c)."""
    INPUT_TWICE = "input twice"
    """Two visible transactions consumed the same record."""
    INPUT_LOST = "input lost"
    """A group has committed past a record that no visible transaction consumed."""
    OFFSET_BEHIND = "offset behind"
    """A visible transaction consumed a record, but the group's offset is before it."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


def check(history: History) -> list[Anomaly]:
    """Return all anomalies of a history; none means that a correct cluster can produce it."""
    return list(_Judge(history).anomalies())


class _Judge:
    """The history, indexed."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._writers: dict[str, Transaction] = {}
        for made in history.transactions:
            for write in made.writes:
                if write.value in self._writers:
                    raise ValueError(f"{write.value!r} was written twice: values must be unique")
                self._writers[write.value] = made
        self._logs: dict[TopicPartition, dict[int, str]] = {}
        """Values that any reader saw, by offset."""
        self._complete: set[TopicPartition] = set()
        for reading in history.readings:
            log = self._logs.setdefault(reading.partition, {})
            for offset, value in reading.seen:
                log.setdefault(offset, value)
            if reading.complete:
                self._complete.add(reading.partition)
        self._places: dict[str, list[tuple[TopicPartition, int]]] = {}
        for partition, log in self._logs.items():
            for offset, value in log.items():
                self._places.setdefault(value, []).append((partition, offset))
        self._visible = [t for t in history.transactions if self._is_visible(t)]

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield the anomalies of all checks."""
        for reading in self._history.readings:
            yield from self._reading(reading)
        yield from self._values()
        for made in self._history.transactions:
            yield from self._transaction(made)
        yield from self._order()
        yield from self._inputs()
        yield from self._cycles()

    def _is_visible(self, made: Transaction) -> bool:
        if made.outcome is TransactionOutcome.UNKNOWN:
            return any(write.value in self._places for write in made.writes)
        return made.outcome is TransactionOutcome.COMMITTED

    # Readers

    def _reading(self, reading: Observation) -> Iterator[Anomaly]:
        log = self._logs[reading.partition]
        who = f"{reading.reader} at {reading.partition}"
        last = -1
        for offset, value in reading.seen:
            if log[offset] != value:
                text = f"{who}: {value!r} at {offset}, where another saw {log[offset]!r}"
                yield Anomaly(Kind.READERS_DISAGREE, text)
            if offset <= last:
                text = f"{who}: offset {offset} after {last}"
                yield Anomaly(Kind.READERS_DISAGREE, text)
            last = max(last, offset)
        offsets = sorted(log)
        low, high = 0, len(offsets)
        if not reading.complete:
            low = bisect.bisect_left(offsets, reading.seen[0][0]) if reading.seen else high
            high = bisect.bisect_right(offsets, last)
        seen = {offset for offset, _ in reading.seen}
        for offset in offsets[low:high]:
            if offset not in seen:
                text = f"{who}: skipped {log[offset]!r} at {offset}"
                yield Anomaly(Kind.READERS_DISAGREE, text)

    def _values(self) -> Iterator[Anomaly]:
        for value, places in self._places.items():
            where = ", ".join(f"{partition} at {offset}" for partition, offset in places)
            if len(places) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value!r} is in {where}")
            made = self._writers.get(value)
            if made is None:
                yield Anomaly(Kind.UNWRITTEN_READ, f"{value!r} in {where}")
            elif made.outcome is TransactionOutcome.ABORTED:
                yield Anomaly(Kind.ABORTED_READ, f"{value!r} of {made.name} in {where}")

    # Writers

    def _transaction(self, made: Transaction) -> Iterator[Anomaly]:
        missing, found = [], 0
        for write in made.writes:
            places = self._places.get(write.value, ())
            found += bool(places)
            if not places and write.partition in self._complete:
                missing.append(write)
            for partition, offset in places:
                if partition != write.partition or write.offset not in (None, offset):
                    text = (
                        f"{write.value!r} is in {partition} at {offset}, not in {write.partition} "
                        f"at {write.offset}"
                    )
                    yield Anomaly(Kind.WRONG_PLACE, text)
        if made.outcome is TransactionOutcome.COMMITTED:
            for write in missing:
                text = f"{write.value!r} of {made.name}, {write.partition} at {write.offset}"
                yield Anomaly(Kind.LOST_WRITE, text)
        if missing and found:
            text = f"{made.name}: {found} records are visible, {missing[0].value!r} isn't"
            yield Anomaly(Kind.PARTIAL, text)

    def _order(self) -> Iterator[Anomaly]:
        ordered = sorted(self._history.transactions, key=lambda t: t.incarnation)
        last: dict[tuple[str, TopicPartition], tuple[int, Transaction, str]] = {}
        for made in ordered:
            for write in made.writes:
                for partition, offset in self._places.get(write.value, ()):
                    if partition != write.partition:
                        continue
                    place = (made.producer, partition)
                    before = last.get(place)
                    if before is not None and offset < before[0]:
                        same = before[1].incarnation == made.incarnation
                        kind = Kind.ORDER if same else Kind.ZOMBIE_WRITE
                        text = (
                            f"{partition}: {write.value!r} of {made.name} at {offset}, though "
                            f"{before[2]!r} of {before[1].name} is at {before[0]}"
                        )
                        yield Anomaly(kind, text)
                    else:
                        last[place] = (offset, made, write.value)

    # Read, process, write

    def _inputs(self) -> Iterator[Anomaly]:
        taken: dict[tuple[str, TopicPartition, int], Transaction] = {}
        for made in self._visible:
            if made.group is None:
                continue
            ends = self._history.committed.get(made.group, {})
            for partition, offset in made.inputs:
                other = taken.setdefault((made.group, partition, offset), made)
                if other is not made:
                    text = f"{partition} at {offset}: {other.name} and {made.name}"
                    yield Anomaly(Kind.INPUT_TWICE, text)
                if partition in ends and offset >= ends[partition]:
                    text = (
                        f"{made.name} consumed {partition} at {offset}, but {made.group} has "
                        f"committed {ends[partition]}"
                    )
                    yield Anomaly(Kind.OFFSET_BEHIND, text)
        excused = self._perhaps_taken()
        for group, ends in self._history.committed.items():
            for partition, end in ends.items():
                for offset, value in self._logs.get(partition, {}).items():
                    place = (group, partition, offset)
                    if offset < end and place not in taken and place not in excused:
                        text = f"{group}: {value!r}, {partition} at {offset}, committed is {end}"
                        yield Anomaly(Kind.INPUT_LOST, text)

    def _perhaps_taken(self) -> set[tuple[str, TopicPartition, int]]:
        """Return inputs of transactions with an unknown outcome that no read can decide."""
        return {
            (made.group, partition, offset)
            for made in self._history.transactions
            if made.group is not None
            and made.outcome is TransactionOutcome.UNKNOWN
            and not made.writes
            for partition, offset in made.inputs
        }

    # Cycles

    def _edges(self) -> dict[str, set[str]]:
        """Return for each transaction those that must be before it.

        These are the transactions whose records it read, and the previous one of the same producer.
        """
        after: dict[str, set[str]] = {made.name: set() for made in self._visible}
        last: dict[tuple[str, int], str] = {}
        for made in self._visible:
            session = (made.producer, made.incarnation)
            if session in last:
                after[last[session]].add(made.name)
            last[session] = made.name
            for partition, offset in made.inputs:
                value = self._logs.get(partition, {}).get(offset)
                writer = self._writers.get(value) if value is not None else None
                if writer is not None and writer.name in after:
                    after[writer.name].add(made.name)
        return after

    def _cycles(self) -> Iterator[Anomaly]:
        after = self._edges()
        waiting = dict.fromkeys(after, 0)
        for followers in after.values():
            for name in followers:
                waiting[name] += 1
        free = [name for name, count in waiting.items() if not count]
        while free:
            done = free.pop()
            del waiting[done]
            for name in after[done]:
                waiting[name] -= 1
                if not waiting[name]:
                    free.append(name)
        if waiting:
            yield Anomaly(Kind.CYCLE, " → ".join(_circle(after, set(waiting))))


def _circle(after: dict[str, set[str]], left: set[str]) -> list[str]:
    """Return one cycle of the remaining transactions, of which each has a remaining predecessor."""
    before = {name: other for other in sorted(left) for name in after[other] if name in left}
    path = [min(left)]
    while before[path[-1]] not in path:
        path.append(before[path[-1]])
    path.append(before[path[-1]])
    return path[path.index(path[-1]) :][::-1]
