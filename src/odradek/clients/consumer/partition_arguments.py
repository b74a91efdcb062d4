"""What a caller may give as a partition, or as several.

In: a TopicPartition, or a pair of topic and number, such as other clients' TopicPartition is.
Out: ours. Must not: know what is assigned, or whether the partition exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek.common.errors import ConfigurationError
from odradek.common.types import TopicPartition


def one_partition(given: Any) -> TopicPartition:
    """Read one."""
    pair = isinstance(given, tuple | list) and len(given) == 2
    if not pair or not isinstance(given[0], str) or type(given[1]) is not int:
        raise ConfigurationError(
            f"{given!r} is no partition: give TopicPartition(topic, number), or such a pair"
        )
    return given if isinstance(given, TopicPartition) else TopicPartition(*given)


def some_partitions(given: Any) -> list[TopicPartition]:
    """Read several."""
    if isinstance(given, TopicPartition | str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{given!r} is no list of partitions")
    return [one_partition(item) for item in given]


def some_or_all(given: Any) -> list[TopicPartition] | None:
    """Read several; None stands for all that are assigned."""
    return None if given is None else some_partitions(given)
