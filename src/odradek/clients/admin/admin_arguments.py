"""Check arguments of admin calls: topics to create, and names of topics.

In: arguments of a call. Out: `NewTopic`s and names that can be encoded. Must not: know what a
cluster allows; brokers report that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from odradek.clients.consumer.partition_arguments import one_partition
from odradek.common.arguments import (
    INT32_MAX,
    iterable,
    mapping,
    names,
    partition_number,
    refusal,
    text,
    topic_name,
    whole_number,
)
from odradek.common.errors import ConfigurationError
from odradek.common.topic_names import check_sendable
from odradek.common.types import TopicPartition

T = TypeVar("T")

INT16_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    A `num_partitions` or `replication_factor` of -1 selects the broker's default. `configs` uses
    Kafka's option names. `replica_assignment` maps each partition to the ids of its brokers, and
    replaces both numbers.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    replica_assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of a topic's partitions.

    Brokers place the new partitions, unless `replica_assignment` lists the brokers of each new one,
    in order.
    """

    total: int
    replica_assignment: Sequence[Sequence[int]] = ()


def new_topics(given: Any) -> list[NewTopic]:
    """Check the argument of `create_topics`, and return the topics as a list."""
    if isinstance(given, NewTopic):
        raise refusal("topics", "a list of NewTopic", given, "put it into a list")
    found = [
        _new_topic(position, topic)
        for position, topic in enumerate(iterable("topics", given, "a list of NewTopic"))
    ]
    made = [topic.name for topic in found]
    if len(set(made)) < len(made):
        raise ConfigurationError(f"topics contains a name twice: {', '.join(made)}")
    return found


def topic_names(name: str, given: Any) -> list[str]:
    """Check topic names, and return them as a list; a str is one name."""
    found = names(name, given)
    for topic in found:
        check_sendable(topic)
    return found


def topics_by_name_or_id(name: str, given: Any) -> list[str | UUID]:
    """Check topic names or ids, and return them; a str is one name, a `uuid.UUID` one id."""
    if isinstance(given, UUID):
        return [given]
    if isinstance(given, str):
        return [*topic_names(name, given)]
    found: list[str | UUID] = []
    for position, item in enumerate(iterable(name, given, "a list of topic names or ids")):
        if not isinstance(item, UUID):
            item = topic_name(f"{name}[{position}]", item)
            check_sendable(item)
        found.append(item)
    return list(dict.fromkeys(found))


def new_partitions(given: Any) -> dict[str, NewPartitions]:
    """Check the argument of `create_partitions`, and return it by topic."""
    wanted = mapping("topics", given, "a dict of numbers of partitions by topic")
    found = {}
    for name, more in wanted.items():
        check_sendable(topic_name("a name in topics", name))
        if not isinstance(more, NewPartitions):
            more = NewPartitions(whole_number(f"partitions of topic {name!r}", more, 1, INT32_MAX))
        of = f"partitions of topic {name!r}"
        found[name] = NewPartitions(
            whole_number(of, more.total, 1, INT32_MAX),
            [brokers(of, replicas) for replicas in more.replica_assignment],
        )
    return found


def brokers(of: str, given: Any) -> list[int]:
    """Check broker ids, and return them as a list."""
    found = iterable(f"brokers of {of}", given, "a list of broker ids")
    return [whole_number(f"a broker of {of}", b, 0, INT32_MAX) for b in found]


def offsets_by_partition(name: str, given: Any, low: int = 0) -> dict[TopicPartition, int]:
    """Check offsets by partition, and return them as a dict."""
    return {
        (p := one_partition(tp)): whole_number(f"the offset of {p}", offset, low)
        for tp, offset in mapping(name, given, "a dict of offsets by TopicPartition").items()
    }


def keys(name: str, given: Any, what: str) -> list[str]:
    """Check names, and return them without duplicates; a str is one name."""
    found = dict.fromkeys(names(name, given, what))
    return [text(f"{name}[{i}]", item) for i, item in enumerate(found)]


def some_of(name: str, given: Any, kind: type[T] | tuple[type[T], ...], cure: str) -> list[T]:
    """Check that all objects have one of these types; return them without duplicates."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    one = " or ".join(k.__name__ for k in kinds)
    wanted = f"a list of {one}"
    if isinstance(given, kind):
        raise refusal(name, wanted, given, "put it into a list")
    found = iterable(name, given, wanted)
    for position, item in enumerate(found):
        if not isinstance(item, kind):
            raise refusal(f"{name}[{position}]", f"one {one}", item, cure)
    return list(dict.fromkeys(found))


def _new_topic(position: int, given: Any) -> NewTopic:
    place = f"topics[{position}]"
    if not isinstance(given, NewTopic):
        cure = "use NewTopic(name, num_partitions, replication_factor)"
        raise refusal(place, "a NewTopic", given, cure)
    name = topic_name(f"{place}.name", given.name)
    check_sendable(name)
    of = f"topic {name!r}"
    configs = mapping(f"configs of {of}", given.configs, "a dict of settings")
    return NewTopic(
        name,
        _or_default(f"num_partitions of {of}", given.num_partitions, INT32_MAX),
        _or_default(f"replication_factor of {of}", given.replication_factor, INT16_MAX),
        {text(f"a setting's name of {of}", k): setting(k, of, v) for k, v in configs.items()},
        _assignment(of, given),
    )


def _assignment(of: str, given: NewTopic) -> dict[int, list[int]]:
    assigned = mapping(f"replica_assignment of {of}", given.replica_assignment, "a dict")
    if assigned and (given.num_partitions, given.replication_factor) != (-1, -1):
        raise ConfigurationError(
            f"{of}: replica_assignment already determines the partitions and replicas: remove "
            "num_partitions and replication_factor"
        )
    return {
        partition_number(f"a partition of {of}", p): brokers(of, ids) for p, ids in assigned.items()
    }


def _or_default(name: str, value: Any, most: int) -> int:
    """Check a number for which -1 means the broker's default; brokers refuse 0 and less."""
    return whole_number(name, value, -INT16_MAX, most)


def setting(key: Any, of: str, value: Any) -> str:
    """Return a config value as text: numbers and booleans as Kafka reads them."""
    name = f"{key} of {of}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return text(name, value)
    if hasattr(value, "__index__"):
        return str(whole_number(name, value, -(2**63)))
    raise refusal(name, "a str or a number", value)
