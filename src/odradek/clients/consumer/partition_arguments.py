"""Check arguments that are partitions, offsets or times.

In: a TopicPartition, or a pair of topic and number, such as the TopicPartition of another client.
Out: a TopicPartition. Must not: know assignments, or whether the partition exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from reprlib import repr as brief
from typing import Any

from odradek.clients.consumer.partition_state import MAX_OFFSET, Place
from odradek.clients.consumer.records import OffsetAndMetadata, OffsetAndTimestamp
from odradek.clients.consumer.subscription_state import check_partition
from odradek.common.arguments import INT32_MAX, is_list, mapping, plain, timestamp, whole_number
from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.common.types import TopicPartition

_ENDS = "for the ends of the log, use seek_to_beginning() or seek_to_end()"


def one_partition(given: Any) -> TopicPartition:
    """Check an argument that is a partition, and return it as a TopicPartition."""
    pair = isinstance(given, tuple | list) and len(given) == 2
    try:
        if not pair or not isinstance(given[0], str) or isinstance(given[1], bool):
            raise TypeError
        found = TopicPartition(plain(given[0]), int(index(given[1])))
    except TypeError:
        raise ArgumentError(
            f"expected TopicPartition(topic, number) or a (topic, number) pair, not {brief(given)}"
        ) from None
    if found.partition > INT32_MAX:
        raise ConfigurationError(f"the partition number is too large in {brief(given)}")
    check_partition(found)
    return found


def some_partitions(given: Any) -> list[TopicPartition]:
    """Check an argument with several partitions, and return them as a list."""
    single = isinstance(given, TopicPartition)
    if single or isinstance(given, Mapping) or not is_list(given):
        cure = "; put it into a list" if single else ""
        if isinstance(given, Mapping):
            cure = "; put its keys into a list"
        if isinstance(given, str):
            cure = "; use [TopicPartition(topic, number)]"
        raise ArgumentError(f"expected a list of partitions, not {brief(given)}{cure}")
    return [one_partition(item) for item in given]


def these_partitions(given: tuple[Any, ...]) -> list[TopicPartition]:
    """Check partitions that are separate arguments or one list, and return them as a list."""
    found: list[TopicPartition] = []
    for item in given:
        pair = isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str)
        found += [one_partition(item)] if pair else some_partitions(item)
    return found


def some_or_all(given: Any) -> list[TopicPartition] | None:
    """Check an argument with several partitions; None means all assigned partitions."""
    return None if given is None else some_partitions(given)


def offset_number(name: str, given: Any) -> int:
    """Check an offset, of a record or of a log's end, and return it."""
    return whole_number(name, given, 0, MAX_OFFSET - 1, cure=_ENDS, beyond=_ENDS)


def place(name: str, given: Any) -> Place:
    """Check a position: an offset, or a result of `offsets_for_times` or `committed`."""
    if isinstance(given, OffsetAndMetadata | OffsetAndTimestamp):
        epoch = whole_number(f"leader_epoch at {name}", given.leader_epoch, -1, INT32_MAX)
        return offset_number(name, given.offset), epoch
    if given is None:
        raise ArgumentError(
            f"{name} is None, which means that no offset was found. Pass an offset; {_ENDS}"
        )
    return offset_number(name, given), -1


def places(given: Mapping[Any, Any]) -> dict[TopicPartition, Place]:
    """Check a mapping of partitions to positions, and return it as a dict."""
    return {(p := one_partition(tp)): place(f"the offset of {p}", v) for tp, v in given.items()}


def ends(given: Any) -> dict[TopicPartition, Place] | None:
    """Check `until` of `assign`: offsets by partition, maybe with a leader epoch."""
    if given is None:
        return None
    found: dict[TopicPartition, Place] = {}
    for tp, end in _by_partition("until", given, "offsets").items():
        p = one_partition(tp)
        if isinstance(end, OffsetAndMetadata):
            found[p] = place(f"until of {p}", end)
        else:
            found[p] = whole_number(f"until of {p}", end, 0, MAX_OFFSET), -1
    return found


def some_times(given: Any) -> dict[TopicPartition, int]:
    """Check the times of `offsets_for_times`: milliseconds since the epoch by partition."""
    return {
        (p := one_partition(tp)): timestamp(f"the time for {p}", time_ms)
        for tp, time_ms in _by_partition("times", given, "milliseconds").items()
    }


def _by_partition(name: str, given: Any, what: str) -> Mapping[Any, Any]:
    return mapping(name, given, f"a dict of {what} by TopicPartition")
