"""Values and enumerations that confluent-kafka's calls take and return.

In: values. Out: objects that have them as attributes. Must not: send requests; `admin` does.
"""

from __future__ import annotations

from enum import Enum

from odradek.compat.confluent_kafka.topic_partition import TopicPartition


class Node:
    """Broker: `id` (and `id_string`), `host`, `port` and `rack`, which may be None."""

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
    """Delay of a request by a broker, in seconds; Odradek never calls `throttle_cb` with it."""

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        milliseconds = int(self.throttle_time * 1000)
        return f"{self.broker_name}/{self.broker_id} throttled for {milliseconds} ms"


class ConsumerGroupTopicPartitions:
    """Group with some of its partitions and their offsets."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


class TopicCollection:
    """Names of topics, as `describe_topics()` takes them."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


class TopicPartitionInfo:
    """Partition of a topic: its leader (None for none), its replicas and its in-sync replicas."""

    def __init__(self, id: int, leader: Node | None, replicas: list[Node], isr: list[Node]) -> None:
        self.id = id
        self.leader = leader
        self.replicas = replicas
        self.isr = isr


class OrderedEnum(Enum):
    """Base class of enumerations whose members are ordered by their numbers."""

    def __lt__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.value < other.value)


class ConsumerGroupState(OrderedEnum):
    """State of a classic group."""

    UNKNOWN = 0
    UNKOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(OrderedEnum):
    """Type of a group: its protocol is classic or consumer (KIP-848)."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class IsolationLevel(OrderedEnum):
    """Whether records of uncommitted transactions are visible."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(OrderedEnum):
    """Which replicas may be elected: only the preferred one, or any live one."""

    PREFERRED = 0
    UNCLEAN = 1
