"""Damage histories at random, each in a way that our judge, or Jepsen's too, must detect.

In: a `History`, a random generator. Out: a damaged copy and the kinds of anomalies of which
`history_check` must report at least one; None if the history has no place for the damage. Must not
judge.
"""

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation, Write
from odradek.simulation.checkers.history_check import Kind

Place = TypeVar("Place")
Row = tuple[int, str]
Found = frozenset[Kind]
EVENTS = frozenset(
    (
        CallKind.ASSIGN,
        CallKind.SUBSCRIBE,
        CallKind.ASSIGNED,
        CallKind.REVOKED,
        CallKind.SEEK,
        CallKind.CRASH,
        CallKind.CLOSE,
    )
)
SOON = 1e-6


class Spoiler:
    """A copy of a history that can be damaged, with indexes of its polls and records."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self.history = History.of_lines(list(history.lines()))
        self.rng = rng
        self.polls = [one for one in self.history.polls if one.result is CallResult.OK]
        self.writers: dict[str, tuple[Operation, Write]] = {
            write.value: (one, write) for one in self.history.transactions for write in one.writes
        }
        self.places: dict[str, tuple[TopicPartition, int]] = {}
        self.ends: dict[TopicPartition, int] = {}
        for _, partition, rows in self.readings():
            for offset, value in rows:
                self.places[value] = partition, offset
                self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)

    def pick(self, places: Iterator[Place]) -> Place | None:
        """Return one of the candidates at random; None if there are none."""
        found = list(places)
        return self.rng.choice(found) if found else None

    def readings(
        self, *, complete: bool | None = None
    ) -> Iterator[tuple[Operation, TopicPartition, list[Row]]]:
        """Yield each poll's records, one partition at a time."""
        for poll in self.polls:
            if complete is None or poll.complete is complete:
                for partition, rows in poll.seen.items():
                    if rows:
                        yield poll, partition, rows

    def successive(self) -> Iterator[tuple[list[Row], list[Row]]]:
        """Yield the records of two successive polls of a process that kept the partition."""
        last: dict[tuple[str, TopicPartition], list[Row]] = {}
        done = [one for one in self.history.operations if one.returned is not None]
        for one in sorted(done, key=lambda one: one.returned or 0.0):
            if one.call in EVENTS:
                last = {place: rows for place, rows in last.items() if place[0] != one.process}
            if one.call is not CallKind.POLL or one.complete or one.result is not CallResult.OK:
                continue
            for partition, rows in one.seen.items():
                place = one.process, partition
                if rows and place in last:
                    yield last[place], rows
                if rows:
                    last[place] = rows

    def writes(self, call: CallKind) -> Iterator[tuple[Operation, Write]]:
        """Yield acknowledged writes, by calls of this kind, whose record some poll returned."""
        for one, write in self.writers.values():
            if one.call is call and one.result is CallResult.OK and write.value in self.places:
                yield one, write

    def pairs(
        self, call: CallKind, fits: Callable[[Operation, Operation], bool]
    ) -> Iterator[tuple[Write, Write]]:
        """Yield two writes to one partition whose operations satisfy `fits`, in their order."""
        by_partition: dict[TopicPartition, list[tuple[Operation, Write]]] = {}
        for one, write in self.writes(call):
            by_partition.setdefault(write.partition, []).append((one, write))
        for entries in by_partition.values():
            entries.sort(key=lambda entry: entry[1].invoked)
            for at, (one, write) in enumerate(entries):
                for other, later in entries[at + 1 : at + 20]:
                    before = self.places[write.value][1] < self.places[later.value][1]
                    if before and fits(one, other):
                        yield write, later

    def forget(self, value: str) -> None:
        """Remove a value from all polls."""
        for _, _, rows in list(self.readings()):
            rows[:] = [row for row in rows if row[1] != value]

    def swap(self, one: Write, other: Write) -> None:
        """Exchange the offsets of two records, in acknowledgements and in polls."""
        exchanged = {one.value: other.value, other.value: one.value}
        for _, _, rows in self.readings():
            rows[:] = [(offset, exchanged.get(value, value)) for offset, value in rows]
        one.offset, other.offset = other.offset, one.offset


Damage = Callable[[Spoiler], Found | None]


def lost_write(spoiler: Spoiler) -> Found | None:
    """Remove from all polls a record that other records follow."""
    chosen = spoiler.pick(
        value
        for _, _, rows in spoiler.readings(complete=True)
        for _, value in rows[:-1]
        if spoiler.writers[value][0].result is CallResult.OK
    )
    if chosen is None:
        return None
    spoiler.forget(chosen)
    return frozenset((Kind.LOST_WRITE,))


def unread_end(spoiler: Spoiler) -> Found | None:
    """Remove the last record of a partition from all polls."""
    chosen = spoiler.pick(
        rows[-1][1]
        for _, _, rows in spoiler.readings(complete=True)
        if spoiler.writers[rows[-1][1]][0].result is CallResult.OK
    )
    if chosen is None:
        return None
    spoiler.forget(chosen)
    return frozenset((Kind.LOST_WRITE,))


def duplicate(spoiler: Spoiler) -> Found | None:
    """Add a record again at the end of its partition."""
    chosen = spoiler.pick(spoiler.readings(complete=True))
    if chosen is None:
        return None
    _, partition, rows = chosen
    rows.append((spoiler.ends[partition], spoiler.rng.choice(rows)[1]))
    return frozenset((Kind.DUPLICATE,))


def aborted_read(spoiler: Spoiler) -> Found | None:
    """Add a record of an aborted transaction at the end of its partition."""
    ends = {partition: rows for _, partition, rows in spoiler.readings(complete=True)}
    chosen = spoiler.pick(
        write
        for one, write in spoiler.writers.values()
        if one.aborted and one.result is CallResult.FAIL and write.partition in ends
    )
    if chosen is None:
        return None
    ends[chosen.partition].append((spoiler.ends[chosen.partition], chosen.value))
    return frozenset((Kind.ABORTED_READ,))


def unwritten_read(spoiler: Spoiler) -> Found | None:
    """Add a record that no producer wrote."""
    chosen = spoiler.pick(spoiler.readings(complete=True))
    if chosen is None:
        return None
    _, partition, rows = chosen
    rows.append((spoiler.ends[partition], "unwritten"))
    return frozenset((Kind.UNWRITTEN_READ,))


def nonmonotonic_poll(spoiler: Spoiler) -> Found | None:
    """Let a poll begin with the last record of the process's previous poll."""
    chosen = spoiler.pick(spoiler.successive())
    if chosen is None:
        return None
    before, rows = chosen
    rows.insert(0, before[-1])
    return frozenset((Kind.NONMONOTONIC_POLL,))


def internal_nonmonotonic_poll(spoiler: Spoiler) -> Found | None:
    """Exchange two records of a poll, with their offsets."""
    chosen = spoiler.pick(rows for _, _, rows in spoiler.readings(complete=False) if len(rows) > 1)
    if chosen is None:
        return None
    at = spoiler.rng.randrange(len(chosen) - 1)
    chosen[at : at + 2] = chosen[at + 1], chosen[at]
    return frozenset((Kind.INTERNAL_NONMONOTONIC_POLL,))


def poll_skip(spoiler: Spoiler) -> Found | None:
    """Remove the first record of a poll that continues the process's previous poll."""
    chosen = spoiler.pick(pair for pair in spoiler.successive() if len(pair[1]) > 1)
    if chosen is None:
        return None
    del chosen[1][0]
    return frozenset((Kind.POLL_SKIP,))


def internal_poll_skip(spoiler: Spoiler) -> Found | None:
    """Remove a record from the middle of a poll."""
    chosen = spoiler.pick(rows for _, _, rows in spoiler.readings(complete=False) if len(rows) > 2)
    if chosen is None:
        return None
    del chosen[spoiler.rng.randrange(1, len(chosen) - 1)]
    return frozenset((Kind.INTERNAL_POLL_SKIP,))


def inconsistent_offsets(spoiler: Spoiler) -> Found | None:
    """Exchange the values of two records in one poll."""
    chosen = spoiler.pick(rows for _, _, rows in spoiler.readings(complete=False) if len(rows) > 1)
    if chosen is None:
        return None
    at = spoiler.rng.randrange(len(chosen) - 1)
    (first, one), (second, other) = chosen[at : at + 2]
    chosen[at : at + 2] = (first, other), (second, one)
    return frozenset((Kind.READERS_DISAGREE,))


def _swapped(
    spoiler: Spoiler, call: CallKind, fits: Callable[[Operation, Operation], bool], kind: Kind
) -> Found | None:
    chosen = spoiler.pick(spoiler.pairs(call, fits))
    if chosen is None:
        return None
    spoiler.swap(*chosen)
    return frozenset((kind,))


def _after(one: Operation, other: Operation) -> bool:
    return one.returned is not None and one.returned < other.invoked


def nonmonotonic_send(spoiler: Spoiler) -> Found | None:
    """Exchange the offsets of two sends of one producer that don't overlap in time."""
    return _swapped(
        spoiler,
        CallKind.SEND,
        lambda one, other: one.process == other.process and _after(one, other),
        Kind.NONMONOTONIC_SEND,
    )


def reordered_pipeline(spoiler: Spoiler) -> Found | None:
    """Exchange the offsets of two sends of one producer that overlap in time."""
    return _swapped(
        spoiler,
        CallKind.SEND,
        lambda one, other: one.process == other.process and not _after(one, other),
        Kind.NONMONOTONIC_SEND,
    )


def real_time(spoiler: Spoiler) -> Found | None:
    """Exchange the offsets of sends by two clients that don't overlap in time."""
    return _swapped(
        spoiler,
        CallKind.SEND,
        lambda one, other: one.client != other.client and _after(one, other),
        Kind.REAL_TIME,
    )


def nonmonotonic_transactions(spoiler: Spoiler) -> Found | None:
    """Exchange the offsets of records in two transactions of one producer."""
    return _swapped(
        spoiler,
        CallKind.TXN,
        lambda one, other: one is not other and one.process == other.process,
        Kind.NONMONOTONIC_SEND,
    )


def internal_nonmonotonic_send(spoiler: Spoiler) -> Found | None:
    """Exchange the offsets of two records of one transaction."""
    return _swapped(
        spoiler, CallKind.TXN, lambda one, other: one is other, Kind.INTERNAL_NONMONOTONIC_SEND
    )


def zombie_write(spoiler: Spoiler) -> Found | None:
    """Exchange the offsets of a fenced producer's record and of the fencing producer's record."""
    return _swapped(
        spoiler,
        CallKind.TXN,
        lambda one, other: one.client == other.client and one.incarnation < other.incarnation,
        Kind.ZOMBIE_WRITE,
    )


def intermediate_read(spoiler: Spoiler) -> Found | None:
    """Remove from all polls one of several records of a transaction."""
    chosen = spoiler.pick(
        write for one, write in spoiler.writes(CallKind.TXN) if len(one.writes) > 1
    )
    if chosen is None:
        return None
    spoiler.forget(chosen.value)
    return frozenset((Kind.PARTIAL,))


def wrong_place(spoiler: Spoiler) -> Found | None:
    """Change the acknowledged offset of a record."""
    chosen = spoiler.pick(
        write
        for call in (CallKind.SEND, CallKind.TXN)
        for _, write in spoiler.writes(call)
        if write.offset is not None
    )
    if chosen is None:
        return None
    chosen.offset = spoiler.ends[chosen.partition]
    return frozenset((Kind.WRONG_PLACE,))


def read_before_send(spoiler: Spoiler) -> Found | None:
    """Let a send begin after a poll has returned its record."""
    chosen = spoiler.pick(
        (poll, value)
        for poll, _, rows in spoiler.readings(complete=False)
        for _, value in rows
        if spoiler.writers[value][0].call is CallKind.SEND
        and spoiler.writers[value][0].result is CallResult.OK
    )
    if chosen is None:
        return None
    poll, value = chosen
    one, write = spoiler.writers[value]
    one.invoked = write.invoked = (poll.returned or 0.0) + SOON
    one.returned = write.returned = one.invoked + SOON
    return frozenset((Kind.PRECOMMITTED_READ,))


def open_read(spoiler: Spoiler) -> Found | None:
    """Let a poll return a transaction's record before the commit of the transaction begins."""
    chosen = spoiler.pick(
        (poll, one)
        for poll, _, rows in spoiler.readings(complete=False)
        for _, value in rows
        if (one := spoiler.writers[value][0]).call is CallKind.TXN and poll.returned is not None
    )
    if chosen is None:
        return None
    poll, one = chosen
    one.committing = (poll.returned or 0.0) + SOON
    one.returned = None if one.returned is None else max(one.returned, one.committing + SOON)
    return frozenset((Kind.PRECOMMITTED_READ,))


def hidden_record(spoiler: Spoiler) -> Found | None:
    """Remove a record that another poll returned from the final poll of all records."""
    seen = {value for _, _, rows in spoiler.readings(complete=False) for _, value in rows}
    chosen = spoiler.pick(
        (rows, row)
        for _, _, rows in spoiler.readings(complete=True)
        for row in rows
        if row[1] in seen
    )
    if chosen is None:
        return None
    chosen[0].remove(chosen[1])
    return frozenset((Kind.READERS_DISAGREE,))


def unseen(spoiler: Spoiler) -> Found | None:
    """Remove a record from all polls except the final poll of all records."""
    chosen = spoiler.pick(
        rows[-1][1]
        for _, _, rows in spoiler.readings(complete=False)
        if spoiler.writers[rows[-1][1]][0].result is CallResult.OK
    )
    if chosen is None:
        return None
    for _, _, rows in list(spoiler.readings(complete=False)):
        rows[:] = [row for row in rows if row[1] != chosen]
    return frozenset((Kind.UNSEEN, Kind.POLL_SKIP, Kind.INTERNAL_POLL_SKIP))


def _inner_polls(spoiler: Spoiler) -> dict[int, Operation]:
    """Return a poll within each committed transaction with read records, by transaction number."""
    numbers = {one.number for one, _ in spoiler.writes(CallKind.TXN)}
    return {p.transaction: p for p in spoiler.polls if p.transaction in numbers}


def own_read(spoiler: Spoiler) -> Found | None:
    """Let a poll within a transaction return a record of the same transaction."""
    inner = _inner_polls(spoiler)
    chosen = spoiler.pick(iter(inner.items()))
    if chosen is None:
        return None
    number, poll = chosen
    value = next(w.value for one, w in spoiler.writes(CallKind.TXN) if one.number == number)
    partition, offset = spoiler.places[value]
    poll.seen.setdefault(partition, []).append((offset, value))
    return frozenset((Kind.PRECOMMITTED_READ,))


def cycle(spoiler: Spoiler) -> Found | None:
    """Let each of two transactions read a record of the other one."""
    inner = _inner_polls(spoiler)
    if len(inner) < 2:
        return None
    numbers = spoiler.rng.sample(sorted(inner), 2)
    for number, other in (numbers, numbers[::-1]):
        value = next(w.value for one, w in spoiler.writes(CallKind.TXN) if one.number == other)
        partition, offset = spoiler.places[value]
        inner[number].seen.setdefault(partition, []).append((offset, value))
        spoiler.history.operations[number].places.append((partition, offset))
    return frozenset((Kind.CYCLE,))


def unowned_read(spoiler: Spoiler) -> Found | None:
    """Let a poll also return a record of a partition that isn't assigned to its process."""
    assigned = {
        one.process
        for one in spoiler.history.operations
        if one.call in (CallKind.ASSIGN, CallKind.ASSIGNED)
    }
    owned = {
        (one.process, partition)
        for one in spoiler.history.operations
        for partition, _ in one.places
    }
    chosen = spoiler.pick(
        (poll, partition, row)
        for poll, _, _ in spoiler.readings(complete=False)
        for _, partition, rows in spoiler.readings(complete=True)
        for row in rows[:1]
        if poll.process in assigned and (poll.process, partition) not in owned
    )
    if chosen is None:
        return None
    poll, partition, row = chosen
    poll.seen.setdefault(partition, []).append(row)
    return frozenset((Kind.UNOWNED_READ,))


def input_twice(spoiler: Spoiler) -> Found | None:
    """Let a transaction commit the position of a record that another transaction consumed."""
    chosen = [
        one
        for one in spoiler.history.transactions
        if one.result is CallResult.OK and one.group is not None and one.places
    ]
    if len(chosen) < 2:
        return None
    one, other = spoiler.rng.sample(chosen, 2)
    one.places.append(spoiler.rng.choice(other.places))
    return frozenset((Kind.INPUT_TWICE,))


def input_lost(spoiler: Spoiler) -> Found | None:
    """Remove a record that a transaction has consumed, so that the group skipped it."""
    chosen = spoiler.pick(
        (one, at)
        for one in spoiler.history.transactions
        for at in range(len(one.places))
        if one.result is CallResult.OK and one.group is not None
    )
    if chosen is None:
        return None
    del chosen[0].places[chosen[1]]
    return frozenset((Kind.INPUT_LOST,))


def offset_too_low(spoiler: Spoiler) -> Found | None:
    """Let a group's final offset be that of a record which a transaction has consumed."""
    chosen = spoiler.pick(
        (one, one.places[-1])
        for one in spoiler.history.transactions
        if one.result is CallResult.OK and one.group is not None and one.places
    )
    if chosen is None:
        return None
    one, place = chosen
    spoiler.history.group_ends(one.group or "", [place])
    return frozenset((Kind.OFFSET_TOO_LOW,))


DAMAGES: dict[str, Damage] = {
    damage.__name__.replace("_", " "): damage
    for damage in (
        lost_write,
        unread_end,
        duplicate,
        aborted_read,
        unwritten_read,
        read_before_send,
        open_read,
        own_read,
        intermediate_read,
        wrong_place,
        inconsistent_offsets,
        hidden_record,
        unseen,
        nonmonotonic_poll,
        internal_nonmonotonic_poll,
        poll_skip,
        internal_poll_skip,
        nonmonotonic_send,
        reordered_pipeline,
        nonmonotonic_transactions,
        internal_nonmonotonic_send,
        real_time,
        zombie_write,
        cycle,
        unowned_read,
        input_twice,
        input_lost,
        offset_too_low,
    )
}
