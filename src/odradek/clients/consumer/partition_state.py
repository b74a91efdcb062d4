"""Hold the state of one assigned partition: its position, and how far it was fetched.

In: moves by the caller, resets and fetch responses. Out: the position, the offset to fetch next,
the offset that auto-commit may commit. The position moves when records are returned to the caller,
by a seek or by a reset, and by nothing else (R-GR-1). `consumed` follows it: the records that were
returned before the caller last asked for more, so it has processed them. Must not: fetch, or know
other partitions.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from odradek.clients.consumer.ownership import Ownership
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.backoff import Backoff
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID

MAX_OFFSET = (1 << 63) - 1
GUESSED_BYTES = 1024.0
"""Assumed size of an offset's record in bytes, before the first response has shown it."""
LEAST_ASKED = 256 << 10
"""Minimum number of requested bytes: with fewer, a request costs more than its response."""
ASKED_MORE = 1.25
"""Factor for the requested bytes, as record sizes vary.

A second request costs more than extra records.
"""


Place = tuple[int, int]
"""An offset, and the leader epoch of the record before it (-1 if unknown)."""


class OpenFetch(Protocol):
    """The fetch of one leader that contains a partition."""

    def release(self, name: tuple[str, int]) -> object:
        """Stop requesting a partition."""


class ReadReplica(NamedTuple):
    """A replica that the leader of an epoch has named to read from, until a time."""

    id: int
    until: float
    leader: int
    leader_epoch: int


class PartitionState:
    """State of one assigned partition."""

    __slots__ = (
        "_said", "answered", "asked", "assigned_id", "backoff", "checked_under", "committed",
        "committed_since", "confirmed", "consumed", "consumed_epoch", "cut_short", "error",
        "fetch_epoch", "fetch_offset", "former_id", "generation", "hinted", "log_end", "losses",
        "max_bytes", "missing_since", "moves", "offset_bytes", "oversized", "ownership",
        "partition", "paused", "position", "position_epoch", "replaced", "replica", "reset",
        "resetting", "revoked", "seen_end", "served", "taken", "topic_id", "unread", "until",
        "until_epoch",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, reset: str, backoff: Backoff) -> None:
        self.partition = partition
        self.reset = reset
        """The reset policy, used while there is no position."""
        self.backoff = backoff
        self.ownership = Ownership()
        self.position: int | None = None
        """The offset that is returned next; None until a reset has found one."""
        self.position_epoch = -1  # leader epoch to validate it with, if known
        self.consumed: int | None = None
        """Offset for auto-commit: the caller has processed all records before it."""
        self.consumed_epoch = -1
        self.committed: OffsetAndMetadata | None = None
        self.committed_since = math.inf
        """The group's committed offset, if known, and the time of its commit (inf: in doubt)."""
        self._said: list[tuple[OffsetAndMetadata, int | None]] = []
        """The caller's own commits, each with the position then if outside of its records."""
        self.taken: int | None = None
        """Offset that a reset found, to be committed while no commit is known (R-GR-6)."""
        self.revoked = False
        """Whether it is being revoked: it isn't fetched, and no record of it is returned."""
        self.log_end: int | None = None
        """The log's end when a reset by duration began, before the time is looked up."""
        self.seen_end: int | None = None
        """The log's end in the last fetch response (read_committed: last stable offset)."""
        self.answered: tuple[int, int, float] | None = None
        """High watermark, last stable offset (-1: unknown) and time of the last fetch response."""
        self.until, self.until_epoch = MAX_OFFSET, -1
        """The first offset not wanted, and the epoch of a leader whose log had all before it."""
        self.paused = False
        self.unread = False
        """Whether waiting callers read other partitions: at most one response is buffered."""
        self.fetch_offset: int | None = None
        """Offset to fetch next; None: the position, once the buffered records are returned."""
        self.fetch_epoch = -1
        """Leader epoch of the record before it (-1 if unknown)."""
        self.checked_under = -1
        """The newest leader's `term` whose log is known to contain what was fetched (KIP-320)."""
        self.confirmed = False
        """Whether a leader has answered a fetch without an error since the last move."""
        self.generation = 0
        """Number of seeks and resets, by which outdated responses are recognized."""
        self.moves = 0
        """Number of moves to another position, except for returned records."""
        self.asked: OpenFetch | None = None
        self.replica: ReadReplica | None = None
        """The replica that is read instead of the leader."""
        self.resetting = self.hinted = False
        self.losses = 0
        """Number of times in a row that the log didn't contain the position found by a reset."""
        self.max_bytes: int | None = None
        """Size of a request while the next batch is larger than the usual limit."""
        self.cut_short = False
        """Whether all of that batch was requested, and less arrived."""
        self.offset_bytes = GUESSED_BYTES
        """Bytes per offset in the last response."""
        self.oversized = False
        """Whether a response may have been too large because of it: it is requested alone."""
        self.served = 0
        """Serial number of its last data; the partition that waits longest is requested first."""
        self.topic_id = self.assigned_id = NO_ID
        """Ids of the topic of the position and the span (R-ID-3), and of the assignment."""
        self.former_id, self.replaced = NO_ID, False  # see `begin_again`
        self.error: KafkaError | None = None
        """Error that the next poll raises."""
        self.missing_since: float | None = None

    def move_to(self, position: int | None, epoch: int = -1) -> None:
        """Set the position from outside; buffered records and fetches in flight become invalid."""
        self.generation += 1  # first, see `stay`
        self.ownership.span.moved(self.position, position)
        if position != self.position:
            self.moves += 1
            self.position_epoch = self.consumed_epoch = epoch
            self.consumed = position
            self._said, self.taken = [], None
            self.checked_under = -1
        self.position = position
        self.stay()

    def stay(self) -> None:
        """Fetch again from the position, as after `move_to`, without changing it.

        An iteration in another thread takes no lock: it moves the position until it sees another
        generation. So the generation changes before the position is read or written.
        """
        self.fetch_again()
        self.resetting = False
        self.log_end = None
        self.oversized = False
        self.error = None
        self.backoff.succeeded()

    def fetch_again(self) -> None:
        """Fetch again from the position; buffered records and fetches in flight become invalid."""
        self.generation += 1
        self.confirmed = False
        self.fetch_offset, self.fetch_epoch = self.position, self.position_epoch
        self.asked = None
        self.max_bytes, self.cut_short = None, False

    def seek(self, offset: int, epoch: int) -> None:
        """Move the position to an offset that the caller passed."""
        self.losses = 0
        self.stay()  # otherwise an iteration in another thread might set the epoch once more
        self.position_epoch = epoch
        self.move_to(offset, epoch)

    def read_until(self, end: int, epoch: int = -1) -> None:
        """Set another end, which was in the log of a leader of this epoch (-1: unknown)."""
        if (end, epoch) != (self.until, self.until_epoch):
            self.stay()  # buffered records were cut at another end
            self.until, self.until_epoch = end, epoch

    def withhold(self) -> None:
        """Return no records until `release`."""
        if not self.revoked:
            self.revoked = True
            self.stay()  # ends a loop over its records, too

    def release(self) -> None:
        """Undo a `withhold`."""
        self.revoked = False

    def pause(self, *, paused: bool) -> None:
        """Stop fetching and returning records, or continue."""
        self.paused = paused

    def fetched_well(self) -> None:
        """Note that a leader accepted the position."""
        self.confirmed = True
        self.backoff.succeeded()
        self.hinted = False
        self.losses = 0

    def hint(self, now: float) -> None:
        """Note an error that named a newer leader (KIP-951), which is asked at once.

        After such an error, the next one backs off: each response may name a newer leader (R-RT-1).
        """
        if self.hinted:
            self.backoff.failed(now)
        self.hinted = True

    # Fetching

    def fetched(
        self, next_offset: int | None, epoch: int | None, *, bytes_each: float, served: int
    ) -> None:
        """Note fetched batches up to `next_offset`; None if only decoding shows their end.

        `epoch`: the leader epoch of the last record, if known.
        """
        self.served, self.offset_bytes = served, bytes_each
        self.fetch_offset = next_offset
        if epoch is not None:
            self.fetch_epoch = epoch

    def there(self, log_end: int | None = None) -> None:
        """Note a leader's response, and the end of the log if the response has it."""
        self.missing_since = None
        if log_end is not None and log_end >= 0:
            self.seen_end = log_end

    def told_ends(
        self, high_watermark: int, last_stable: int, now: float, *, committed: bool, confirmed: bool
    ) -> None:
        """Note the end of the log, from a fetch response of a leader.

        It is valid even if the position has moved meanwhile: the broker doesn't repeat it until it
        changes (KIP-227). `committed`: the reader gets no further than the last stable offset.
        `confirmed`: the leader accepted the position.
        """
        self.missing_since = None
        log_end = last_stable if committed else high_watermark
        if log_end >= 0:
            self.seen_end = log_end
        self.answered = (high_watermark, last_stable, now)
        if confirmed:
            self.confirmed = True

    def missed(self, now: float) -> float:
        """Note that the partition doesn't exist, and return since when."""
        if self.missing_since is None:
            self.missing_since = now
        return self.missing_since

    def identify(self, topic_id: bytes) -> bool:
        """Note the id of its topic; return False if it is another topic than before (KIP-516).

        A missing id means nothing: the known one is kept.
        """
        before = self.topic_id
        if topic_id in (before, NO_ID):
            return True
        self.topic_id = topic_id
        if before == NO_ID:
            return True
        self.begin_again(before)
        return False

    def assigned_as(self, topic_id: bytes) -> None:
        """Note the id of the topic that the group has assigned."""
        self.assigned_id = topic_id

    def is_assigned(self, topic_id: bytes) -> bool:
        """Return whether the group has assigned the partition of the topic with this id.

        Another topic of the same name may be assigned to another member. A missing id is accepted.
        """
        return self.assigned_id == NO_ID or topic_id in (self.assigned_id, NO_ID)

    def begin_again(self, former_id: bytes) -> None:
        """Start a new span, because the topic was recreated while the consumer read it.

        The caller may still have records of the former topic, whose id is `NO_ID` if brokers have
        none.
        """
        self.replaced, self.former_id = True, former_id
        self.ownership.begin_span()
        self.seen_end = self.answered = None
        self.forget_committed()

    def succeed(self, before: PartitionState) -> None:
        """Copy the knowledge of the topic from the time when the partition was last assigned."""
        self.topic_id = before.topic_id
        self.replaced, self.former_id = before.replaced, before.former_id

    def outdated(self, offset: int) -> bool:
        """Return whether an offset can only belong to the deleted topic of the same name.

        Within the span of the new topic an old offset does no harm: all records before it were
        returned to the caller.
        """
        return self.replaced and not self.ownership.span.covers(offset, self.position)

    def ask_whole(self, needed: int, *, again: bool) -> None:
        """Request the next batch whole, as it is larger than the usual limit.

        `again`: all of it was requested once already.
        """
        self.max_bytes, self.cut_short, self.served = needed, again, 0
        self.oversized = self.oversized or again

    def ask_as_usual(self) -> None:
        """Request the usual size: the next batch arrived whole, or requesting it doesn't help."""
        self.max_bytes, self.cut_short = None, False

    def doubt_size(self, oversized: bool) -> None:
        """Set whether a response may have been too large because of this partition."""
        self.oversized = oversized

    def fetch_from(self, offset: int | None, epoch: int | None = None) -> None:
        """Set the next offset to fetch, None for nothing, and the epoch of the record before it."""
        self.fetch_offset = offset
        if epoch is not None:
            self.fetch_epoch = epoch

    def asked_in(self, request: OpenFetch | None) -> None:
        """Set the request that contains this partition; None if there is none."""
        self.asked = request

    def read_from(self, replica: ReadReplica | None) -> None:
        """Read this replica; None: the leader."""
        self.replica = replica

    @property
    def known_epoch(self) -> int:
        """Newest leader epoch of the position or of the end: an older leader can't judge either."""
        return max(self.fetch_epoch, self.until_epoch)

    def checked(self, leader_epoch: int) -> None:
        """Note that the log under this leader epoch contains what was fetched (KIP-320)."""
        self.checked_under = leader_epoch

    def read_by_callers(self, *, read: bool) -> None:
        """Set whether a waiting caller reads the partition."""
        self.unread = not read

    @property
    def held(self) -> bool:
        """Whether its fetched records are stored separately, as paused or unread ones are."""
        return self.paused or self.unread

    # Position

    def pass_over(self, position: int, epoch: int) -> None:
        """Move the position past returned rows; `epoch` validates it (KIP-320)."""
        self.position, self.position_epoch = position, epoch

    def put_back(self, position: int | None, epoch: int) -> None:
        """Restore the position, because the caller didn't receive the records."""
        self.position, self.position_epoch = position, epoch

    def looked_up(self, log_end: int | None = None) -> None:
        """Note a reset's response, which may have been a lookup of the log's end only."""
        self.resetting, self.log_end = False, log_end

    def look_up(self) -> None:
        """Note that a reset has started."""
        self.resetting = True

    def reset_by(self, policy: str) -> None:
        """Reset by this policy from now on."""
        self.reset = policy

    def begin_reset(self, policy: str) -> None:
        """Drop the position, so that the policy finds another one."""
        self.move_to(None)
        self.reset = policy

    def lost_again(self) -> None:
        """Count a reset's position that the log doesn't contain."""
        self.losses += 1

    def forget_losses(self) -> None:
        """Reset that count."""
        self.losses = 0

    def owned_as(self, ownership: Ownership) -> None:
        """Continue an ownership that a rebalance didn't end."""
        self.ownership = ownership

    def take_over(self, old: PartitionState) -> None:
        """Copy another engine's state, except for the position."""
        self.reset, self.paused = old.reset, old.paused

    def fail(self, error: KafkaError) -> None:
        """Let the next poll raise an error, unless another one waits already."""
        if self.error is None:
            self.error = error

    def take_error(self) -> KafkaError | None:
        """Return and clear the error, so that it is raised once."""
        error, self.error = self.error, None
        return error

    def consume(self, position: int | None, epoch: int) -> None:
        """Note that the caller has processed all records before a position."""
        self.consumed, self.consumed_epoch = position, epoch

    def take(self, offset: int) -> None:
        """Remember the offset that a reset found, until it is committed."""
        self.taken = offset

    def commit_accepted(self, offset: OffsetAndMetadata, since: float) -> None:
        """Note the time of the group's committed offset."""
        self.committed, self.committed_since, self.taken = offset, since, None
        self._said = self._said[self._said_at(offset) or 0 :]

    def commit_in_doubt(self, offset: OffsetAndMetadata) -> None:
        """Note that the group may have this offset, but the response is missing.

        The known offset isn't committed again then: it would replace a newer one.
        """
        if offset != self.committed:
            self.committed_since = math.inf

    def forget_committed(self) -> None:
        """Forget the committed offset, which is no longer valid."""
        self.committed, self.committed_since = None, math.inf

    def _said_at(self, offset: OffsetAndMetadata) -> int | None:
        return next((n for n, (own, _) in enumerate(self._said) if own is offset), None)

    def forget_reported_commit(self, offset: OffsetAndMetadata, *, refused: bool) -> None:
        """Remove the caller's own commit, which failed and was reported.

        If the group may have stored it nevertheless (not `refused`), it still prevents the client's
        own commits from going back, and replaces earlier ones.
        """
        at = self._said_at(offset)
        if at is None:
            return
        if refused or (self.consumed is not None and offset.offset <= self.consumed):
            del self._said[at]
        else:
            del self._said[:at]

    def say(self, offset: OffsetAndMetadata) -> None:
        """Note the caller's own commit."""
        self.taken = None  # else a retry of its commit could undo the caller's
        consumed, position = self.consumed, self.position
        if consumed is not None and position is not None:
            in_hand = consumed <= offset.offset <= position
            self._said.append((offset, None if in_hand else position))

    def due(self) -> OffsetAndMetadata | None:
        """Return the offset for auto-commit: after the last processed record, or the caller's own.

        An offset that the caller committed is used until the caller receives more records.
        """
        consumed, said = self.consumed, self._said[-1] if self._said else None
        if consumed is None or self.outdated(consumed):
            return None
        if said is not None:
            offset, at = said
            if at == self.position or (at is None and offset.offset > consumed):
                return offset
        return OffsetAndMetadata(consumed, leader_epoch=self.consumed_epoch)

    def worth_asking(self, most: int) -> int:
        """Return the bytes to request, at most `most`: with an end, what is probably before it.

        A Spark task may need a hundred records of a long log, and would get megabytes of others.
        """
        if self.fetch_offset is None or self.until == MAX_OFFSET:
            return most
        left = int((self.until - self.fetch_offset) * self.offset_bytes * ASKED_MORE)
        return min(most, max(LEAST_ASKED, left))

    @property
    def finished(self) -> bool:
        """Whether all wanted offsets were returned."""
        return self.position is not None and self.position >= self.until

    def wants_fetch(self) -> bool:
        """Return whether there is something to fetch, apart from a backoff."""
        return (
            self.fetch_offset is not None
            and self.asked is None
            and self.error is None
            and not self.paused
            and not self.revoked
            and self.fetch_offset < self.until
        )
