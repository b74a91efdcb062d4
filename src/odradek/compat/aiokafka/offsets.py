"""Offsets as aiokafka's calls take them.

In: what a program gives to `commit` or to a transaction. Out: this package's values, by partition.
Must not: know whether the partitions are assigned.
"""

from __future__ import annotations

from typing import Any

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.compat.aiokafka import structs


def offsets_by_partition(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read a dict of offsets, or pairs of an offset and a text, by `structs.TopicPartition`.

    Raises `ValueError` for what is no such dict or is empty, `TypeError` for another kind of key
    and for metadata that is no text.
    """
    if not given or not isinstance(given, dict):
        raise ValueError(f"offsets must be a dict that isn't empty, not {given!r}")
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
        raise ValueError(f"an offset must be a number or a pair, in {whole!r}") from error
    if not isinstance(metadata, str):
        raise TypeError(f"metadata must be a str, not {type(metadata).__name__}")
    return OffsetAndMetadata(offset, metadata)
