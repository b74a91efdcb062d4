"""Hold the assignment: all partitions of one consumer.

In: `assign`, `seek`, resets, pauses; partitions that a group adds and removes. Out: one
`PartitionState` per assigned partition (R-GR-1: nothing else moves positions). Must not: fetch, or
know brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from odradek.clients.consumer.partition_state import MAX_OFFSET, PartitionState, Place
from odradek.clients.consumer.undelivered_records import UndeliveredRecords
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import ConfigurationError, IllegalStateError, KafkaError
from odradek.common.errors.topics import TopicRecreatedError, topic_id_text
from odradek.common.topic_names import check_topic
from odradek.common.types import Rng, TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.flow import Signal

logger = logging.getLogger("odradek.consumer")

Selection = Collection[TopicPartition] | None
"""The partitions that a reader reads; None: all that are assigned."""
Selector = Callable[[], Selection]
"""Returns the partitions that the waiting readers read at the time of the call."""
EARLIEST, LATEST, NONE = "earliest", "latest", "none"
COMMITTED = "committed"
"""Reset to the group's committed offset; without one, `auto.offset.reset` decides."""
COMMITTED_OR_EARLIEST = "committed-or-earliest"
"""Reset to the group's committed offset in a recreated topic; without one, to its beginning."""
WITHOUT_END: Place = (MAX_OFFSET, -1)
MOST_NAMED = 5
"""Maximum number of partitions that an error names."""


def _names(partitions: Collection[TopicPartition]) -> str:
    """Return the first few partitions as text."""
    few = ", ".join(str(partition) for partition in islice(partitions, MOST_NAMED))
    more = f" and {len(partitions) - MOST_NAMED} more" if len(partitions) > MOST_NAMED else ""
    return f"{few}{more}" or "no partitions"


def check_partition(partition: TopicPartition) -> None:
    """Raise if the argument isn't a valid partition."""
    if not partition.topic or partition.partition < 0:
        raise ConfigurationError(f"{partition!r} isn't a valid partition")
    check_topic(partition.topic)


class SubscriptionState:
    """All assigned partitions of one consumer."""

    def __init__(
        self, policy: str, retry: ExponentialBackoff, rng: Rng, first: str | None = None
    ) -> None:
        """Set `first`, the reset policy of a new partition, if that isn't `policy`."""
        self._policy = policy
        self._first = first or policy
        self._retry = retry
        self._rng = rng
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.changes = 0
        """Number of changes after which other partitions may have to be fetched."""
        self.pauses = 0
        """Number of pauses and resumes."""
        self.readable = Signal()
        """Notified of records, errors and changes of the subscription that concern the caller."""
        self._read: Selection = None
        """The partitions that the waiting callers read."""
        self._failed: dict[PartitionState, None] = {}
        """Partitions that may have an error, so that each poll needn't check all partitions."""
        self._suspended: dict[PartitionState, None] = {}
        self.in_hand: dict[PartitionState, None] = {}
        """Partitions of the records that the caller last received; used in its thread only."""
        self.hand_over = UndeliveredRecords()
        """Records on their way to the caller."""
        self.untold: dict[PartitionState, bool] = {}
        """Partitions whose topic was recreated since the caller last asked for records.

        The value tells whether the caller was notified, by an error or a listener, or has reset the
        position.
        """
        self._warned: dict[str, bytes] = {}
        """Topic id in the last warning that a topic was deleted and recreated, by topic."""
        self._dropped: dict[TopicPartition, PartitionState] = {}
        """Partitions that the group removed last; the caller may still commit their records."""

    def assign(
        self, partitions: Iterable[TopicPartition], until: Mapping[TopicPartition, Place]
    ) -> None:
        """Replace the assignment; partitions that remain keep their positions."""
        self.changes += 1
        wanted = dict.fromkeys(partitions)
        for partition in wanted:
            check_partition(partition)
        for partition in until:
            if partition not in wanted:
                raise ConfigurationError(f"until contains {partition}, which isn't assigned")
        old = self.partitions
        self.partitions = {}
        for partition in wanted:
            state = old.pop(partition, None)
            if state is None:
                state = self._new(partition)
            state.read_until(*until.get(partition, WITHOUT_END))
            self.partitions[partition] = state
        for gone in old.values():
            gone.move_to(None)  # makes buffered records and fetches of this state invalid

    def _new(self, partition: TopicPartition) -> PartitionState:
        made = PartitionState(partition, self._first, Backoff(self._retry, self._rng))
        made.read_by_callers(read=self._read is None or partition in self._read)
        return made

    # Calls of a group

    def touch(self) -> None:
        """Let the fetcher check all partitions again."""
        self.changes += 1

    def add(
        self, partitions: Iterable[TopicPartition], ids: Mapping[TopicPartition, bytes]
    ) -> None:
        """Add partitions to the assignment without touching the others.

        `ids`: the ids of their topics, if the group assigns topics by id (KIP-848).
        """
        self.changes += 1
        for partition in partitions:
            if partition not in self.partitions:
                state = self.partitions[partition] = self._new(partition)
                before = self._dropped.pop(partition, None)
                if before is not None:
                    state.succeed(before)
                    if before in self.untold:
                        self.untold[state] = self.untold[before]
                state.assigned_as(topic_id := ids.get(partition, NO_ID))
                self.identify(state, topic_id)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment without touching the others."""
        self.changes += 1
        dropped: dict[TopicPartition, PartitionState] = {}
        for partition in list(partitions):
            gone = self.partitions.pop(partition, None)
            if gone is not None:
                dropped[partition] = gone
                gone.move_to(None)
        self._dropped = dropped or self._dropped

    def withhold(self, state: PartitionState) -> None:
        """Return no more records of a partition, and keep its position for a commit."""
        self.changes += 1
        self._suspended.pop(state, None)
        state.withhold()

    def release(self, state: PartitionState) -> None:
        """Undo a `withhold`."""
        if self._suspended:  # `resume` releases the partition
            self._suspended[state] = None
            return
        state.release()
        self.changes += 1

    @property
    def suspended(self) -> bool:
        """Whether partitions are withheld by `suspend`."""
        return bool(self._suspended)

    def suspend(self) -> None:
        """Return no records until `resume`: the partitions may have other owners."""
        for state in self.partitions.values():
            if not state.revoked:
                self.withhold(state)
                self._suspended[state] = None

    def resume(self) -> None:
        """End `suspend`: all partitions continue except those that were withheld."""
        if self._suspended:
            suspended, self._suspended = self._suspended, {}
            for state in suspended:
                state.release()
            self.changes += 1

    def note_consumed(self, of: Selection = None) -> None:
        """Note that the caller has processed its records of these partitions.

        Records of a running or interrupted call aren't processed yet.
        """
        under_way, kept = self.hand_over, dict[PartitionState, None]()
        taken = under_way.taken
        if self.untold:
            others = [] if of is None else [s for s in self.untold if s.partition not in of]
            self.untold = {state: self.untold[state] for state in others}
        for state in self.in_hand:
            if of is not None and state.partition not in of:
                kept[state] = None
                continue
            if state in taken:
                kept[state] = None
                state.consume(*under_way.settled(state))
            else:
                state.consume(state.position, state.position_epoch)
        self.in_hand = kept

    def get(self, partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition."""
        found = self.partitions.get(partition)
        if found is None:
            raise IllegalStateError(
                f"{partition} isn't assigned to this consumer (assigned: {_names(self.partitions)})"
            )
        return found

    def announced(self, partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition, for a call that changes it.

        If the partition was lost and assigned again while the caller wasn't told, the call refers
        to the ownership that has ended (R-ID-1).
        """
        state = self.get(partition)
        if state.ownership.unknown:
            raise IllegalStateError(
                f"{partition} was lost or revoked and then assigned again since the last poll(). "
                "Call poll() first; to start at another offset, call seek() in on_assigned."
            )
        return state

    def known(self) -> list[TopicPartition]:
        """Return the assigned partitions except those for which `announced` raises."""
        states = list(self.partitions.values())
        return [state.partition for state in states if not state.ownership.unknown]

    def position(self, partition: TopicPartition) -> int | None:
        """Return the caller's position; records that a call hasn't returned yet don't count."""
        return self.hand_over.settled(self.get(partition))[0]

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of a partition's position, as far as the log's end is known."""
        return self._lag(self.get(partition))

    def _lag(self, state: PartitionState) -> int | None:
        position, end = self.hand_over.settled(state)[0], state.seen_end
        return None if position is None or end is None else max(0, end - position)

    def lags(self) -> dict[TopicPartition, int | None]:
        """Return the lag of all assigned partitions; any thread may call this."""
        states = list(self.partitions.values())
        return {state.partition: self._lag(state) for state in states}

    def at_end(self, partition: TopicPartition) -> bool:
        """Return whether a response since the last seek shows that the log was read to its end."""
        state = self.get(partition)
        return state.confirmed and self._lag(state) == 0

    def committed_lags(self) -> dict[TopicPartition, int]:
        """Return the lags of committed offsets, for partitions whose log end is known, too."""
        ends = {s.partition: (s.committed, s.seen_end) for s in list(self.partitions.values())}
        return {
            partition: max(0, end - committed.offset)
            for partition, (committed, end) in ends.items()
            if committed is not None and end is not None
        }

    def high_watermarks(self) -> dict[TopicPartition, int | None]:
        """Return the high watermarks of the last responses."""
        told = {s.partition: s.answered for s in list(self.partitions.values())}
        return {p: at[0] if at is not None and at[0] >= 0 else None for p, at in told.items()}

    def last_known(self, partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition that is assigned, or that the group removed last."""
        return self.partitions.get(partition) or self._dropped.get(partition)

    def holds(self, state: PartitionState) -> bool:
        """Return whether a state is still part of the assignment."""
        return self.partitions.get(state.partition) is state

    def seek(self, partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Seek to an offset; the next fetch shows whether it is in the log.

        `epoch`: the leader epoch of the record before it, if known. Without an epoch the offset is
        used with any log (KIP-320).
        """
        if not 0 <= offset < MAX_OFFSET:
            raise ConfigurationError(f"offset must be 0 or more, not {offset}")
        self.changes += 1
        state = self.announced(partition)
        state.seek(offset, epoch)
        self.hand_over.forget(state)  # an interrupted call mustn't undo the seek

    def check_seek(self, partition: TopicPartition, offset: int) -> None:
        """Raise for an offset of a deleted topic, if the caller doesn't know that it was recreated.

        Otherwise the new topic's records before this offset would be skipped (R-ID-3).
        """
        state = self.announced(partition)
        if offset and self.untold.get(state) is False and state.outdated(offset):
            raise TopicRecreatedError(
                partition,
                f"seek to offset {offset} of {partition}",
                topic_id_text(state.former_id),
                topic_id_text(state.topic_id),
                outcome="The position is unchanged. To go to this offset of the new topic, call "
                "poll() or seek_to_beginning() before seek().",
            )

    def note_told(self, state: PartitionState) -> None:
        """Note that the caller was notified that the topic was recreated, if it was."""
        if state in self.untold:
            self.untold[state] = True

    def request_reset(self, partitions: Iterable[TopicPartition] | None, policy: str) -> None:
        """Let the next poll or position() look up positions by this policy."""
        self.changes += 1
        chosen = list(self.partitions if partitions is None else partitions)
        for state in [self.announced(partition) for partition in chosen]:
            self.note_told(state)
            state.forget_losses()
            state.begin_reset(policy)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Stop or resume fetching and returning records; fetched ones are kept (KAFKA-7548)."""
        self.hold([self.announced(partition) for partition in partitions], paused=paused)

    def hold(self, states: Iterable[PartitionState], *, paused: bool) -> None:
        """Pause or resume partitions for the client itself, even if they aren't announced yet."""
        self.changes += 1
        self.pauses += 1
        for state in states:
            if self.holds(state):
                state.pause(paused=paused)

    def read(self, of: Selection) -> None:
        """Set the partitions that the waiting callers read.

        Records of other partitions are stored separately and take no buffer memory from these
        (R-HO-6).
        """
        if of == self._read:
            return
        self._read = of
        for state in self.partitions.values():
            state.read_by_callers(read=of is None or state.partition in of)
        self.changes += 1
        self.pauses += 1

    def policy_reset(self, state: PartitionState, policy: str | None = None) -> None:
        """Drop a position that is invalid or in doubt, so that a policy finds a new one."""
        self.changes += 1
        state.begin_reset(policy or self._policy)
        state.forget_committed()  # the committed offset isn't in the log

    def identify(self, state: PartitionState, topic_id: bytes) -> bool:
        """Note the id of a partition's topic; return False if it is another topic than before."""
        if state.identify(topic_id):
            return True
        self.untold[state] = False
        topic = state.partition.topic
        if self._warned.get(topic) != topic_id:  # warn once per topic
            self._warned[topic] = topic_id
            logger.warning(
                "topic %s was deleted and created again: its id is now %s, before it was %s",
                topic,
                topic_id_text(topic_id),
                topic_id_text(state.former_id),
            )
        return False

    def begin(self, state: PartitionState, topic_id: bytes) -> None:
        """Set the policy for the first position of a partition.

        A recreated topic is read from its beginning: the consumer has seen none of its records.
        """
        same = self.identify(state, topic_id) and state.reset != COMMITTED_OR_EARLIEST
        state.reset_by(self._policy if same or self._policy == NONE else EARLIEST)

    def topic_replaced(self, state: PartitionState) -> None:
        """Read a recreated topic from its beginning, even with the policy "latest".

        With the policy "none" the position remains, and the caller is notified.
        """
        self.untold[state] = False
        if self._policy != NONE:
            self.policy_reset(state, EARLIEST)

    def look_up_again(self, state: PartitionState, named_at: float) -> bool:
        """Look up the committed offset of a recreated topic again, if no leader accepted it yet.

        The offset was looked up by the topic's name, and no metadata that was requested afterwards
        (`named_at`: the last such request) had the deleted topic. So the offset may belong
        to the new topic, whose records another member has read (R-ID-3). Returns whether the offset
        is looked up; otherwise the consumer reads the new topic from its beginning.
        """
        since = state.looked_up_at
        if since is None or named_at >= since or self._policy == NONE:
            return False
        self.policy_reset(state, COMMITTED_OR_EARLIEST)
        return True

    def looked_up_again(self, state: PartitionState) -> bool:
        """Return whether the position is the result of `look_up_again`, and no leader accepted it.

        If the log doesn't contain it, it is the deleted topic's.
        """
        return state.reset == COMMITTED_OR_EARLIEST and state.looked_up_at is not None

    def lost_position(self, state: PartitionState, now: float) -> None:
        """Handle a position that the log doesn't contain.

        If the position is the result of `look_up_again`, it belongs to the deleted topic, so the
        new topic is read from its beginning. If a reset has found the position, the next reset has
        a backoff: otherwise two replicas that disagree would be asked in a loop.
        """
        before = state.losses
        self.policy_reset(state, EARLIEST if self.looked_up_again(state) else None)
        state.lost_again()
        if before:
            state.backoff.go_on(before - 1)
            state.backoff.failed(now)

    @property
    def policy(self) -> str:
        """`auto.offset.reset`."""
        return self._policy

    def fail(self, state: PartitionState, error: KafkaError, now: float) -> None:
        """Let the next poll raise an error, and wake the callers that wait.

        Then the partition is retried, with backoff.
        """
        self.changes += 1
        state.backoff.failed(now)
        state.fail(error)
        self._failed[state] = None
        self.readable.notify()

    def raise_pending(self, of: Selection = None) -> None:
        """Raise the first error that waits for a caller that reads these partitions."""
        if self._failed and (state := self.failed(of)) is not None:
            del self._failed[state]
            error = state.take_error()
            self.changes += 1
            if error is not None:
                self.note_told(state)
                raise error

    def failed(self, of: Selection = None) -> PartitionState | None:
        """Return the first of these partitions that has an error to raise."""
        if not self._failed:  # the usual case
            return None
        for state in list(self._failed):
            if state.error is None or not self.holds(state):
                del self._failed[state]  # a seek or a new assignment has cleared the error
            elif of is None or state.partition in of:
                return state
        return None

    def finished(self) -> bool:
        """Return whether partitions are assigned and all have reached their `until`.

        While nothing is assigned, a waiting reader continues with the next assignment.
        """
        return bool(self.partitions) and all(s.finished for s in self.partitions.values())
