"""The one picture of the cluster: an immutable snapshot and a pure function that updates it.

In: a snapshot and a metadata answer. Out: the next snapshot. Must not: be changed in place, know
about connections, or hold a bootstrap address (R-MD-1: those are configuration).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from odradek.common.arguments import refusal
from odradek.common.types import Address, is_host
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Epochs = dict[str, dict[int, tuple[bytes, int]]]
"""The topic id and the leader epoch that were seen last, by topic and partition."""
NO_ID = bytes(16)
UNKNOWN_TOPIC = frozenset((3, 100))
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: the topic isn't there (any more)."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as the cluster advertises it."""

    id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `leader` is -1 while there is none; `error` is Kafka's code."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `topic_id` is 16 bytes, all zero where the broker has none.

    `leaderless` says how many partitions have no leader now.
    """

    name: str
    topic_id: bytes
    partitions: tuple[Partition, ...]
    internal: bool = False
    error: int = 0
    leaderless: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        without = sum(1 for p in self.partitions if p.leader < 0)
        object.__setattr__(self, "leaderless", without)

    @property
    def uuid(self) -> str:
        """The topic id as text."""
        return str(UUID(bytes=self.topic_id))


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot of the cluster; `updated_at` is the engine's time of the answer."""

    cluster_id: str | None = None
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controller: int = -1
    topics: Mapping[str, Topic] = field(default_factory=dict)
    updated_at: float = 0.0
    led: int = field(default=0, compare=False)
    """How many partitions have a leader, and how many haven't, as far as answers said. Counted
    while topics come and go, since a look at all of them for one new topic would cost as much."""
    leaderless: int = field(default=0, compare=False)
    _addresses: dict[Address, None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = (self.brokers[i].address for i in sorted(self.brokers))
        object.__setattr__(self, "_addresses", dict.fromkeys(ordered))

    def topic(self, name: str) -> Topic | None:
        """A topic that exists, by name."""
        return self.topics.get(name)

    def names_by_id(self, topics: Iterable[str]) -> dict[bytes, str]:
        """The topics by id; empty unless all ids are known."""
        names: dict[bytes, str] = {}
        for name in topics:
            topic = self.topics.get(name)
            if topic is None or topic.topic_id == NO_ID:
                return {}
            names[topic.topic_id] = name
        return names

    def partition(self, topic: str, partition: int) -> Partition | None:
        """One partition, if it is known."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        there = found.partitions[partition]
        return there if there.partition == partition else None  # an answer with holes

    def leader(self, topic: str, partition: int) -> Broker | None:
        """The broker that leads a partition, if both are known."""
        found = self.partition(topic, partition)
        return None if found is None else self.brokers.get(found.leader)

    def addresses(self) -> list[Address]:
        """The brokers' addresses, each once, in the order of their ids."""
        return list(self._addresses)

    def knows(self, address: Address) -> bool:
        """Whether it is the address of a broker."""
        return address in self._addresses


def is_possible(host: str, port: int) -> bool:
    """Whether anything can be dialled there; resolvers take a port of 70000 for another one."""
    return is_host(host) and 0 < port < 65536


def updated(
    old: Cluster | None,
    response: MetadataResponse,
    asked: Iterable[str] | None,
    epochs: Epochs,
    now: float,
    *,
    keep: Container[str] | None = None,
) -> Cluster:
    """The snapshot after an answer to a request for `asked` topics (None: all of them).

    Topics that weren't asked for are kept, or of them those in `keep`. A leader epoch never goes
    back (MD-17), also where there are no topic ids (until `lower_epochs` lets go of them); with
    another topic id it starts again (MD-16), and so does a topic without ids that was gone in
    between. `epochs` remembers the last epoch seen of each partition, outside the snapshot, so that
    it outlives a rebootstrap (R-RB-4).
    """
    brokers = {
        b.node_id: Broker(b.node_id, Address(b.host, b.port), b.rack) for b in response.brokers
    }
    topics = {} if asked is None or old is None else dict(old.topics)
    if keep is not None:
        for name in [n for n in topics if n not in keep]:
            del topics[name]
    answered = {item.name for item in response.topics if item.name is not None}
    for item in response.topics:
        if item.name is None:
            continue
        before = old.topics.get(item.name) if old is not None else None
        if item.error_code in UNKNOWN_TOPIC:
            topics.pop(item.name, None)
            known = epochs.get(item.name, {})
            if all(topic_id == NO_ID for topic_id, _ in known.values()):
                epochs.pop(item.name, None)  # by an id it would be known when it is made again
        elif item.error_code and before is not None:
            topics[item.name] = replace(before, error=item.error_code)
        elif not item.error_code:
            topics[item.name] = _topic(item, before, epochs.setdefault(item.name, {}))
    for name in set(asked or ()) - answered:
        topics.pop(name, None)
    cluster_id = getattr(response, "cluster_id", None)
    controller = getattr(response, "controller_id", -1)
    if keep is None and old is not None and asked is not None:  # only these can have changed
        led, leaderless = old.led, old.leaderless
        for name in answered.union(asked):
            for topic, sign in ((old.topics.get(name), -1), (topics.get(name), 1)):
                if topic is not None:
                    led += sign * (len(topic.partitions) - topic.leaderless)
                    leaderless += sign * topic.leaderless
    else:
        leaderless = sum(t.leaderless for t in topics.values())
        led = sum(len(t.partitions) for t in topics.values()) - leaderless
    return Cluster(cluster_id, brokers, controller, topics, now, led, leaderless)


def _topic(
    item: MetadataResponseTopic, before: Topic | None, epochs: dict[int, tuple[bytes, int]]
) -> Topic:
    partitions = []
    kept = {q.partition: q for q in before.partitions} if before is not None else {}
    for p in sorted(item.partitions, key=lambda p: p.partition_index):
        index = p.partition_index
        known_id, known_epoch = epochs.get(index, (NO_ID, -1))
        anew = known_id != item.topic_id and NO_ID not in (known_id, item.topic_id)
        if not anew and 0 <= p.leader_epoch < known_epoch:
            # After a rebootstrap there is nothing to keep: better no leader than a stale one.
            partitions.append(kept.get(index) or Partition(index, -1, known_epoch, error=5))
            continue
        if p.leader_epoch >= 0:
            topic_id = known_id if item.topic_id == NO_ID else item.topic_id
            epochs[index] = (topic_id, p.leader_epoch)
        partitions.append(_partition(p))
    return Topic(item.name or "", item.topic_id, tuple(partitions), item.is_internal)


def brings_progress(old: Cluster, new: Cluster, asked: Iterable[str]) -> bool:
    """Whether an answer says anything new of what was asked for; else it is an equivalent one.

    That is a new partition, a higher epoch or another topic id (B 1.3 of the rules, as in Java);
    without epochs another leader. Replicas in sync, racks and the like come and go while a client
    waits for a leader, and are no reason to ask ten times a second. Where no topic was asked for,
    it is about the brokers.
    """
    none = True
    for name in asked:
        none = False
        before, after = old.topics.get(name), new.topics.get(name)
        if after is None or after is before:
            if after is None and before is not None:
                return True  # the topic is gone
            continue
        if before is None or before.topic_id != after.topic_id:
            return True
        if len(before.partitions) != len(after.partitions):
            return True
        for p, q in zip(before.partitions, after.partitions, strict=True):
            if q.leader_epoch > p.leader_epoch or q.partition != p.partition:
                return True
            if q.leader_epoch < 0 and q.leader != p.leader:
                return True
    return none and (old.brokers != new.brokers or old.controller != new.controller)


def _partition(p: MetadataResponsePartition) -> Partition:
    return Partition(
        p.partition_index,
        p.leader_id if p.error_code == 0 or p.leader_id >= 0 else -1,
        p.leader_epoch,
        tuple(p.replica_nodes),
        tuple(p.isr_nodes),
        tuple(p.offline_replicas),
        p.error_code,
    )


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
    parts[partition] = replace(found, leader=leader, leader_epoch=epoch, error=0)
    topics = dict(cluster.topics)
    topics[topic] = replace(known, partitions=tuple(parts))
    gained = 1 if found.leader < 0 else 0
    led, leaderless = cluster.led + gained, cluster.leaderless - gained
    return replace(cluster, brokers=merged, topics=topics, led=led, leaderless=leaderless)


def to_hint(cluster: Cluster) -> dict[str, Any]:
    """A plain picture of the snapshot, for a client in another process to start from."""
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
    """What `to_hint` made, as a user hands it on; None for an empty one."""
    if hint is None or (isinstance(hint, Mapping) and not hint):
        return None
    try:
        from_hint(hint, 0.0)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise refusal(name, "what Consumer.bootstrap_hint() gives", hint) from None
    found: Mapping[str, Any] = hint
    return found


def from_hint(hint: Mapping[str, Any], now: float) -> Cluster:
    """The snapshot that `to_hint` made a picture of."""
    brokers = {i: Broker(i, Address(host, port)) for i, host, port in hint["brokers"]}
    topics = {
        name: Topic(
            name,
            bytes.fromhex(t["id"]),
            tuple(Partition(n, p[0], p[1]) for n, p in enumerate(t["partitions"])),
        )
        for name, t in hint["topics"].items()
    }
    return Cluster(hint["cluster_id"], brokers, -1, topics, now)
