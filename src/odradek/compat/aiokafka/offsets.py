"""Conversion of the offsets that programs pass to aiokafka's calls.

In: arguments of `commit` or of a transaction. Out: Odradek's values, by partition. Must not:
check whether the partitions are assigned.
"""

from __future__ import annotations

from typing import Any

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.compat.aiokafka import structs


def offsets_by_partition(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert a dict from `structs.TopicPartition` to an offset, or to an (offset, metadata) pair.

    Raises `ValueError` for another type, an empty dict or an invalid offset, and `TypeError` for
    another type of key or metadata.
    """
    if not given or not isinstance(given, dict):
        raise ValueError(f"offsets must be a non-empty dict, not {given!r}")
    return {_partition(key): _offset(value, given) for key, value in given.items()}


def _partition(given: Any) -> TopicPartition:
    if not isinstance(given, structs.TopicPartition):
        raise TypeError(f"a partition must be a TopicPartition, not {type(given).__name__}")
    return TopicPartition(*given)


def _offset(given: Any, whole: object) -> OffsetAndMetadata:
    if isinstance(given, int):
        return OffsetAndMetadata(given)
    try:
        offset, metadata = given
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"an offset must be an int or an (offset, metadata) pair, in {whole!r}"
        ) from error
    if not isinstance(metadata, str):
        raise TypeError(f"metadata must be a str, not {type(metadata).__name__}")
    return OffsetAndMetadata(offset, metadata)
