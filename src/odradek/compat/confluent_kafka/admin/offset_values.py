"""confluent-kafka's offset requests and results.

In: values, or Odradek's results. Out: confluent-kafka's objects. Must not: send requests.
"""

from __future__ import annotations

from typing import Any

import odradek


class OffsetSpec:
    """Specification of an offset: `earliest()`, `latest()`, `max_timestamp()`, `for_timestamp(ms)`.

    Kafka's numbers work, too: `OffsetSpec(-1)` is `latest()`.
    """

    def __init__(self, index: int) -> None:
        if index < 0 and index not in _WORDS:
            raise KeyError(index)
        self._value = index

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Return the specification of the first offset."""
        return cls(_EARLIEST)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Return the specification of the next record's offset."""
        return cls(_LATEST)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Return the specification of the record with the largest timestamp."""
        return cls(_MAX_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Return the specification of the first record at or after a time (ms since the epoch)."""
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
    """Return the number for the specification: negative for a keyword, or the timestamp."""
    return spec._value


def our_spec(given: Any) -> str | int:
    """Convert a specification for Odradek's admin client; raises `TypeError`."""
    if not isinstance(given, OffsetSpec):
        raise TypeError(f"Value must be a OffsetSpec, not {type(given).__name__}")
    return _WORDS.get(given._value, given._value)


class ListOffsetsResultInfo:
    """Offset and timestamp of a record; both -1 without a match. Log ends have no timestamp."""

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


class DeletedRecords:
    """Result of `delete_records()`: the first remaining offset of a partition."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark


def offset_found(found: odradek.admin.OffsetListing) -> ListOffsetsResultInfo:
    """Convert Odradek's result to confluent-kafka's."""
    return ListOffsetsResultInfo(
        -1 if found.offset is None else found.offset,
        -1 if found.timestamp_ms is None else found.timestamp_ms,
        found.leader_epoch,
    )
