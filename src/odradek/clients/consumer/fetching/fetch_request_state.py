"""Track the partitions that are requested from one leader, from one fetch to the next.

In: partitions that need a fetch, responses. Out: the content of the next request. Partitions whose
response brought nothing remain here, so that with thousands of them the cost of a fetch depends on
the changes, not on their number. Must not: move positions, or know the network.
"""

from __future__ import annotations

from odradek.clients.consumer.fetching.fetch_session import (
    TOPIC_IDS_FROM,
    FetchSession,
    Key,
    NoSession,
    Wanted,
)
from odradek.clients.consumer.partition_state import MAX_OFFSET, PartitionState
from odradek.common.sampled import Sampled
from odradek.common.types import Address
from odradek.metadata.cluster import Topic
from odradek.metadata.partitions import Partition

Name = tuple[str, int]
Part = tuple[PartitionState, int, int, Key, bytes]
"""State, its generation, the requested offset, the partition's key in requests, the topic's id.

The topic's id is known even if the key contains its name.
"""
SPARE_NAMES = 64
"""Number of topic names that may be kept beyond those of the requested partitions."""


class FetchRequestState(Sampled):
    """Partitions fetched from one leader; the state of each partition refers to this object.

    The samples are the response times, in seconds.
    """

    __slots__ = (
        "_changes", "_kept", "address", "aside", "changed", "doubted", "doubtful", "leaders_only",
        "names", "outdated", "parts", "sent_at", "session", "under_way", "version", "wanted",
    )  # fmt: skip

    def __init__(self, address: Address, *, aside: bool = False) -> None:
        super().__init__()
        self.address = address
        self.aside = aside
        """Whether this request is sent while the broker holds another fetch.

        Such a fetch is outside of the session, and the broker answers it at once.
        """
        self.session = NoSession() if aside else FetchSession()
        self.version = -1
        self.doubted: PartitionState | None = None
        """Partition that is requested alone, because a response was too large."""
        self.leaders_only = False
        """Whether the last request didn't ask for a preferred replica."""
        self.under_way = False
        """Whether a request is in flight."""
        self.sent_at = 0.0
        """Time at which the last request was sent."""
        self.outdated = False
        """Whether the metadata has changed since the request in flight was sent."""
        self.parts: dict[Name, Part] = {}
        self.wanted: dict[Key, Wanted] = {}
        self.names: dict[bytes, str] = {}
        self.changed = True
        """Whether `wanted` differs from the previous request."""
        self.doubtful: dict[Name, None] = {}
        """Partitions that failed before, or were moved to this broker.

        A response without data or errors for them ends their backoff, and means that their logs
        have no new records.
        """
        self._changes = -1
        self._kept: dict[PartitionState, None] = {}

    @property
    def nameless(self) -> bool:
        """Whether a partition has no topic id, so that all must be named by topic name."""
        return bool(self.parts) and 0 <= self.version < TOPIC_IDS_FROM

    def begin(self, version: int) -> None:
        """Use another version of Fetch, which may identify topics by id instead of name."""
        self.release_all()
        self.version = version
        self.names.clear()

    def add(self, state: PartitionState, topic: Topic, partition: Partition, most: int) -> None:
        """Request at most `most` bytes of a partition, from its fetch offset on."""
        offset = state.fetch_offset
        if offset is None:
            return
        by_id = self.version >= TOPIC_IDS_FROM
        if by_id:
            self.names[topic.topic_id] = topic.name
        key = (topic.topic_id if by_id else topic.name, partition.partition)
        name = (topic.name, partition.partition)
        self.wanted[key] = (partition.leader_epoch, offset, most)
        self.parts[name] = (state, state.generation, offset, key, topic.topic_id)
        self.changed = True
        self._kept.pop(state, None)
        state.asked_in(self)
        if len(self.names) > len(self.parts) + SPARE_NAMES:
            self._forget_names()
        if state.backoff.failures or state.missing_since is not None or not state.confirmed:
            self.doubtful[name] = None

    def _forget_names(self) -> None:
        """Drop names of topics that are no longer requested; responses about them are useless."""
        asked = {topic_id for *_, topic_id in self.parts.values()}
        self.names = {i: name for i, name in self.names.items() if i in asked}

    def keep(self, state: PartitionState) -> None:
        """Don't request a partition until `give_back`."""
        self._kept[state] = None
        state.asked_in(self)

    def give_back(self) -> bool:
        """Allow requests for the partitions of `keep` again; return whether there are any."""
        kept, self._kept = self._kept, {}
        waits = [state for state in kept if state.asked is self]
        for state in waits:
            state.asked_in(None)
        return bool(waits)

    def sent(self, now: float, *, leaders_only: bool) -> None:
        """Note that a request was sent."""
        self.under_way, self.sent_at, self.leaders_only = True, now, leaders_only
        self.changed = False

    def ended(self, now: float, *, answered: bool) -> None:
        """Note that the request has a response, or is lost."""
        self.under_way = False
        if not answered:
            return
        waited = now - self.sent_at  # inlined `record`
        if now >= self._until:
            self._turn(now)
        self._count += 1
        self._whole += waited
        if waited > self._largest:
            self._largest = waited

    def outdate(self) -> None:
        """Note that the metadata has changed since the request in flight was sent."""
        self.outdated = True

    def doubts(self, state: PartitionState | None) -> None:
        """Request only this partition, because a response was too large; None: all partitions."""
        self.doubted = state

    def least(self, usual: int) -> int:
        """Return the minimum number of bytes that brokers wait for.

        It is one if a partition is read up to a given end: the records before it exist already.
        """
        if usual > 1 and any(state.until != MAX_OFFSET for state, *_ in self.parts.values()):
            return 1
        return usual

    def forget_moved(self, changes: int) -> None:
        """Remove partitions whose request is useless after a seek, a pause or a new assignment."""
        if changes != self._changes:
            self._changes = changes
            for name, (state, generation, *_) in list(self.parts.items()):
                if state.asked is not self or state.generation != generation or state.paused:
                    self.release(name)

    def release(self, name: Name) -> tuple[PartitionState, int] | None:
        """Stop requesting a partition; return its state and the requested offset.

        Returns None if its response isn't waited for any more.
        """
        found = self.parts.pop(name, None)
        if found is None:
            return None
        state, generation, offset, key, _ = found
        self.wanted.pop(key, None)
        self.changed = True
        self.doubtful.pop(name, None)
        if state.asked is not self:
            return None
        state.asked_in(None)
        return (state, offset) if state.generation == generation else None

    def release_all(self) -> list[PartitionState]:
        """Stop requesting all partitions; return the states that still wait for a response."""
        found = [self.release(name) for name in list(self.parts)]
        self.outdated = False
        return [one[0] for one in found if one is not None]

    def without_news(self) -> list[PartitionState]:
        """Return and clear the `doubtful` partitions that the response doesn't contain."""
        if not self.doubtful:
            return []
        states = [self.parts[name][0] for name in self.doubtful]
        self.doubtful.clear()
        return states
