"""Values and enumerations that confluent-kafka's calls take and give.

In: parts. Out: the same by name. Must not: say anything of a cluster; `admin` makes them.
"""

from __future__ import annotations

from enum import Enum

from odradek.compat.confluent_kafka.topic_partition import TopicPartition


class Node:
    """A broker: `id` (also as text), `host`, `port` and `rack`, which may be None."""

    def __init__(self, id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack

    def __str__(self) -> str:
        rack = f"(Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port} {rack}"


class ThrottleEvent:
    """A broker delayed a request, in seconds; nobody is told of it here (`throttle_cb`)."""

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        milliseconds = int(self.throttle_time * 1000)
        return f"{self.broker_name}/{self.broker_id} throttled for {milliseconds} ms"


class ConsumerGroupTopicPartitions:
    """A group and partitions of it, with offsets."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


class TopicCollection:
    """Topics by their names."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


class TopicPartitionInfo:
    """One partition of a topic, its leader (None for none), its replicas and those in sync."""

    def __init__(self, id: int, leader: Node | None, replicas: list[Node], isr: list[Node]) -> None:
        self.id = id
        self.leader = leader
        self.replicas = replicas
        self.isr = isr


class OrderedEnum(Enum):
    """Members are in the order of their numbers."""

    def __lt__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.value < other.value)


class ConsumerGroupState(OrderedEnum):
    """What a classic group is doing."""

    UNKNOWN = 0
    UNKOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(OrderedEnum):
    """By which protocol a group works."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class IsolationLevel(OrderedEnum):
    """Whether records of transactions that aren't committed count."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(OrderedEnum):
    """Which leader is chosen."""

    PREFERRED = 0
    UNCLEAN = 1
