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
"""Assumed bytes per offset, until the first response shows the real size of records."""
LEAST_ASKED = 256 << 10
"""Minimum number of requested bytes: with fewer, a request costs more than its response."""
ASKED_MORE = 1.25
"""Factor for the requested bytes, as record sizes vary.

A second request costs more than extra records.
"""


Place = tuple[int, int]
"""An offset, and the leader epoch to validate it with (-1: unknown)."""


class OpenFetch(Protocol):
    """Interface of the fetch request that contains a partition."""

    def release(self, name: tuple[str, int]) -> object:
        """Stop requesting a partition."""


class ReadReplica(NamedTuple):
    """A preferred replica; valid until a time, and for one leader and its epoch."""

    id: int
    until: float
    leader: int
    leader_epoch: int


class PartitionState:
    """State of one assigned partition."""

    __slots__ = (
        "_said", "answered", "asked", "assigned_id", "backoff", "checked_under", "committed",
        "committed_since", "confirmed", "consumed", "consumed_epoch", "cut_short", "error",
        "fetch_epoch", "fetch_offset", "former_id", "generation", "hinted", "log_end",
        "looked_up_at", "losses", "max_bytes", "missing_since", "moves", "offset_bytes",
        "oversized", "ownership", "partition", "paused", "position", "position_epoch", "replaced",
        "replica", "reset", "resetting", "revoked", "seen_end", "served", "taken", "topic_id",
        "unread", "until", "until_epoch",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, reset: str, backoff: Backoff) -> None:
        self.partition = partition
        self.reset = reset
        """The reset policy, used while there is no position."""
        self.backoff = backoff
        self.ownership = Ownership()
        self.position: int | None = None
        """The offset that is returned next; None until a reset has found one."""
        self.position_epoch = -1  # leader epoch to validate the position with, if known
        self.consumed: int | None = None
        """Offset for auto-commit: the caller has processed all records before this offset."""
        self.consumed_epoch = -1
        self.committed: OffsetAndMetadata | None = None
        self.committed_since = math.inf
        """Time when `committed` was committed; inf if the group may have another offset."""
        self._said: list[tuple[OffsetAndMetadata, int | None]] = []
        """The caller's own commits. If an offset isn't between the last processed record and the
        position, it is stored with the position at the time of its commit, otherwise with None."""
        self.taken: int | None = None
        """Offset found by a reset, to be committed if the group has no offset yet (R-GR-6)."""
        self.revoked = False
        """Whether the partition is withheld, as during a revocation: not fetched, not returned."""
        self.log_end: int | None = None
        """The log's end, which a reset by duration looks up before the offset of the time."""
        self.seen_end: int | None = None
        """The log's end in the last fetch response; for read_committed, the last stable offset."""
        self.answered: tuple[int, int, float] | None = None
        """High watermark, last stable offset (-1: unknown) and time of the last fetch response."""
        self.until, self.until_epoch = MAX_OFFSET, -1
        """The offset at which reading ends, and the epoch of a leader whose log reached it."""
        self.paused = False
        self.unread = False
        """Whether callers only wait for other partitions; at most one response is buffered then."""
        self.fetch_offset: int | None = None
        """Offset to fetch next; None until the buffered records are returned."""
        self.fetch_epoch = -1
        """Leader epoch to validate `fetch_offset` with, -1 if unknown."""
        self.checked_under = -1
        """Epoch of the newest leader whose log is known to contain what was fetched (KIP-320)."""
        self.confirmed = False
        """Whether a leader has accepted a fetch since the last seek or reset."""
        self.looked_up_at: float | None = None
        """When the position was looked up by the topic's name; None once a leader accepted it."""
        self.generation = 0
        """Number of seeks and resets, by which outdated responses are recognized."""
        self.moves = 0
        """Number of seeks and resets that set another position."""
        self.asked: OpenFetch | None = None
        self.replica: ReadReplica | None = None
        """The replica from which the partition is fetched; None: from the leader."""
        self.resetting = self.hinted = False
        self.losses = 0
        """Number of resets in a row whose position wasn't in the log."""
        self.max_bytes: int | None = None
        """Size of the next request, if the next batch is larger than the usual limit."""
        self.cut_short = False
        """Whether the next batch was cut off although all of it was requested."""
        self.offset_bytes = GUESSED_BYTES
        """Bytes per offset in the last response."""
        self.oversized = False
        """Whether the partition is requested alone, because a response was too large."""
        self.served = 0
        """Serial number of the last response with data; the lowest is requested first."""
        self.topic_id = self.assigned_id = NO_ID
        """Ids of the topic to which the position belongs (R-ID-3), and of the assigned topic."""
        self.former_id, self.replaced = NO_ID, False  # see `begin_again`
        self.error: KafkaError | None = None
        """Error that the next poll raises."""
        self.missing_since: float | None = None

    def move_to(self, position: int | None, epoch: int = -1) -> None:
        """Set the position from outside; buffered records and fetches in flight become invalid."""
        self.generation += 1  # changed before the position, see `stay`
        self.looked_up_at = None
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
        """Fetch again from the position, as after `move_to`, without changing the position.

        An iteration in another thread moves the position without a lock, until it sees another
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

    def looked_up_by_name(self, now: float) -> None:
        """Note that the position is the group's committed offset for the topic's name."""
        self.looked_up_at = now

    def seek(self, offset: int, epoch: int) -> None:
        """Move the position to an offset that the caller passed."""
        self.losses = 0
        self.stay()  # ends an iteration in another thread, which might overwrite the epoch
        self.position_epoch = epoch
        self.move_to(offset, epoch)

    def read_until(self, end: int, epoch: int = -1) -> None:
        """Set the offset at which reading ends, and the epoch of a leader whose log reached it."""
        if (end, epoch) != (self.until, self.until_epoch):
            self.stay()  # drop buffered records, which were cut at the former end
            self.until, self.until_epoch = end, epoch

    def withhold(self) -> None:
        """Return no records until `release`."""
        if not self.revoked:
            self.revoked = True
            self.stay()  # also ends a loop over the partition's records

    def release(self) -> None:
        """Undo a `withhold`."""
        self.revoked = False

    def pause(self, *, paused: bool) -> None:
        """Stop or resume fetching and returning records."""
        self.paused = paused

    def fetched_well(self) -> None:
        """Note that a leader accepted the position."""
        self.confirmed, self.looked_up_at = True, None
        self.backoff.succeeded()
        self.hinted = False
        self.losses = 0

    def hint(self, now: float) -> None:
        """Note an error response that names a newer leader (KIP-951).

        The first one is retried at once, further ones in a row with a backoff (R-RT-1).
        """
        if self.hinted:
            self.backoff.failed(now)
        self.hinted = True

    # Fetching

    def fetched(
        self, next_offset: int | None, epoch: int | None, *, bytes_each: float, served: int
    ) -> None:
        """Note fetched batches up to `next_offset`; None if only decoding shows their end.

        `epoch`: the leader epoch of the last batch, if known.
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

        `committed`: reading ends at the last stable offset. `confirmed`: the response is for the
        present position, so the leader has accepted it.
        """
        self.missing_since = None
        log_end = last_stable if committed else high_watermark
        if log_end >= 0:
            self.seen_end = log_end
        self.answered = (high_watermark, last_stable, now)
        if confirmed:
            self.confirmed, self.looked_up_at = True, None

    def missed(self, now: float) -> float:
        """Note that the partition doesn't exist, and return since when."""
        if self.missing_since is None:
            self.missing_since = now
        return self.missing_since

    def identify(self, topic_id: bytes) -> bool:
        """Note the topic's id; return False if the topic was recreated (KIP-516).

        `NO_ID` is ignored: brokers may not know topic ids.
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

        A recreated topic may be assigned to another member. Unknown ids count as equal.
        """
        return self.assigned_id == NO_ID or topic_id in (self.assigned_id, NO_ID)

    def begin_again(self, former_id: bytes) -> None:
        """Start a new span of offsets, because the topic was recreated while the consumer read it.

        `former_id` is the deleted topic's id, of which the caller may still have records.
        """
        self.replaced, self.former_id = True, former_id
        self.ownership.begin_span()
        self.seen_end = self.answered = None
        self.forget_committed()

    def succeed(self, before: PartitionState) -> None:
        """Copy the topic's ids from the partition's state in an earlier assignment."""
        self.topic_id = before.topic_id
        self.replaced, self.former_id = before.replaced, before.former_id

    def outdated(self, offset: int) -> bool:
        """Return whether an offset can only belong to the deleted topic of the same name.

        An offset within the span of the new topic isn't outdated, whatever its origin: the caller
        has received the new topic's records before it.
        """
        return self.replaced and not self.ownership.span.covers(offset, self.position)

    def ask_whole(self, needed: int, *, again: bool) -> None:
        """Request `needed` bytes, because the next batch is larger than the usual limit.

        `again`: these bytes were requested before, but the batch was cut off.
        """
        self.max_bytes, self.cut_short, self.served = needed, again, 0
        self.oversized = self.oversized or again

    def ask_as_usual(self) -> None:
        """Request the usual size again, after `ask_whole`."""
        self.max_bytes, self.cut_short = None, False

    def doubt_size(self, oversized: bool) -> None:
        """Set whether a response may have been too large because of this partition."""
        self.oversized = oversized

    def fetch_from(self, offset: int | None, epoch: int | None = None) -> None:
        """Set the offset to fetch next (None: don't fetch) and the epoch to validate it with."""
        self.fetch_offset = offset
        if epoch is not None:
            self.fetch_epoch = epoch

    def asked_in(self, request: OpenFetch | None) -> None:
        """Set the request that contains this partition; None if there is none."""
        self.asked = request

    def read_from(self, replica: ReadReplica | None) -> None:
        """Fetch from this replica; None: from the leader."""
        self.replica = replica

    @property
    def known_epoch(self) -> int:
        """Newest known leader epoch; an older leader can't check the position or the end."""
        return max(self.fetch_epoch, self.until_epoch)

    def checked(self, leader_epoch: int) -> None:
        """Note that the log under this leader epoch contains what was fetched (KIP-320)."""
        self.checked_under = leader_epoch

    def read_by_callers(self, *, read: bool) -> None:
        """Set whether a waiting caller reads the partition."""
        self.unread = not read

    @property
    def held(self) -> bool:
        """Whether fetched records are stored apart, because the partition is paused or unread."""
        return self.paused or self.unread

    # Position

    def pass_over(self, position: int, epoch: int) -> None:
        """Move the position past returned rows; `epoch` validates it (KIP-320)."""
        self.position, self.position_epoch = position, epoch

    def put_back(self, position: int | None, epoch: int) -> None:
        """Restore the position, because the caller didn't receive the records."""
        self.position, self.position_epoch = position, epoch

    def looked_up(self, log_end: int | None = None) -> None:
        """Note the response to a reset's lookup; `log_end`: it was the lookup of the log's end."""
        self.resetting, self.log_end = False, log_end

    def look_up(self) -> None:
        """Note that a reset has started."""
        self.resetting = True

    def reset_by(self, policy: str) -> None:
        """Set the policy by which the next reset finds a position."""
        self.reset = policy

    def begin_reset(self, policy: str) -> None:
        """Drop the position, so that the policy finds another one."""
        self.move_to(None)
        self.reset = policy

    def lost_again(self) -> None:
        """Count a reset whose position isn't in the log."""
        self.losses += 1

    def forget_losses(self) -> None:
        """Set the count of `lost_again` to zero."""
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
        """Remember the offset that a reset found until it is committed."""
        self.taken = offset

    def commit_accepted(self, offset: OffsetAndMetadata, since: float) -> None:
        """Note the group's committed offset and the time of its commit."""
        self.committed, self.committed_since, self.taken = offset, since, None
        self._said = self._said[self._said_at(offset) or 0 :]

    def commit_in_doubt(self, offset: OffsetAndMetadata) -> None:
        """Note that the group may have this offset, but the response is missing.

        The known offset isn't committed again then, because that could replace a newer one.
        """
        if offset != self.committed:
            self.committed_since = math.inf

    def forget_committed(self) -> None:
        """Forget the committed offset, which is no longer valid."""
        self.committed, self.committed_since = None, math.inf

    def _said_at(self, offset: OffsetAndMetadata) -> int | None:
        return next((n for n, (own, _) in enumerate(self._said) if own is offset), None)

    def forget_reported_commit(self, offset: OffsetAndMetadata, *, refused: bool) -> None:
        """Forget a failed commit of the caller, whose error was reported.

        An offset that the group may have stored nevertheless (not `refused`) is kept if it is ahead
        of the processed records, so that auto-commit doesn't replace it by an older offset.
        """
        at = self._said_at(offset)
        if at is None:
            return
        if refused or (self.consumed is not None and offset.offset <= self.consumed):
            del self._said[at]
        else:
            del self._said[:at]

    def say(self, offset: OffsetAndMetadata) -> None:
        """Note an offset that the caller commits itself."""
        self.taken = None  # else committing it later would undo the caller's commit
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
        """Return the bytes to request, at most `most`, if the partition is only read up to an end.

        Otherwise a Spark task that needs a hundred records would get megabytes of later ones.
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
