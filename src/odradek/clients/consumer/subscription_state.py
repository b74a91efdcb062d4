"""What is assigned, and the position of each partition.

In: `assign`, `seek`, resets, pauses; what a group adds and takes away. Out: one `PartitionState`
per assigned partition. A position moves when records are handed to the caller, by a seek or by a
reset, and by nothing else (R-GR-1). After it follows what the caller is *through with*: what it was
handed before it asked for more. Must not: fetch, or know brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from odradek.clients.consumer.fetching.hand_over import HandOver
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import ConfigurationError, IllegalStateError, KafkaError
from odradek.common.topic_names import check_topic
from odradek.common.types import Rng, TopicPartition
from odradek.metadata.cluster import NO_ID

if TYPE_CHECKING:
    from odradek.clients.consumer.fetching.fetch_request_state import FetchRequestState
    from odradek.clients.consumer.fetching.read_replicas import ReadReplica

EARLIEST, LATEST, NONE = "earliest", "latest", "none"
COMMITTED = "committed"
"""A reset to what the group has committed; where it hasn't, `auto.offset.reset` decides."""
MAX_OFFSET = (1 << 63) - 1
MOST_NAMED = 5
"""Partitions that an error's text names."""
GUESSED_BYTES = 1024.0
"""What an offset is taken to hold before the first answer has shown it."""
LEAST_ASKED = 256 << 10
"""Bytes that are asked for at least: below that a question costs more than its answer."""
ASKED_MORE = 1.25
"""Records aren't all alike; a second question costs more than a few that aren't wanted."""


def _names(partitions: Collection[TopicPartition]) -> str:
    """The first few of them."""
    few = ", ".join(str(partition) for partition in islice(partitions, MOST_NAMED))
    more = f" and {len(partitions) - MOST_NAMED} more" if len(partitions) > MOST_NAMED else ""
    return f"{few}{more}" or "none so far"


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "answered", "asked", "backoff", "checked_under", "committed", "confirmed", "consumed",
        "consumed_epoch", "cut_short", "error", "fetch_epoch", "fetch_offset", "generation",
        "log_end", "losses", "max_bytes", "missing_since", "moves", "offset_bytes", "oversized",
        "partition", "paused", "position", "position_epoch", "replica", "reset", "resetting",
        "revoked", "said", "seen_end", "served", "topic_id", "until",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, reset: str, backoff: Backoff) -> None:
        self.partition = partition
        self.reset = reset
        """What a reset does while there is no position."""
        self.backoff = backoff
        self.position: int | None = None
        """The offset that is handed out next; None until it is reset."""
        self.position_epoch = -1
        """The leader epoch of the record before it, -1 where that isn't known."""
        self.consumed: int | None = None
        """The offset that auto-commit may commit: the caller is through with all before it."""
        self.consumed_epoch = -1
        self.committed: int | None = None
        """What the group has, as far as this client knows."""
        self.said: tuple[OffsetAndMetadata, int | None] | None = None
        """What the caller itself committed last. With the position of then if it was less than what
        it was through with, or more than it was handed: then it meant just that."""
        self.revoked = False
        """It is being given back: nothing of it is asked for or handed out any more."""
        self.log_end: int | None = None
        """Where the log ended when a reset by duration began: looked up before the time, so that no
        record comes between the two unseen."""
        self.seen_end: int | None = None
        """Where the log ended as the last answer to a fetch said (read_committed: its last stable
        offset)."""
        self.answered: tuple[int, int, float] | None = None
        """High watermark and last stable offset of the last answer to a fetch (-1: not told), and
        when it came."""
        self.until = MAX_OFFSET
        """The first offset that isn't wanted."""
        self.paused = False
        self.fetch_offset: int | None = None
        """The offset to ask for next: ahead of the position by what is buffered. None: ask again
        from the position once what is buffered has been handed out."""
        self.fetch_epoch = -1
        """The leader epoch of the record before it, -1 where that isn't known."""
        self.checked_under = -1
        """The newest leader epoch whose log is known to have what was fetched (KIP-320)."""
        self.confirmed = False
        """A leader has answered a fetch from there without an error since it was moved, so what is
        known of its log's end isn't from before."""
        self.generation = 0
        """Grows with each seek and reset; answers to older questions are dropped."""
        self.moves = 0
        """Grows with each move to another position that isn't a record's handing out."""
        self.asked: FetchRequestState | None = None
        self.replica: ReadReplica | None = None
        """Who is read instead of the leader."""
        self.resetting = False
        self.losses = 0
        """How often in a row the log didn't have the position that a reset had found."""
        self.max_bytes: int | None = None
        """Set while the next batch is larger than the usual limit."""
        self.cut_short = False
        """All of that batch was asked for, and less came."""
        self.offset_bytes = GUESSED_BYTES
        """What an offset held in the last answer."""
        self.oversized = False
        """An answer was larger than is taken, perhaps because of it: it is asked for alone."""
        self.served = 0
        """When it last got data, as a serial number: who waited longest comes first."""
        self.topic_id = NO_ID
        self.error: KafkaError | None = None
        """What the next poll raises."""
        self.missing_since: float | None = None

    def move_to(self, position: int | None, epoch: int = -1) -> None:
        """Set the position from outside: what is buffered or under way is of no use then."""
        if position != self.position:
            self.moves += 1
            self.position_epoch = self.consumed_epoch = epoch
            self.consumed = position
            self.said = None
            self.checked_under = -1
        self.position = position
        self.fetch_again()
        self.resetting = False
        self.log_end = None
        self.oversized = False
        self.error = None
        self.backoff.succeeded()

    def fetch_again(self) -> None:
        """Ask again from the position: what is buffered or under way is of no use any more."""
        self.generation += 1
        self.confirmed = False
        self.fetch_offset, self.fetch_epoch = self.position, self.position_epoch
        self.asked = None
        self.max_bytes, self.cut_short = None, False

    def fetched_well(self) -> None:
        """A leader took the position as it is."""
        self.confirmed = True
        self.backoff.succeeded()
        self.losses = 0

    # Fetching

    def fetched(
        self, next_offset: int | None, epoch: int | None, *, bytes_each: float, served: int
    ) -> None:
        """Batches came up to `next_offset`, None where only decoding shows where they end.

        `epoch`: the leader epoch of the last record, where it is known.
        """
        self.served, self.offset_bytes = served, bytes_each
        self.fetch_offset = next_offset
        if epoch is not None:
            self.fetch_epoch = epoch

    def there(self, log_end: int | None = None) -> None:
        """A leader answered for it; the log ends there, as far as it said."""
        self.missing_since = None
        if log_end is not None and log_end >= 0:
            self.seen_end = log_end

    def told_ends(
        self, high_watermark: int, last_stable_offset: int, log_end: int, now: float
    ) -> None:
        """A leader's answer to a fetch said where the log ends; `log_end`: for this reader."""
        self.missing_since = None
        if log_end >= 0:
            self.seen_end = log_end
        self.answered = (high_watermark, last_stable_offset, now)
        self.confirmed = True

    def missed(self, now: float) -> float:
        """It isn't there; since when."""
        if self.missing_since is None:
            self.missing_since = now
        return self.missing_since

    def identify(self, topic_id: bytes) -> bytes:
        """Note the id of its topic; gives the id that it had before (KIP-516)."""
        before, self.topic_id = self.topic_id, topic_id
        return before

    def ask_whole(self, needed: int, *, again: bool) -> None:
        """Its next batch is larger than the usual limit; `again`: all of it was asked for once."""
        self.max_bytes, self.cut_short, self.served = needed, again, 0
        self.oversized = self.oversized or again

    def ask_as_usual(self) -> None:
        """Its next batch came whole, or asking for it doesn't help."""
        self.max_bytes, self.cut_short = None, False

    def doubt_size(self, oversized: bool) -> None:
        """Whether an answer may have been too large because of it."""
        self.oversized = oversized

    def fetch_from(self, offset: int | None, epoch: int | None = None) -> None:
        """The offset to ask for next, None for nothing; `epoch`: of the record before it."""
        self.fetch_offset = offset
        if epoch is not None:
            self.fetch_epoch = epoch

    def asked_in(self, request: FetchRequestState | None) -> None:
        """The request that it is in; None: in none any more."""
        self.asked = request

    def read_from(self, replica: ReadReplica | None) -> None:
        """Read this replica; None: the leader."""
        self.replica = replica

    def checked(self, leader_epoch: int) -> None:
        """The log under this leader epoch has what was fetched (KIP-320)."""
        self.checked_under = leader_epoch

    # Its position

    def pass_over(self, position: int, epoch: int | None) -> None:
        """Rows were handed out; `epoch`: of the last of them, where it is known."""
        self.position = position
        if epoch is not None:
            self.position_epoch = epoch

    def put_back(self, position: int | None, epoch: int) -> None:
        """What was on its way to the caller didn't get there."""
        self.position, self.position_epoch = position, epoch

    def looked_up(self, log_end: int | None = None) -> None:
        """A reset has had its answer: where the log ends, if it only asked for that."""
        self.resetting, self.log_end = False, log_end

    def look_up(self) -> None:
        """A reset is under way."""
        self.resetting = True

    def reset_by(self, policy: str) -> None:
        """What a reset does from now on."""
        self.reset = policy

    def take_over(self, old: PartitionState) -> None:
        """Go on as the state of another engine, positions apart."""
        self.reset, self.paused = old.reset, old.paused

    def take_error(self) -> KafkaError | None:
        """Take the error that is about to be raised, so that it is raised once."""
        error, self.error = self.error, None
        return error

    def committed_at(self, offset: int) -> None:
        """The group has this offset."""
        self.committed = offset

    def unsay(self) -> None:
        """The caller's own commit failed: it counts no longer, and the caller is told."""
        self.said = None

    def say(self, offset: OffsetAndMetadata) -> None:
        """The caller commits this."""
        consumed, position = self.consumed, self.position
        if consumed is not None and position is not None:
            in_hand = consumed <= offset.offset <= position
            self.said = offset, None if in_hand else position

    def due(self) -> OffsetAndMetadata | None:
        """The offset that auto-commit may commit: the last one processed, or one that the caller
        committed.

        A caller that committed another offset than it was handed keeps that one until it is handed
        more records.
        """
        consumed, said = self.consumed, self.said
        if consumed is None:
            return None
        if said is not None:
            offset, at = said
            if at == self.position or (at is None and offset.offset > consumed):
                return offset
        return OffsetAndMetadata(consumed, leader_epoch=self.consumed_epoch)

    def worth_asking(self, most: int) -> int:
        """Bytes to ask for, at most `most`: where an end is set, what is probably before it.

        A task of Spark's may want a hundred records of a long log, and get megabytes of others.
        """
        if self.fetch_offset is None or self.until == MAX_OFFSET:
            return most
        left = int((self.until - self.fetch_offset) * self.offset_bytes * ASKED_MORE)
        return min(most, max(LEAST_ASKED, left))

    @property
    def finished(self) -> bool:
        """All wanted offsets were handed out."""
        return self.position is not None and self.position >= self.until

    def wants_fetch(self) -> bool:
        """Whether there is something to ask for, backoff apart."""
        return (
            self.fetch_offset is not None
            and self.asked is None
            and self.error is None
            and not self.paused
            and not self.revoked
            and self.fetch_offset < self.until
        )


def check_partition(partition: TopicPartition) -> None:
    """Refuse what can't be a partition."""
    if not partition.topic or partition.partition < 0:
        raise ConfigurationError(f"{partition!r} can't be assigned")
    check_topic(partition.topic)


class SubscriptionState:
    """All assigned partitions of one consumer."""

    def __init__(
        self, policy: str, retry: ExponentialBackoff, rng: Rng, first: str | None = None
    ) -> None:
        """`first`: what a new partition begins with, when that isn't the policy."""
        self._policy = policy
        self._first = first or policy
        self._retry = retry
        self._rng = rng
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.changes = 0
        """Grows with whatever may make another partition worth a fetch."""
        self.pauses = 0
        """Grows with each pause and resume."""
        self._failed: dict[PartitionState, None] = {}
        """All that may have an error: nobody looks through thousands of partitions for one."""
        self._suspended: dict[PartitionState, None] = {}
        self.in_hand: dict[PartitionState, None] = {}
        """What records were handed out of since the caller last asked. Of its thread alone."""
        self.hand_over = HandOver()
        """What is on its way to the caller."""

    def assign(
        self, partitions: Iterable[TopicPartition], until: Mapping[TopicPartition, int]
    ) -> None:
        """Replace the assignment; partitions that stay keep their positions."""
        self.changes += 1
        wanted = dict.fromkeys(partitions)
        for partition in wanted:
            check_partition(partition)
        for partition in until:
            if partition not in wanted:
                raise ConfigurationError(f"until names {partition}, which isn't assigned")
        old = self.partitions
        self.partitions = {}
        for partition in wanted:
            state = old.pop(partition, None)
            if state is None:
                state = self._new(partition)
            end = until.get(partition, MAX_OFFSET)
            if end != state.until:
                state.move_to(state.position)  # what is buffered was cut elsewhere
                state.until = end
            self.partitions[partition] = state
        for gone in old.values():
            gone.move_to(None)  # whoever still holds it sees another generation

    def _new(self, partition: TopicPartition) -> PartitionState:
        return PartitionState(partition, self._first, Backoff(self._retry, self._rng))

    # What a group does

    def touch(self) -> None:
        """Something changed that may make another partition worth a fetch."""
        self.changes += 1

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these as well; the others aren't touched."""
        self.changes += 1
        for partition in partitions:
            if partition not in self.partitions:
                self.partitions[partition] = self._new(partition)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these no longer; the others aren't touched."""
        self.changes += 1
        for partition in list(partitions):
            gone = self.partitions.pop(partition, None)
            if gone is not None:
                gone.move_to(None)

    def withhold(self, state: PartitionState) -> None:
        """Hand out nothing of it any more; its position stays, to be committed."""
        self.changes += 1
        self._suspended.pop(state, None)
        if not state.revoked:
            state.revoked = True
            state.move_to(state.position)  # ends a loop over its records, too

    def release(self, state: PartitionState) -> None:
        """Take a `withhold` back."""
        if self._suspended:  # nobody may have anything now: `resume` hands it out
            self._suspended[state] = None
            return
        state.revoked = False
        self.changes += 1

    @property
    def suspended(self) -> bool:
        """Partitions wait for `resume`."""
        return bool(self._suspended)

    def suspend(self) -> None:
        """Hand out nothing until `resume`: nobody can say whether these are still ours."""
        for state in self.partitions.values():
            if not state.revoked:
                self.withhold(state)
                self._suspended[state] = None

    def resume(self) -> None:
        """End `suspend`: all but those that were withheld for good meanwhile go on."""
        if self._suspended:
            suspended, self._suspended = self._suspended, {}
            for state in suspended:
                state.revoked = False
            self.changes += 1

    def note_consumed(self) -> None:
        """The caller asks for more, or says so: it is through with all that it was handed.

        Not with what a call has taken that goes on, or that an exception has ended.
        """
        under_way = self.hand_over
        for state in self.in_hand:
            state.consumed, state.consumed_epoch = under_way.settled(state)
        self.in_hand = {state: None for state in self.in_hand if state in under_way}

    def get(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition."""
        found = self.partitions.get(partition)
        if found is None:
            raise IllegalStateError(
                f"{partition} isn't assigned to this consumer, which has {_names(self.partitions)}"
            )
        return found

    def position(self, partition: TopicPartition) -> int | None:
        """What the caller is handed next; what is on its way to it doesn't count yet."""
        return self.hand_over.settled(self.get(partition))[0]

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets from there to the end of the log, as far as that is known."""
        return self._lag(self.get(partition))

    def _lag(self, state: PartitionState) -> int | None:
        position, end = self.hand_over.settled(state)[0], state.seen_end
        return None if position is None or end is None else max(0, end - position)

    def lags(self) -> dict[TopicPartition, int | None]:
        """The same of all that are assigned; any thread may ask."""
        states = list(self.partitions.values())
        return {state.partition: self._lag(state) for state in states}

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether it was read to the end of its log, as an answer said that came since the last
        seek.
        """
        state = self.get(partition)
        return state.confirmed and self._lag(state) == 0

    def committed_lags(self) -> dict[TopicPartition, int]:
        """Offsets from what the group has to the end, of those where both are known."""
        ends = {s.partition: (s.committed, s.seen_end) for s in list(self.partitions.values())}
        return {
            partition: max(0, end - committed)
            for partition, (committed, end) in ends.items()
            if committed is not None and end is not None
        }

    def high_watermarks(self) -> dict[TopicPartition, int | None]:
        """Where the logs ended as the last answers said."""
        told = {s.partition: s.answered for s in list(self.partitions.values())}
        return {p: at[0] if at is not None and at[0] >= 0 else None for p, at in told.items()}

    def holds(self, state: PartitionState) -> bool:
        """Whether a state is (still) part of the assignment."""
        return self.partitions.get(state.partition) is state

    def seek(self, partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Go to an offset; whether it is in the log shows at the next fetch.

        `epoch`: the leader epoch of the record before it, where that is known. Else it is right in
        whatever log that is, at the same offset, too (KIP-320).
        """
        if not 0 <= offset < MAX_OFFSET:
            raise ConfigurationError(f"offset must be 0 or more, not {offset}")
        self.changes += 1
        state = self.get(partition)
        state.losses = 0
        state.position_epoch = epoch
        state.move_to(offset, epoch)
        self.hand_over.forget(state)  # also where it is the same offset

    def request_reset(self, partitions: Iterable[TopicPartition] | None, policy: str) -> None:
        """Have positions looked up, at the next poll or position()."""
        self.changes += 1
        for partition in list(self.partitions if partitions is None else partitions):
            state = self.get(partition)
            state.losses = 0
            state.move_to(None)
            state.reset = policy

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Stop or go on fetching and handing out; what was fetched already waits (KAFKA-7548)."""
        self.changes += 1
        self.pauses += 1
        for state in [self.get(partition) for partition in partitions]:
            state.paused = paused

    def policy_reset(self, state: PartitionState, policy: str | None = None) -> None:
        """Let the policy find a new position."""
        self.changes += 1
        state.move_to(None)
        state.seen_end = None
        state.reset = policy or self._policy

    def lost_position(self, state: PartitionState, now: float) -> None:
        """The log doesn't have it. What a reset found and the log lacks again is looked up with a
        backoff: two replicas that disagree would be asked as fast as they answer.
        """
        before = state.losses
        self.policy_reset(state)
        state.losses = before + 1
        if before:
            state.backoff.go_on(before - 1)
            state.backoff.failed(now)

    @property
    def policy(self) -> str:
        """`auto.offset.reset`."""
        return self._policy

    def fail(self, state: PartitionState, error: KafkaError, now: float) -> None:
        """Have the next poll raise an error; then the partition is tried again, with backoff."""
        self.changes += 1
        state.backoff.failed(now)
        if state.error is None:
            state.error = error
        self._failed[state] = None

    def raise_pending(self) -> None:
        """Raise the first error that waits for the caller."""
        if self._failed and self.pending:
            state = next(iter(self._failed))
            del self._failed[state]
            error, state.error = state.error, None
            self.changes += 1
            if error is not None:
                raise error

    @property
    def pending(self) -> bool:
        """An error waits for the caller."""
        while self._failed:
            state = next(iter(self._failed))
            if state.error is not None and self.holds(state):
                return True
            del self._failed[state]  # a seek or a new assignment has made it good
        return False

    def finished(self) -> bool:
        """Nothing more can come: every partition has reached its `until`."""
        return all(s.finished for s in self.partitions.values())
