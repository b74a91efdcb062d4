"""Offsets that are asked for, and answers about offsets, as confluent-kafka has them.

In: parts, or answers of ours. Out: its objects. Must not: ask.
"""

from __future__ import annotations

from typing import Any

import odradek


class OffsetSpec:
    """Which offset of a partition: `earliest()`, `latest()`, `max_timestamp()` or
    `for_timestamp(milliseconds)`. `OffsetSpec(-1)` and the like are the same.
    """

    def __init__(self, index: int) -> None:
        if index < 0 and index not in _WORDS:
            raise KeyError(index)
        self._value = index

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The first offset there is."""
        return cls(_EARLIEST)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The offset of the next record."""
        return cls(_LATEST)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The offset of the record with the latest time."""
        return cls(_MAX_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """The first record at or after a time in milliseconds since the epoch."""
        return cls(timestamp)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetSpec):
            return NotImplemented
        return self._value == other._value

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, OffsetSpec):
            return NotImplemented
        return self._value < other._value


_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_WORDS: dict[int, str | int] = {
    _LATEST: "LATEST",
    _EARLIEST: "EARLIEST",
    _MAX_TIMESTAMP: "MAX_TIMESTAMP",
}


def number_of(spec: OffsetSpec) -> int:
    """The offset that stands for it, or its time."""
    return spec._value


def our_spec(given: Any) -> str | int:
    """The same as our admin client takes it; raises `TypeError`."""
    if not isinstance(given, OffsetSpec):
        raise TypeError(f"Value must be a OffsetSpec, not {type(given).__name__}")
    return _WORDS.get(given._value, given._value)


class ListOffsetsResultInfo:
    """An offset, -1 where there is no such record, with the record's time, -1 for the ends."""

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


class DeletedRecords:
    """The first offset that is left."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark


def offset_found(found: odradek.OffsetListing) -> ListOffsetsResultInfo:
    """An answer of ours as theirs."""
    return ListOffsetsResultInfo(
        -1 if found.offset is None else found.offset,
        -1 if found.timestamp_ms is None else found.timestamp_ms,
        found.leader_epoch,
    )
