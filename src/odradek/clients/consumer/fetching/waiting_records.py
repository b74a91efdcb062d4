"""Buffer fetched records for the caller, in the order in which they arrived.

Records of paused partitions are stored separately, and so are those that no caller reads while
callers wait for others.

In: `CompletedFetch` objects, the assignment. Out: the next ones to return, and the leaders that may
be asked for more. Must not: decode, send, or know the network.

Memory: every leader has an equal share of `fetch.max.bytes`, half of it for the request in flight
and half for buffered records; so no leader is starved and the sum is kept. While records of paused
partitions are buffered, each share has three equal parts, one for these records: pausing drops
nothing (KAFKA-7548) until another partition of the same leader needs that memory.

Ctrl-C or a signal handler's exception may interrupt a change of the buffer: the next call detects
that, drops all records, and they are fetched again from the consumer's positions (R-HO-1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from odradek.clients.consumer.completed_fetch import CompletedFetch, DecodingProgress
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.subscription_state import Selection, SubscriptionState
from odradek.common.types import Address, TopicPartition

SMALLEST_SHARE = 1


class Consumed(NamedTuple):
    """Records of one topic that the caller has received."""

    records: int
    bytes: int
    """Size of the decoded batches, as they are stored in the log."""
    seconds: float
    """Seconds spent on decoding."""


NOTHING_CONSUMED = Consumed(0, 0, 0.0)


class WaitingRecords:
    """The fetcher's buffer; its callers hold the engine's lock."""

    def __init__(self, subscription: SubscriptionState, room: Callable[[], None]) -> None:
        """Create the buffer; `room` is called when memory for a leader's records is freed."""
        self._subscription = subscription
        self._room = room
        self.fetched: deque[CompletedFetch] = deque()
        self.paused: dict[PartitionState, deque[CompletedFetch]] = {}
        """Entries of paused partitions, in the order of the pauses.

        All entries of a partition are here, or all are in `fetched`.
        """
        self._gone: dict[str, Consumed] = {}
        """Numbers of records that were returned from entries no longer buffered, by topic."""
        self.former = NOTHING_CONSUMED
        """Sum of the returned records of topics that aren't in use any more."""
        self._buffered: dict[Address, int] = {}
        self._aside: dict[Address, int] = {}
        self._share = 0
        """Maximum number of buffered bytes of a leader; with more, it isn't asked again."""
        self._room_made = False
        self._seen = (subscription.changes, subscription.pauses)
        self._torn = False
        """Whether a change is in progress, or was interrupted by an exception."""

    # Calls of the fetcher

    def add(self, entry: CompletedFetch) -> None:
        """Add a response; its partition may have been paused since the request.

        Earlier entries of a paused partition are moved to `paused` first, to keep their order.
        """
        subscription = self._subscription
        if self._torn or self._seen != (subscription.changes, subscription.pauses):
            self._sort()
        if entry.state.generation != entry.generation:  # `entry.valid`, inlined here and below
            return
        self._torn = True
        state = entry.state
        if state.paused or (state.unread and not any(e.state is state for e in self.fetched)):
            self._put_aside(entry)
        else:
            self._count(self._buffered, entry.address, entry.size)
            self.fetched.append(entry)
        self._torn = False

    def divide(self, budget: int, asked: Iterable[Address]) -> int:
        """Divide the byte budget among leaders; return the maximum size of one response."""
        subscription = self._subscription
        if self._torn or self._seen != (subscription.changes, subscription.pauses):
            self._sort()
        sharers = max(1, len({*asked, *self._buffered, *self._aside}))
        self._share = max(SMALLEST_SHARE, budget // ((3 if self._aside else 2) * sharers))
        return self._share

    def has(self, state: PartitionState) -> bool:
        """Return whether entries of a partition are buffered."""
        return state in self.paused or any(entry.state is state for entry in self.fetched)

    def has_of(self, address: Address) -> bool:
        """Return whether entries of this leader are buffered, except those of paused partitions."""
        return address in self._buffered

    def full(self, address: Address) -> bool:
        """Return whether this leader's buffer is full; if it isn't, drop excess paused records."""
        if self._buffered.get(address, 0) > self._share:
            return True
        for state in list(self.paused):
            if self._aside.get(address, 0) <= self._share:
                break
            if any(entry.address == address for entry in self.paused[state]):
                self._torn = True
                state.stay()  # after `resume`, the records are fetched again
                self._sift(state)
                self._torn = False
        return False

    def clear(self) -> None:
        """Drop all records."""
        for entry in self._all():
            self._note_gone(entry)
        self.fetched.clear()
        self.paused.clear()
        self._buffered.clear()
        self._aside.clear()

    # Metrics

    def consumed(self) -> dict[str, Consumed]:
        """Return the sums of returned records, by topic in use; callable in any thread."""
        found = dict(self._gone)
        for entry in self._all():
            _add(
                found, entry.state.partition.topic, entry.handed + entry.row, entry.at, entry.spent
            )
        return found

    def forget(self, topic: str) -> None:
        """Add the numbers of a topic that isn't in use any more to `former`."""
        gone, before = self._gone.pop(topic, NOTHING_CONSUMED), self.former
        self.former = Consumed(
            before.records + gone.records, before.bytes + gone.bytes, before.seconds + gone.seconds
        )

    def bytes_held(self) -> int:
        """Return the number of buffered bytes."""
        return sum(entry.size for entry in self._all())

    def _all(self) -> list[CompletedFetch]:
        return [*self.fetched, *(e for entries in list(self.paused.values()) for e in entries)]

    def _note_gone(self, entry: CompletedFetch) -> None:
        _add(
            self._gone, entry.state.partition.topic, entry.handed + entry.row, entry.at, entry.spent
        )

    def put_back(self, entry: CompletedFetch, to: DecodingProgress) -> bool:
        """Put unreturned rows back into an entry; return whether it is still buffered."""
        records, size = entry.handed + entry.row, entry.at
        entry.put_back(to)
        if self.holds(entry):
            return True
        records, size = entry.handed + entry.row - records, entry.at - size
        _add(self._gone, entry.state.partition.topic, records, size, 0.0)
        return False

    # Calls of the caller of `poll()`

    def head(self, of: Selection = None) -> CompletedFetch | None:
        """Return the next entry of these partitions; drop entries that a seek made useless."""
        subscription = self._subscription
        if self._torn or self._seen != (subscription.changes, subscription.pauses):
            self._sort()
        while self.fetched:
            entry = self.fetched[0]
            if entry.state.generation == entry.generation and not entry.exhausted:
                if of is None or entry.state.partition in of:
                    return entry
                break
            self.drop(entry)
        return None if of is None else self._front(of)

    def _front(self, of: Collection[TopicPartition]) -> CompletedFetch | None:
        """Move the first entry of these partitions to the front, and return it."""
        for state in [s for s in self.paused if s.partition in of and not s.paused]:
            self._torn = True
            self._let_go(state)
            self._torn = False
        for entry in self.fetched:
            if entry.state.partition in of and entry.valid and not entry.exhausted:
                self._torn = True
                self.fetched.remove(entry)
                self.fetched.appendleft(entry)
                self._torn = False
                return entry
        return None

    def made_room(self) -> bool:
        """Return whether entries were dropped since the last call."""
        made, self._room_made = self._room_made, False
        return made

    def drop(self, entry: CompletedFetch) -> None:
        """Drop an entry, even if another thread has meanwhile paused its partition."""
        if self._torn:
            self._mend()
        self._torn = True
        self._drop(entry)
        self._torn = False

    def holds(self, entry: CompletedFetch) -> bool:
        """Return whether an entry is buffered, at the head or paused."""
        self._mend()
        return entry in self.fetched or entry in self.paused.get(entry.state, ())

    def _drop(self, entry: CompletedFetch) -> None:
        if not self.fetched or self.fetched[0] is not entry:
            aside = self.paused.get(entry.state)
            if aside is None or entry not in aside:
                return
            aside.remove(entry)
            self._note_gone(entry)
            if not aside:
                del self.paused[entry.state]
            self._count(self._aside, entry.address, -entry.size)
            room = True
        else:
            self.fetched.popleft()
            topic = entry.state.partition.topic  # inlined `_note_gone`
            gone = self._gone.get(topic, NOTHING_CONSUMED)
            records, size = gone.records + entry.handed + entry.row, gone.bytes + entry.at
            self._gone[topic] = tuple.__new__(Consumed, (records, size, gone.seconds + entry.spent))
            before = self._buffered.get(entry.address, 0)
            left = self._count(self._buffered, entry.address, -entry.size)
            # Check for fetches only if memory allows one: a check iterates over all partitions.
            room = left <= 0 or before > self._share >= left
        state = entry.state
        room = room or state.unread
        if state.fetch_offset is None and entry.valid:
            # The next offset was unknown until the records were decoded.
            state.fetch_from(state.position, state.position_epoch)
            room = True
        if room:
            self._room_made = True
            self._room()

    # Paused partitions

    def _sort(self) -> None:
        """Store paused partitions separately, and put resumed ones back in their order."""
        if self._torn:
            self._mend()
        changes, pauses = seen = self._subscription.changes, self._subscription.pauses
        if seen == self._seen:
            return
        self._torn = True
        before, self._seen = self._seen, seen
        if changes != before[0]:
            for state in reversed(list(self.paused)):
                if state.held:
                    self._sift(state)
                else:
                    self._let_go(state)
        if pauses != before[1] and any(entry.state.held for entry in self.fetched):
            entries, self.fetched = self.fetched, deque()
            for entry in entries:
                if not entry.state.held:
                    self.fetched.append(entry)
                    continue
                self._count(self._buffered, entry.address, -entry.size)
                if entry.valid:
                    self._put_aside(entry)
                else:
                    self._note_gone(entry)
            self._room_made = True
        self._torn = False

    def _mend(self) -> None:
        """Drop everything if an exception interrupted a change, which may be incomplete."""
        if not self._torn:
            return
        subscription = self._subscription
        for state in subscription.partitions.values():
            if state.position is not None:
                state.fetch_again()
        subscription.touch()
        self.clear()
        self._seen = (subscription.changes, subscription.pauses)
        self._room_made = True
        self._room()
        self._torn = False

    def _put_aside(self, entry: CompletedFetch) -> None:
        self.paused.setdefault(entry.state, deque()).append(entry)
        self._count(self._aside, entry.address, entry.size)

    def _sift(self, state: PartitionState) -> None:
        """Drop entries that a seek made useless; keep the others paused."""
        entries = self.paused[state]
        if all(entry.valid for entry in entries):
            return
        self.paused[state] = kept = deque[CompletedFetch]()
        for entry in entries:
            if entry.valid:
                kept.append(entry)
            else:
                self._count(self._aside, entry.address, -entry.size)
                self._note_gone(entry)
        if not kept:
            del self.paused[state]
        self._room_made = True
        self._room()

    def _let_go(self, state: PartitionState) -> None:
        """Return a resumed partition's valid entries to the front of the buffer."""
        entries = self.paused.pop(state)
        for entry in reversed(entries):
            self._count(self._aside, entry.address, -entry.size)
            if entry.valid and not entry.exhausted:
                self._count(self._buffered, entry.address, entry.size)
                self.fetched.appendleft(entry)
            else:
                self._note_gone(entry)
        self._room_made = True
        self._room()

    @staticmethod
    def _count(bytes_of: dict[Address, int], address: Address, more: int) -> int:
        left = bytes_of.get(address, 0) + more
        if left > 0:
            bytes_of[address] = left
        else:
            bytes_of.pop(address, None)
        return left


def _add(to: dict[str, Consumed], topic: str, records: int, size: int, seconds: float) -> None:
    before = to.get(topic, NOTHING_CONSUMED)
    to[topic] = Consumed(before.records + records, before.bytes + size, before.seconds + seconds)
