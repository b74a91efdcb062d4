"""Define the immutable snapshot of the cluster, and the function that updates it.

In: a snapshot and a metadata response. Out: the next snapshot. Must not: change a snapshot in
place, know about connections, or contain a bootstrap address, which is configuration (R-MD-1).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from odradek.common.arguments import refusal
from odradek.common.types import Address, is_host
from odradek.metadata.partitions import (
    Partition,
    Partitions,
    SeenEpochs,
    brings_news,
    made_of,
    no_epoch_is_lower,
)
from odradek.metadata.topic_map import TopicMap
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.protocol.packed_metadata import PackedPartitions

Epochs = dict[str, SeenEpochs | dict[int, tuple[bytes, int]]]
"""Type of the last seen topic ids and leader epochs, by topic and partition."""
NO_ID = bytes(16)
UNKNOWN_TOPIC = frozenset((3, 100))
"""UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID: the topic doesn't exist yet, or no longer."""


class Broker(NamedTuple):
    """A broker with its advertised address."""

    id: int
    address: Address
    rack: str | None = None


class Topic:
    """One topic; `topic_id` is 16 bytes, all zero if the broker has none.

    `count` is the number of partitions, `leaderless` the number of partitions without a leader.
    """

    __slots__ = ("count", "error", "internal", "leaderless", "name", "partitions", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: bytes,
        partitions: Sequence[Partition],
        internal: bool = False,
        error: int = 0,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.internal = internal
        self.error = error
        self.count = len(partitions)
        if isinstance(partitions, Partitions):
            self.leaderless = partitions.packed.leaderless
        else:
            self.leaderless = sum(1 for p in partitions if p.leader < 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topic):
            return NotImplemented
        ours = (self.name, self.topic_id, self.partitions, self.internal, self.error)
        return ours == (other.name, other.topic_id, other.partitions, other.internal, other.error)

    def refused(self, error: int) -> Topic:
        """Return this topic, in its last known state, with the error that a broker now returns."""
        return Topic(self.name, self.topic_id, self.partitions, self.internal, error)

    @property
    def uuid(self) -> str:
        """The topic id in the text form of a UUID."""
        from uuid import UUID  # most clients don't need this import

        return str(UUID(bytes=self.topic_id))


class Cluster:
    """A snapshot of the cluster; `updated_at` is the time of its response on the engine's clock."""

    __slots__ = (
        "_addresses", "asked", "brokers", "cluster_id", "controller", "leaderless", "led", "topics",
        "updated_at",
    )  # fmt: skip

    def __init__(
        self,
        cluster_id: str | None = None,
        brokers: Mapping[int, Broker] | None = None,
        controller: int = -1,
        topics: TopicMap[Topic] | None = None,
        updated_at: float = 0.0,
        led: int = 0,
        leaderless: int = 0,
    ) -> None:
        self.cluster_id = cluster_id
        self.brokers: Mapping[int, Broker] = {} if brokers is None else brokers
        self.controller = controller
        self.topics: TopicMap[Topic] = TopicMap({}) if topics is None else topics
        self.updated_at = updated_at
        self.led = led
        """Number of partitions with a leader; `leaderless` is the number of the other partitions.

        Both are updated as topics are added and removed, because counting all partitions again for
        one new topic would be slow.
        """
        self.leaderless = leaderless
        self._addresses = dict.fromkeys(self.brokers[i].address for i in sorted(self.brokers))
        self.asked: dict[str, Topic] = {}
        """Topics that were looked up, cached in a dict: `TopicMap.get` would be slow per record."""

    def with_id(self, cluster_id: str | None) -> Cluster:
        """Return a copy of the snapshot with this cluster id."""
        return Cluster(
            cluster_id,
            self.brokers,
            self.controller,
            self.topics,
            self.updated_at,
            self.led,
            self.leaderless,
        )

    def topic(self, name: str) -> Topic | None:
        """Return the topic of a name; None if it is unknown or doesn't exist."""
        found = self.asked.get(name)
        if found is None:
            found = self.topics.get(name)
            if found is not None:
                self.asked[name] = found
        return found

    def partition(self, topic: str, partition: int) -> Partition | None:
        """Return a partition; None if it is unknown."""
        found = self.asked.get(topic) or self.topic(topic)
        if found is None or not 0 <= partition < found.count:
            return None
        given = found.partitions
        # Faster than `given[partition]`, which calls a Python method.
        made = given.made if type(given) is Partitions else given
        there = None if made is None else made[partition]
        if there is None:
            there = given[partition]
        return there if there.partition == partition else None  # a response may omit partitions

    def leader(self, topic: str, partition: int) -> Broker | None:
        """Return the broker that leads a partition; None if partition or leader is unknown."""
        found = self.partition(topic, partition)
        return None if found is None else self.brokers.get(found.leader)

    def addresses(self) -> list[Address]:
        """Return the brokers' addresses without duplicates, ordered by broker id."""
        return list(self._addresses)

    def knows(self, address: Address) -> bool:
        """Return whether a broker of the snapshot has this address."""
        return address in self._addresses


class Ready:
    """Topics of a response that are already compared with the snapshot (`response_comparison`)."""

    __slots__ = ("before", "changed", "leaderless", "led", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.changed: dict[str, Topic | None] = {}
        """The topics that differ from the snapshot; the value is None for a topic to remove."""
        self.led = 0
        self.leaderless = 0
        self.before: tuple[int, int] = (0, 0)
        """Numbers of these topics' partitions with and without a leader in the old snapshot."""

    def add(self, topic: Topic, before: Topic | None) -> None:
        """Add a topic; `before` is its old state, and is the object `topic` if nothing changed."""
        self.topics[topic.name] = topic
        self.led += len(topic.partitions) - topic.leaderless
        self.leaderless += topic.leaderless
        if before is not None:
            led, leaderless = self.before
            led += len(before.partitions) - before.leaderless
            self.before = led, leaderless + before.leaderless
        if topic is not before:
            self.changed[topic.name] = topic


def is_possible(host: str, port: int) -> bool:
    """Return whether an address is valid; some resolvers silently truncate ports above 65535."""
    return is_host(host) and 0 < port < 65536


def updated(
    old: Cluster | None,
    response: MetadataResponse,
    asked: Iterable[str] | None,
    epochs: Epochs,
    now: float,
    *,
    keep: Container[str] | None = None,
    left: Iterable[MetadataResponseTopic] | None = None,
    ready: Ready | None = None,
) -> Cluster:
    """Return the snapshot after a response to a request for `asked` topics (None: all topics).

    Other topics are kept, or only the topics in `keep` if it is given. A leader epoch never
    decreases (MD-17), unless `LowerEpochs` accepts it for a topic without an id. If a topic's id
    changes, or if a topic without an id was missing from an earlier response, its old epochs are
    ignored (MD-16). The newest epochs are in `epochs`, outside the snapshot, so that they survive a
    rebootstrap (R-RB-4). `ready` contains the topics of the response that were compared already,
    `left` its other topics. Brokers with an invalid address are left out.
    """
    brokers: Mapping[int, Broker] = {
        b.node_id: Broker(b.node_id, Address(b.host, b.port), b.rack)
        for b in response.brokers
        if is_possible(b.host, b.port)
    }
    if old is not None and brokers == old.brokers:
        brokers = old.brokers
    changes: dict[str, Topic | None] = {}
    if asked is None or old is None:
        known: TopicMap[Topic] = TopicMap({})
    else:
        known = old.topics
        if keep is not None:
            changes = dict.fromkeys(n for n in known if n not in keep)
    before_all = TopicMap({}) if old is None else old.topics
    ready = Ready() if ready is None else ready
    for known_name in changes.keys() & ready.topics.keys():
        del changes[known_name]
    answered = set(ready.topics)
    for item in response.topics if left is None else left:
        name = item.name
        if name is None:
            continue
        answered.add(name)
        before = before_all.get(name)
        if item.error_code in UNKNOWN_TOPIC:
            changes[name] = None
            if all(topic_id == NO_ID for topic_id, _ in seen_epochs(epochs, name).values()):
                epochs.pop(name, None)  # with ids, a recreated topic would be detected
        elif item.error_code and before is not None:
            changes[name] = before.refused(item.error_code)
        elif not item.error_code:
            topic = topic_of(item, before, epochs)
            if topic is not before or known is not before_all:
                changes[name] = topic
            elif changes:
                changes.pop(name, None)
    for name in set(asked or ()) - answered:
        changes[name] = None
    led, leaderless = (0, 0) if old is None or asked is None else (old.led, old.leaderless)
    for name, topic_now in changes.items():  # update `led` and `leaderless`
        for topic_, sign in ((known.get(name), -1), (topic_now, 1)):
            if topic_ is not None:
                led += sign * (len(topic_.partitions) - topic_.leaderless)
                leaderless += sign * topic_.leaderless
    topics = known.changed(changes | (ready.changed if known is before_all else ready.topics))
    led += ready.led - (ready.before[0] if known is before_all else 0)
    leaderless += ready.leaderless - (ready.before[1] if known is before_all else 0)
    cluster_id = getattr(response, "cluster_id", None)
    controller = getattr(response, "controller_id", -1)
    return Cluster(cluster_id, brokers, controller, topics, now, led, leaderless)


def seen_epochs(epochs: Epochs, name: str) -> dict[int, tuple[bytes, int]]:
    """Return a topic's last known ids and leader epochs by partition; empty if none is known."""
    found = epochs.get(name)
    if isinstance(found, SeenEpochs):
        found = epochs[name] = found.by_partition()
    return found or {}


def known_id(epochs: Epochs, name: str) -> bytes:
    """Return the last known id of a topic, even if the snapshot lacks it; `NO_ID` if unknown."""
    found = epochs.get(name)
    if isinstance(found, SeenEpochs):
        return found.topic_id
    return next((i for i, _ in (found or {}).values() if i != NO_ID), NO_ID)


def topic_of(item: MetadataResponseTopic, before: Topic | None, epochs: Epochs) -> Topic:
    """Return the topic's state after a response; the object `before` if nothing changed."""
    given, name = item.partitions, item.name or ""
    if not isinstance(given, PackedPartitions) or not given.numbered:
        return _checked(item, before, epochs)
    packed = cast("PackedPartitions", given)
    seen = epochs.get(name)
    if seen and not no_epoch_is_lower(seen, item.topic_id, packed):
        return _checked(item, before, epochs)
    there = None if before is None else before.partitions
    if (
        before is not None
        and isinstance(there, Partitions)
        and there.packed.rows == packed.rows
        and (before.topic_id, before.internal, before.error) == (item.topic_id, item.is_internal, 0)
    ):
        packed = there.packed
    else:
        before = Topic(name, item.topic_id, Partitions(packed), item.is_internal)
    if not isinstance(seen, SeenEpochs) or seen.packed is not packed:
        epochs[name] = SeenEpochs(item.topic_id, packed)
    return before


def _checked(item: MetadataResponseTopic, before: Topic | None, epochs: Epochs) -> Topic:
    """Return the topic of a partly outdated response; keep each partition's newer state."""
    seen = seen_epochs(epochs, item.name or "")
    if item.topic_id != NO_ID:  # a deleted topic may have had more partitions
        seen = {n: known for n, known in seen.items() if known[0] in (NO_ID, item.topic_id)}
    epochs[item.name or ""] = seen
    partitions = []
    kept = {q.partition: q for q in before.partitions} if before is not None else {}
    for p in sorted(item.partitions, key=lambda p: p.partition_index):
        index = p.partition_index
        known_id, known_epoch = seen.get(index, (NO_ID, -1))
        anew = known_id != item.topic_id and NO_ID not in (known_id, item.topic_id)
        if not anew and 0 <= p.leader_epoch < known_epoch:
            # After a rebootstrap no newer leader is known; no leader is better than an outdated
            # one.
            partitions.append(kept.get(index) or Partition(index, -1, known_epoch, error=5))
            continue
        if p.leader_epoch >= 0:
            topic_id = known_id if item.topic_id == NO_ID else item.topic_id
            seen[index] = (topic_id, p.leader_epoch)
        partitions.append(made_of(p))
    return Topic(item.name or "", item.topic_id, tuple(partitions), item.is_internal)


def brings_progress(old: Cluster, new: Cluster, asked: Iterable[str]) -> bool:
    """Return whether a response has news about the requested topics.

    News are a new partition, a higher epoch, another topic id (rule B 1.3, as in Java) or, without
    epochs, another leader. Changes of replicas or racks don't count: they would cause ten requests
    per second while a client waits for a leader. If no topic was requested, the brokers are
    compared.
    """
    none = True
    for name in asked:
        none = False
        if old.topics is new.topics:
            break
        before, after = old.topics.get(name), new.topics.get(name)
        if after is None or after is before:
            if after is None and before is not None:
                return True  # the topic no longer exists
            continue
        if before is None or before.topic_id != after.topic_id:
            return True
        if brings_news(before.partitions, after.partitions):
            return True
    return none and (old.brokers != new.brokers or old.controller != new.controller)


def with_leader(
    cluster: Cluster, topic: str, partition: int, leader: int, epoch: int, brokers: Iterable[Broker]
) -> Cluster:
    """Apply a leader hint of a Produce or Fetch error without a refresh (KIP-951)."""
    found = cluster.partition(topic, partition)
    known = cluster.topics.get(topic)
    if found is None or known is None or epoch <= found.leader_epoch:
        return cluster
    merged = dict(cluster.brokers)
    for broker in brokers:
        if is_possible(*broker.address):
            merged[broker.id] = broker
    if leader not in merged:
        return cluster
    parts = list(known.partitions)
    parts[partition] = found._replace(leader=leader, leader_epoch=epoch, error=0)
    changed = Topic(known.name, known.topic_id, tuple(parts), known.internal, known.error)
    topics = cluster.topics.changed({topic: changed})
    gained = 1 if found.leader < 0 else 0
    led, leaderless = cluster.led + gained, cluster.leaderless - gained
    return Cluster(
        cluster.cluster_id,
        merged,
        cluster.controller,
        topics,
        cluster.updated_at,
        led,
        leaderless,
    )


def without_leaders(cluster: Cluster, stale: Mapping[str, Container[int]]) -> Cluster:
    """Return the snapshot with no leader for these partitions, whose leaders are outdated."""
    changes: dict[str, Topic | None] = {}
    led, leaderless = cluster.led, cluster.leaderless
    for name, numbers in stale.items():
        topic = cluster.topics[name]
        parts = [
            p._replace(leader=-1, error=5) if p.partition in numbers else p
            for p in topic.partitions
        ]
        made = Topic(topic.name, topic.topic_id, tuple(parts), topic.internal, topic.error)
        led -= made.leaderless - topic.leaderless
        leaderless += made.leaderless - topic.leaderless
        changes[name] = made
    topics = cluster.topics.changed(changes)
    return Cluster(
        cluster.cluster_id,
        cluster.brokers,
        cluster.controller,
        topics,
        cluster.updated_at,
        led,
        leaderless,
    )


def to_hint(cluster: Cluster) -> dict[str, Any]:
    """Convert the snapshot to plain data, from which a client in another process can start."""
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [[b.id, b.address.host, b.address.port] for b in cluster.brokers.values()],
        "topics": {
            t.name: {
                "id": t.topic_id.hex(),
                "partitions": [[p.leader, p.leader_epoch] for p in t.partitions],
            }
            for t in cluster.topics.values()
        },
    }


def checked_hint(name: str, hint: Any) -> Mapping[str, Any] | None:
    """Validate a user's `bootstrap_hint` (result of `to_hint`); return None if it is empty."""
    if hint is None or (isinstance(hint, Mapping) and not hint):
        return None
    try:
        from_hint(hint, 0.0)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise refusal(name, "the result of Consumer.bootstrap_hint()", hint) from None
    found: Mapping[str, Any] = hint
    return found


def from_hint(hint: Mapping[str, Any], now: float) -> Cluster:
    """Create a snapshot from the plain data that `to_hint` returned."""
    brokers = {i: Broker(i, Address(host, port)) for i, host, port in hint["brokers"]}
    topics = {
        name: Topic(
            name,
            bytes.fromhex(t["id"]),
            tuple(Partition(n, p[0], p[1]) for n, p in enumerate(t["partitions"])),
        )
        for name, t in hint["topics"].items()
    }
    leaderless = sum(t.leaderless for t in topics.values())
    led = sum(len(t.partitions) for t in topics.values()) - leaderless
    return Cluster(hint["cluster_id"], brokers, -1, TopicMap(topics), now, led, leaderless)
