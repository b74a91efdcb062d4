"""Track which rows of a `send_arrow` or `send_many` failed, and why.

In: for each batch, the range that contains its rows, and each row's partition (noted by the
encoder, a window of rows at a time); the errors of batches. Out: for each row the number of its
error. A window is freed with the last batch that might fail for its rows: the memory is a few bytes
for each row in flight, and none for written rows.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

WINDOW = 1 << 14
"""Number of rows whose partitions are noted in one window."""
NO_ERROR = -1


class RowWindow:
    """The partitions of consecutive rows, from `first` on."""

    __slots__ = ("first", "places", "stop")

    def __init__(self, first: int, rows: int) -> None:
        count = min(rows, WINDOW)
        self.first = first
        self.stop = first + count
        """Index of the row after the last one."""
        self.places: memoryview[int] = memoryview(bytearray(4 * count)).cast("i")


class BatchRows(NamedTuple):
    """The rows of a batch: those of `partition` from index `start` up to `stop` (exclusive)."""

    partition: int
    start: int
    stop: int
    windows: tuple[RowWindow, ...]
    """Windows that contain these rows, in order."""
    skip: int = 0
    """Number of rows to skip at the beginning, because another part of a split batch has them."""
    count: int | None = None  # type: ignore[assignment]  # tuples have a method of this name
    """Maximum number of rows after the skipped ones; None: all."""

    def part(self, skip: int, count: int) -> BatchRows:
        """Skip `skip` of these rows and keep the next `count`; `found` looks them up later."""
        return self._replace(skip=self.skip + skip, count=count)

    def found(self) -> BatchRows:
        """Apply `skip` and `count`: return the rows with their own `start` and `stop`."""
        if self.count is None:
            return self
        own = [
            row
            for window in self.windows
            for row, place in enumerate(window.places, window.first)
            if place == self.partition and self.start <= row < self.stop
        ][self.skip : self.skip + self.count]
        return BatchRows(self.partition, own[0], own[-1] + 1, self.windows)


class RowErrors:
    """The errors of one call's rows."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        """The number of each error text."""
        self.errors: list[BaseException] = []
        """The first error with each text, by its number."""
        self._failed: list[tuple[BatchRows, int]] = []

    def add(self, rows: BatchRows, error: BaseException) -> None:
        """Note the rows of a failed batch."""
        text = f"{type(error).__name__}: {error}"
        number = self.texts.setdefault(text, len(self.texts))
        if number == len(self.errors):
            self.errors.append(error)
        self._failed.append((rows, number))

    def numbers(self, count: int) -> array[int]:
        """Return each row's error number in `texts`, or `NO_ERROR`."""
        numbers = array("i", [NO_ERROR]) * count
        by_window: dict[int, tuple[RowWindow, list[tuple[BatchRows, int]]]] = {}
        for failed, number in self._failed:
            rows = failed.found()
            for window in rows.windows:
                by_window.setdefault(window.first, (window, []))[1].append((rows, number))
        for window, within in by_window.values():
            _mark(numbers, window, within)
        return numbers


def _mark(numbers: array[int], window: RowWindow, failed: Iterable[tuple[BatchRows, int]]) -> None:
    """Set the error numbers of a window's rows, in one pass."""
    spans: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for rows, number in failed:
        spans[rows.partition].append((rows.start, rows.stop, number))
    for row, place in enumerate(window.places, window.first):
        for start, stop, number in spans.get(place, ()):
            if start <= row < stop:
                numbers[row] = number
                break
