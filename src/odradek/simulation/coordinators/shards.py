"""Find coordinators: an internal topic's partitions, their leaders, and the leaders' state.

In: a key (a group id, a transactional id) and the broker that received the request. Out: the key's
shard if that broker leads its partition now, or else the error that Kafka returns. A shard is the
leader's state in memory: it is stopped when the leadership moves, and the next leader recreates it
from the partition's entries, which takes a moment. Entries of a shard are replicated like records:
they may be lost until `write` has called back. Used for `__consumer_offsets` and
`__transaction_state`. Must not know the content of shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from odradek.common.errors import kafka as errors
from odradek.record import BatchBuilder, read_header
from odradek.simulation.logs.partition_log import StoredBatch
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition, SimulatedTopic
from odradek.simulation.world.environment import Environment
from odradek.simulation.world.virtual_time import Timer

GROUP, TRANSACTION = 0, 1
"""FindCoordinator's numbers for the types of keys."""
PAUSE_LOOK = 0.05
"""Interval in seconds at which due timers of a paused broker check whether it has resumed."""
ENTRY_LIMIT = 1 << 20

Key = tuple[Hashable, ...]
Entry = tuple[Key, Any]
"""A key with its new value, or None to delete it. Values aren't copied, so they must not change."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 units, as a signed 32-bit number."""
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return found - (1 << 32) if found & 0x80000000 else found


def partition_for(key: str, count: int) -> int:
    """Return the partition of an internal topic for a key: its absolute hash modulo the count.

    As in Kafka, the smallest 32-bit number counts as 0, because it has no absolute value in 32
    bits.
    """
    found = java_hash(key)
    return (0 if found == -(1 << 31) else abs(found)) % count


class CoordinatingBroker(Protocol):
    """A broker that is a coordinator, or that clients ask for a coordinator."""

    id: int
    alive: bool
    registered: bool

    @property
    def paused(self) -> bool:
        """Whether a signal has stopped the broker's process."""

    @property
    def reachable(self) -> bool:
        """Whether other brokers can reach this broker."""

    def known_leader(self, topic: str, index: int) -> int | None:
        """Return a partition's leader if this broker knows it as a registered broker, else None."""


class CoordinatedCluster(Protocol):
    """The part of a cluster that coordinators use."""

    name: str
    environment: Environment
    topics: dict[str, SimulatedTopic]
    hits: Counter[str]
    on_change: dict[Callable[[], None], None]

    @property
    def brokers(self) -> Mapping[int, CoordinatingBroker]:
        """The brokers by id."""

    def create_topic(self, name: str, partitions: int = 1) -> SimulatedTopic:
        """Create a topic."""

    def replicate(self, partition: SimulatedPartition, batch: StoredBatch) -> None:
        """Commit a batch a moment later, unless the batch's leader is lost by then."""

    def new_producer_id(self) -> int:
        """Return an unused producer id."""


class Shard(Protocol):
    """A coordinator's state in memory for one partition of an internal topic."""

    def replay(self, key: Key, value: Any) -> None:
        """Apply an entry that an earlier leader wrote; called in the order of the entries."""

    def loaded(self) -> None:
        """Resume the work of the last coordinator; called after all entries were replayed."""

    def stopped(self) -> None:
        """Respond to all waiting clients that this broker isn't the coordinator any more."""

    @staticmethod
    def fold(entries: Iterable[Entry]) -> dict[Key, Any]:
        """Return fewer entries, whose replay has the same result (as after compaction)."""


S = TypeVar("S", bound=Shard)


class ShardTimer:
    """An action that a shard has scheduled; the action is dropped if the shard is stopped."""

    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: Timer | None = None

    def plan(self, timer: Timer) -> None:
        """Set the timer that runs the action."""
        self._timer = timer

    def cancel(self) -> None:
        """Cancel the scheduled action."""
        if self._timer is not None:
            self._timer.cancel()


class Leadership(Generic[S]):
    """Services for one shard while its broker leads the partition in one leader epoch."""

    def __init__(self, topic: CoordinatorTopic[S], partition: SimulatedPartition) -> None:
        cluster = topic.cluster
        self.cluster = cluster
        self.broker = cluster.brokers[partition.leader]
        self.time = cluster.environment.time
        self.partition = partition
        self.epoch = partition.leader_epoch
        name = f"{cluster.name}/{topic.name}/{partition.index}/{self.epoch}"
        self.rng = cluster.environment.rng(name)
        self.topic = topic

    @property
    def held(self) -> bool:
        """Whether the broker is alive and still leads the partition."""
        return self.broker.alive and self.partition.leader_epoch == self.epoch

    def after(self, seconds: float, action: Callable[[], None]) -> ShardTimer:
        """Schedule an action; a broker that a signal has stopped runs it when it resumes."""
        handle = ShardTimer()

        def fire() -> None:
            if not self.held:
                return
            if self.broker.paused:
                handle.plan(self.time.after(PAUSE_LOOK, fire))
            else:
                action()

        handle.plan(self.time.after(seconds, fire))
        return handle

    def write(self, entries: Sequence[Entry], done: Callable[[bool], None]) -> None:
        """Append entries, and call `done` when their outcome is known.

        `done(True)`: all replicas have them. `done(False)`: the leadership was lost before, and the
        next leader may have the entries nevertheless.
        """
        builder = BatchBuilder(ENTRY_LIMIT, None)
        at = int(self.time.now * 1000)
        for key, value in entries:
            text = None if value is None else repr(value).encode()
            builder.append(repr(key).encode(), text, (), at)
        data = bytes(builder.build())
        batch = self.partition.log.append(data, read_header(memoryview(data)), self.epoch)
        self.topic.entries[self.partition.index, batch.base_offset] = tuple(entries)
        batch.when_settled(done)
        self.cluster.replicate(self.partition, batch)


class CoordinatorTopic(Generic[S]):
    """One internal topic of a cluster, with the shards of its partitions' leaders."""

    def __init__(
        self,
        cluster: CoordinatedCluster,
        name: str,
        make: Callable[[Leadership[S]], S],
        partitions: int = 50,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.partitions = partitions
        """Number of the topic's partitions; the first FindCoordinator creates the topic."""
        self.creation = 0.01
        """Seconds from the first FindCoordinator until the topic exists."""
        self.load_time = 0.05
        """Seconds for which a new leader returns COORDINATOR_LOAD_IN_PROGRESS."""
        self.entries: dict[tuple[int, int], tuple[Entry, ...]] = {}
        """Written entries by partition and offset; after a truncation, the newest at an offset."""
        self._make = make
        self._untold: dict[int, list[Callable[[S], None]]] = {}
        """Actions that wait until a shard is loaded, by partition."""
        self._leaderships: dict[int, tuple[Leadership[S], S | None]] = {}
        self._planned = False

    def index(self, key: str) -> int:
        """Return the index of a key's partition."""
        return partition_for(key, self.partitions)

    def create(self) -> None:
        """Create the internal topic unless it exists."""
        if self.name not in self.cluster.topics:
            topic = self.cluster.create_topic(self.name, self.partitions)
            self.cluster.on_change[self._follow] = None
            for partition in topic.partitions:  # there are no entries to load yet
                if partition.leader != NO_LEADER:
                    self._make_shard(Leadership(self, partition))

    def coordinator(self, key: str, asked: CoordinatingBroker) -> int:
        """Return the id of a key's coordinator according to the asked broker."""
        if self.name not in self.cluster.topics:
            if not self._planned:
                self._planned = True
                self.cluster.environment.time.after(self.creation, self.create)
            raise errors.CoordinatorNotAvailableError(f"{self.name} is being created")
        index = self.index(key)
        leader = asked.known_leader(self.name, index)
        if leader is None:
            raise errors.CoordinatorNotAvailableError(f"{self.name}-{index} has no leader")
        return leader

    def shard(self, broker: CoordinatingBroker, key: str) -> S:
        """Return the key's shard; raise if this broker doesn't lead it or hasn't loaded it."""
        return self.shard_at(broker, self.index(key))

    def shard_at(self, broker: CoordinatingBroker, index: int) -> S:
        """Return a partition's shard; raise if this broker doesn't lead it or hasn't loaded it."""
        found = self.cluster.topics.get(self.name)
        if found is None:
            raise errors.NotCoordinatorError(f"there is no {self.name}")
        leader = found.partitions[index].leader
        if leader != broker.id or not broker.registered:
            raise errors.NotCoordinatorError(f"{self.name}-{index} is led by {leader}")
        shard = self._leaderships[index][1]
        if shard is None:
            raise errors.CoordinatorLoadInProgressError(f"{self.name}-{index} is being read")
        return shard

    def loaded(self, index: int) -> S | None:
        """Return the shard of a partition; None while its leader loads the entries."""
        found = self._leaderships.get(index)
        return None if found is None else found[1]

    def shards(self) -> list[S]:
        """Return all loaded shards."""
        return [s for held, s in self._leaderships.values() if s is not None and held.held]

    def tell(self, action: Callable[[S], None]) -> None:
        """Run an action on each shard: at once if the shard is loaded, otherwise after loading."""
        for index in range(self.partitions if self.name in self.cluster.topics else 0):
            held, shard = self._leaderships.get(index, (None, None))
            if held is not None and held.held and shard is not None:
                action(shard)
            else:
                self._untold.setdefault(index, []).append(action)

    def compact(self, most: int) -> None:
        """Compact each partition that has more than `most` committed batches."""
        found = self.cluster.topics.get(self.name)
        for partition in found.partitions if found is not None else ():
            settled = [b.base_offset for b in partition.log.batches if b.committed]
            held, shard = self._leaderships.get(partition.index, (None, None))
            if len(settled) <= most or held is None or shard is None:
                continue
            taken = [self.entries.pop((partition.index, offset)) for offset in settled]
            folded = shard.fold(entry for entries in taken for entry in entries)
            self.entries[partition.index, settled[-1]] = tuple(folded.items())
            partition.log.drop_before(settled[-1])

    def _follow(self) -> None:
        """Stop the shards of former leaders, and load those of new leaders."""
        topic = self.cluster.topics.get(self.name)
        if topic is None:
            return
        for partition in topic.partitions:
            found = self._leaderships.get(partition.index)
            if found is not None and found[0].epoch == partition.leader_epoch:
                continue
            if found is not None:
                del self._leaderships[partition.index]
                if found[1] is not None:
                    found[1].stopped()
            if partition.leader != NO_LEADER:
                self._load(partition)

    def _load(self, partition: SimulatedPartition) -> None:
        leadership = Leadership(self, partition)
        self._leaderships[partition.index] = (leadership, None)

        def load() -> None:
            shard = self._make_shard(leadership)
            for batch in partition.log.batches:
                for key, value in self.entries[partition.index, batch.base_offset]:
                    shard.replay(key, value)
            shard.loaded()
            self.cluster.hits["coordinator moved and loaded its state"] += 1
            for action in self._untold.pop(partition.index, ()):
                action(shard)

        leadership.after(self.load_time, load)

    def _make_shard(self, leadership: Leadership[S]) -> S:
        shard = self._make(leadership)
        self._leaderships[leadership.partition.index] = (leadership, shard)
        return shard
