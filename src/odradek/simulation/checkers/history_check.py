"""Judge a history as Elle and Jepsen's Kafka workload do: infer from the reads what took effect.

In: a `History`. Out: its anomalies, each with the transactions and offsets as text. Every value is
unique and a log only grows, so an offset identifies the transaction that wrote there, and a read
identifies the transaction that it depends on. An unknown outcome is decided by the reads: if one
record is visible, all must be. Kafka doesn't isolate writers from each other, so two transactions
may have different orders in two partitions; but it is an anomaly if they read each other. Times
order operations that didn't overlap. Must not know clients, clusters or clocks.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import (
    NO_OFFSET,
    CallKind,
    CallResult,
    History,
    Operation,
    Write,
)


class Kind(StrEnum):
    """Kind of anomaly in a history."""

    LOST_WRITE = "lost write"
    """A record was committed, or one reader saw it, but another reader of all records didn't."""
    DUPLICATE = "duplicate"
    """One record is in the log at two offsets."""
    ABORTED_READ = "aborted read"
    """A reader saw a record of a transaction that was aborted (G1a)."""
    UNWRITTEN_READ = "unwritten read"
    """A reader saw a value that no producer wrote."""
    PRECOMMITTED_READ = "precommitted read"
    """A poll returned a record before its send or the commit of its transaction was invoked."""
    PARTIAL = "intermediate read"
    """Some records of a transaction are visible and others aren't (G1b)."""
    NONMONOTONIC_SEND = "nonmonotonic send"
    """Records of two operations of one producer aren't in the order in which they were sent."""
    INTERNAL_NONMONOTONIC_SEND = "internal nonmonotonic send"
    """Records of one transaction aren't in the order in which they were sent."""
    ZOMBIE_WRITE = "zombie write"
    """A record of a fenced producer follows a record of the producer that fenced it."""
    REAL_TIME = "real-time order"
    """A record's offset is lower than that of a record acknowledged or read before its send."""
    WRONG_PLACE = "wrong place"
    """A record's offset in the log isn't the acknowledged offset."""
    READERS_DISAGREE = "readers disagree"
    """Two readers saw different records at one offset, or a reader of all records missed some."""
    NONMONOTONIC_POLL = "nonmonotonic poll"
    """A poll returned a record at or before the last offset that the process had already polled."""
    INTERNAL_NONMONOTONIC_POLL = "internal nonmonotonic poll"
    """The records of one poll aren't in the order of their offsets."""
    POLL_SKIP = "poll skip"
    """Between two polls of a process, a record was skipped."""
    INTERNAL_POLL_SKIP = "internal poll skip"
    """Between two records of one poll, a record was skipped."""
    UNOWNED_READ = "unowned read"
    """A poll returned a record of a partition that the process had not been assigned."""
    UNSEEN = "unseen"
    """No poll returned a record within `seen_within`."""
    CYCLE = "cycle"
    """Transactions read each other's records, in a cycle (G1c)."""
    INPUT_TWICE = "input twice"
    """Two visible transactions consumed the same record."""
    INPUT_LOST = "input lost"
    """A group has committed past a record that no visible transaction consumed."""
    OFFSET_TOO_LOW = "offset too low"
    """A visible transaction consumed a record, but the group's offset is before it."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly: its kind, and a text that names the transactions and offsets."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


def check(
    history: History,
    *,
    seen_within: float | None = None,
    undefined: Collection[TopicPartition] = (),
    lost_groups: Collection[str] = (),
) -> list[Anomaly]:
    """Return all anomalies of a history; none means that a correct cluster can produce it.

    `seen_within`: the seconds after the last fault, or after an acknowledgement, within which a
    poll must return each record of a partition that is polled at all. `undefined`: partitions whose
    log was truncated or deleted, so that offsets were assigned twice. `lost_groups`: groups whose
    committed offsets the cluster has lost, so that they may consume records twice.
    """
    return list(_Judge(history, frozenset(undefined), seen_within, lost_groups).anomalies())


class _Judge:
    """Index of a history's operations and logs, and all checks of the history."""

    def __init__(
        self,
        history: History,
        undefined: frozenset[TopicPartition],
        seen_within: float | None,
        lost_groups: Collection[str],
    ) -> None:
        self._history = history
        self._lost_groups = lost_groups
        self._undefined = undefined
        self._seen_within = seen_within
        self._all = history.transactions
        self._writers: dict[str, tuple[Operation, Write]] = {}
        for made in self._all:
            for write in made.writes:
                if write.value in self._writers:
                    raise ValueError(f"{write.value!r} was written twice: values must be unique")
                self._writers[write.value] = made, write
        self._logs: dict[TopicPartition, dict[int, str]] = {}
        """Values that any reader saw, by offset."""
        self._complete: set[TopicPartition] = set()
        for poll in history.polls:
            for partition, rows in poll.seen.items():
                if partition not in undefined:
                    self._index(poll, partition, rows)
        self._offsets = {partition: sorted(log) for partition, log in self._logs.items()}
        self._places: dict[str, list[tuple[TopicPartition, int]]] = {}
        for partition, log in self._logs.items():
            for offset, value in log.items():
                self._places.setdefault(value, []).append((partition, offset))
        self._visible = [made for made in self._all if self._is_visible(made)]

    def _index(
        self, poll: Operation, partition: TopicPartition, rows: list[tuple[int, str]]
    ) -> None:
        log = self._logs.setdefault(partition, {})
        for offset, value in rows:
            if not (poll.uncommitted and self._is_transactional(value)):
                log.setdefault(offset, value)
        if poll.complete:
            self._complete.add(partition)

    def _is_transactional(self, value: str) -> bool:
        made = self._writers.get(value)
        return made is not None and made[0].call is CallKind.TXN

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield the anomalies that the checks find."""
        yield from self._readings()
        yield from self._values()
        for made in self._all:
            yield from self._transaction(made)
        yield from self._order()
        yield from self._real_time()
        yield from self._precommitted()
        yield from self._unseen()
        yield from self._inputs()
        yield from self._cycles()

    def _is_visible(self, made: Operation) -> bool:
        if made.result is CallResult.OK or made.aborted:
            return made.result is CallResult.OK
        return any(write.value in self._places for write in made.writes)

    # Readers

    def _readings(self) -> Iterator[Anomaly]:
        """Compare the polls of each process with the logs, in the order of their results."""
        processes: dict[str, list[tuple[float, Operation]]] = {}
        for one in self._history.operations:
            if not one.writing:
                when = one.invoked if one.returned is None else one.returned
                processes.setdefault(one.process, []).append((when, one))
        for done in processes.values():
            done.sort(key=lambda entry: entry[0])
            yield from self._process([one for _, one in done])

    def _process(self, done: list[Operation]) -> Iterator[Anomaly]:
        last: dict[TopicPartition, int] = {}
        owned: set[TopicPartition] | None = None
        for one in done:
            if one.call is CallKind.POLL:
                for partition, rows in one.seen.items():
                    if partition in self._undefined:
                        continue
                    if owned is not None and rows and partition not in owned:
                        text = f"{one.name} at {partition}: {rows[0][1]!r} at {rows[0][0]}"
                        yield Anomaly(Kind.UNOWNED_READ, text)
                    before = None if one.complete else last.get(partition)
                    yield from self._poll(one, partition, rows, before)
                    if rows:
                        last[partition] = rows[-1][0]
                continue
            owned = _owned(one, owned)
            for partition in _reset(one, last):
                last.pop(partition, None)

    def _poll(
        self,
        poll: Operation,
        partition: TopicPartition,
        rows: list[tuple[int, str]],
        before: int | None,
    ) -> Iterator[Anomaly]:
        """Compare a poll's records of one partition with the log after the offset `before`."""
        log, who = self._logs[partition], f"{poll.process} at {partition}"
        inside = False
        for offset, value in rows:
            if log.get(offset, value) != value:
                text = f"{who}: {value!r} at {offset}, where another saw {log[offset]!r}"
                yield Anomaly(Kind.READERS_DISAGREE, text)
            if before is not None and offset <= before:
                kind = Kind.INTERNAL_NONMONOTONIC_POLL if inside else Kind.NONMONOTONIC_POLL
                yield Anomaly(kind, f"{who}: offset {offset} after {before}")
            elif before is not None and not poll.complete:
                kind = Kind.INTERNAL_POLL_SKIP if inside else Kind.POLL_SKIP
                for missed in self._between(partition, before, offset):
                    text = f"{who}: skipped {log[missed]!r} at {missed}"
                    yield Anomaly(kind, text)
            before, inside = offset, True
        if poll.complete:
            seen = {offset for offset, _ in rows}
            for offset in self._offsets[partition]:
                if offset not in seen:
                    text = f"{who}: skipped {log[offset]!r} at {offset}"
                    yield Anomaly(Kind.READERS_DISAGREE, text)

    def _between(self, partition: TopicPartition, low: int, high: int) -> list[int]:
        """Return the offsets of visible records between two offsets."""
        offsets = self._offsets[partition]
        return offsets[bisect.bisect_right(offsets, low) : bisect.bisect_left(offsets, high)]

    def _values(self) -> Iterator[Anomaly]:
        for value, places in self._places.items():
            where = ", ".join(f"{partition} at {offset}" for partition, offset in places)
            if len(places) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value!r} is in {where}")
            if value not in self._writers:
                yield Anomaly(Kind.UNWRITTEN_READ, f"{value!r} in {where}")
            elif (made := self._writers[value][0]).aborted:
                yield Anomaly(Kind.ABORTED_READ, f"{value!r} of {made.name} in {where}")

    def _precommitted(self) -> Iterator[Anomaly]:
        """Yield records that a poll returned before they can have been visible."""
        for poll in self._history.polls:
            if poll.returned is None:
                continue
            for partition, rows in poll.seen.items():
                for offset, value in rows:
                    made, write = self._writers.get(value, (None, None))
                    if made is None or write is None or made.aborted:
                        continue
                    whole = made.call is CallKind.TXN and not poll.uncommitted
                    since = made.committing if whole else write.invoked
                    if since is not None and poll.returned < since:
                        text = (
                            f"{poll.name} returned {value!r}, {partition} at {offset}, at "
                            f"{poll.returned}; {made.name} may be visible since {since}"
                        )
                        yield Anomaly(Kind.PRECOMMITTED_READ, text)

    def _unseen(self) -> Iterator[Anomaly]:
        """Yield acknowledged records that no poll returned in time, although polls continued."""
        healed = [one.invoked for one in self._history.operations if one.call is CallKind.HEAL]
        if self._seen_within is None or not healed:
            return
        first: dict[TopicPartition, dict[int, float]] = {}
        for poll in self._history.polls:
            if poll.complete or poll.returned is None:
                continue
            for partition, rows in poll.seen.items():
                times = first.setdefault(partition, {})
                for offset, _ in rows:
                    times[offset] = min(times.get(offset, poll.returned), poll.returned)
        begin = {partition: min(times) for partition, times in first.items() if times}
        end = max((one.invoked for one in self._history.polls if not one.complete), default=0.0)
        for made in self._visible:
            for write in made.writes:
                times = first.get(write.partition, {})
                told = write.returned or made.returned
                if not times or told is None or write.partition in self._undefined:
                    continue
                deadline = max(told, healed[-1]) + self._seen_within
                places = [o for p, o in self._places.get(write.value, ()) if p == write.partition]
                place = min(places, default=write.offset)
                if place is None or place < begin[write.partition] or deadline > end:
                    continue
                if times.get(place, deadline + 1.0) > deadline:
                    text = f"{write.value!r}, {write.partition} at {place}, until {deadline}"
                    yield Anomaly(Kind.UNSEEN, text)

    # Writers

    def _transaction(self, made: Operation) -> Iterator[Anomaly]:
        missing, found = [], 0
        for write in made.writes:
            if write.partition in self._undefined:
                continue
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
        if made.result is CallResult.OK:
            for write in missing:
                text = f"{write.value!r} of {made.name}, {write.partition} at {write.offset}"
                yield Anomaly(Kind.LOST_WRITE, text)
        if missing and found:
            text = f"{made.name}: {found} records are visible, {missing[0].value!r} isn't"
            yield Anomaly(Kind.PARTIAL, text)

    def _order(self) -> Iterator[Anomaly]:
        ordered = sorted(self._all, key=lambda made: made.incarnation)
        last: dict[tuple[str, TopicPartition], tuple[int, Operation, str]] = {}
        for made in ordered:
            for write in made.writes:
                for partition, offset in self._places.get(write.value, ()):
                    if partition != write.partition:
                        continue
                    # Only transactional producers fence each other.
                    txn = made.call is CallKind.TXN
                    place = (made.client if txn else made.process, partition)
                    before = last.get(place)
                    if before is not None and offset < before[0]:
                        kind = Kind.NONMONOTONIC_SEND
                        if before[1].incarnation != made.incarnation:
                            kind = Kind.ZOMBIE_WRITE
                        elif before[1] is made:
                            kind = Kind.INTERNAL_NONMONOTONIC_SEND
                        text = (
                            f"{partition}: {write.value!r} of {made.name} at {offset}, though "
                            f"{before[2]!r} of {before[1].name} is at {before[0]}"
                        )
                        yield Anomaly(kind, text)
                    else:
                        last[place] = (offset, made, write.value)

    def _real_time(self) -> Iterator[Anomaly]:
        """Yield records that were sent when a record with a higher offset was already known."""
        known: dict[TopicPartition, list[tuple[float, int, str]]] = {}
        sent: dict[TopicPartition, list[tuple[float, int, str]]] = {}
        for poll in self._history.polls:
            for partition, rows in poll.seen.items():
                if rows and poll.returned is not None:
                    offset = max(offset for offset, _ in rows)
                    known.setdefault(partition, []).append((poll.returned, offset, poll.name))
        for made in self._visible:
            for write in made.writes:
                places = [o for p, o in self._places.get(write.value, ()) if p == write.partition]
                offsets = places or ([] if write.offset is None else [write.offset])
                told = made.returned if write.returned is None else write.returned
                for offset in offsets:
                    entry = (write.invoked, offset, f"{write.value!r} of {made.name}")
                    sent.setdefault(write.partition, []).append(entry)
                    if made.result is CallResult.OK and told is not None:
                        known.setdefault(write.partition, []).append((told, *entry[1:]))
        for partition in sorted(sent.keys() - self._undefined):
            yield from _overtaken(partition, sorted(known.get(partition, ())), sent[partition])

    # Transactions that read, process and write

    def _inputs(self) -> Iterator[Anomaly]:
        taken: dict[tuple[str, TopicPartition, int], Operation] = {}
        committed = self._history.committed
        for made in self._visible:
            if made.group is None:
                continue
            ends = committed.get(made.group, {})
            for partition, offset in made.places:
                other = taken.setdefault((made.group, partition, offset), made)
                if other is not made and made.group not in self._lost_groups:
                    text = f"{partition} at {offset}: {other.name} and {made.name}"
                    yield Anomaly(Kind.INPUT_TWICE, text)
                if partition in ends and offset >= ends[partition]:
                    text = (
                        f"{made.name} consumed {partition} at {offset}, but {made.group} has "
                        f"committed {ends[partition]}"
                    )
                    yield Anomaly(Kind.OFFSET_TOO_LOW, text)
        excused = self._perhaps_taken()
        for group, ends in committed.items():
            for partition, end in ends.items():
                for offset, value in self._logs.get(partition, {}).items():
                    place = (group, partition, offset)
                    if offset < end and place not in taken and place not in excused:
                        text = f"{group}: {value!r}, {partition} at {offset}, committed is {end}"
                        yield Anomaly(Kind.INPUT_LOST, text)

    def _perhaps_taken(self) -> set[tuple[str, TopicPartition, int]]:
        """Return inputs of transactions whose outcome is unknown and that wrote no records."""
        return {
            (made.group, partition, offset)
            for made in self._all
            if made.group is not None
            and made.result is CallResult.INFO
            and not made.aborted
            and not made.writes
            for partition, offset in made.places
        }

    # Cycles

    def _edges(self) -> dict[str, set[str]]:
        """Return, for each transaction, the transactions that must precede it.

        These are the transactions whose records it read, and the previous one of the same producer.
        """
        after: dict[str, set[str]] = {made.name: set() for made in self._visible}
        last: dict[tuple[str, int], str] = {}
        for made in self._visible:
            session = (made.client, made.incarnation)
            if session in last:
                after[last[session]].add(made.name)
            last[session] = made.name
            for partition, offset in made.places:
                value = self._logs.get(partition, {}).get(offset)
                writer = self._writers.get(value) if value is not None else None
                if writer is not None and writer[0].name in after:
                    after[writer[0].name].add(made.name)
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


def _owned(one: Operation, before: set[TopicPartition] | None) -> set[TopicPartition] | None:
    """Return the partitions of a process after an event; None while its assignment is unknown."""
    partitions = {partition for partition, _ in one.places}
    match one.call:
        case CallKind.ASSIGN:
            return partitions
        case CallKind.ASSIGNED:
            return partitions | (before or set())
        case CallKind.REVOKED:
            return (before or set()) - partitions
        case CallKind.SUBSCRIBE:
            return before if before is None else set()
    return before


def _reset(one: Operation, known: Collection[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions whose position an event changes, so that any record may follow."""
    partitions = {partition for partition, _ in one.places}
    match one.call:
        case CallKind.ASSIGN:
            placed = {partition for partition, offset in one.places if offset != NO_OFFSET}
            return placed | (set(known) - partitions)
        case CallKind.ASSIGNED | CallKind.REVOKED | CallKind.SEEK:
            return partitions
        case CallKind.SUBSCRIBE:
            return set(known)
    return set()


def _overtaken(
    partition: TopicPartition,
    known: list[tuple[float, int, str]],
    sent: list[tuple[float, int, str]],
) -> Iterator[Anomaly]:
    """Yield records that were sent after a higher offset was known; `known` is sorted by time."""
    highest, why, at = -1, "", 0
    for invoked, offset, what in sorted(sent):
        while at < len(known) and known[at][0] < invoked:
            if known[at][1] > highest:
                _, highest, why = known[at]
            at += 1
        if offset < highest:
            text = f"{partition}: {what} at {offset} was sent after {why} at {highest} was known"
            yield Anomaly(Kind.REAL_TIME, text)


def _circle(after: dict[str, set[str]], left: set[str]) -> list[str]:
    """Return a cycle among the remaining transactions, each of which follows another one."""
    before = {name: other for other in sorted(left) for name in after[other] if name in left}
    path = [min(left)]
    while before[path[-1]] not in path:
        path.append(before[path[-1]])
    path.append(before[path[-1]])
    return path[path.index(path[-1]) :][::-1]
