"""Further native functions beside the decoder: surveys, entries and rows of columns.

In: a record set and, where it can be decoded, its columns; some of both with invalid values. Each
function must return what its Python version does, or refuse what reaches beyond a buffer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import Any

from tests.fuzz.sent import exact

from odradek.clients.consumer.records import ConsumerRecord
from odradek.record import rows, survey
from odradek.record.columns import BinaryColumn, DecodedRecords, RawHeaderColumn, RecordColumns

_MASK = (1 << 64) - 1
_LIES = (-1, 1, 3, 300, (1 << 31) - 1, -(1 << 31), 100_000)
_FAR = (-1, 1, 2, 8, (1 << 63) - 1, -(1 << 63), 1 << 40, (1 << 62))


class Unread(ConsumerRecord):
    """A row with more headers than are read at once."""

    __slots__ = ()


def text_hash(text: bytes) -> int:
    """Compute the hash of a text that `odradek.spark.sink.row_digest` stores in clusters."""

    def mixed(word: int) -> int:
        word ^= word >> 32
        word = word * 0xD6E8FEB86659FD93 & _MASK
        return word ^ word >> 29

    total = len(text) * 0x9E3779B97F4A7C15
    padded = text + bytes(8 - len(text) % 8)
    for place in range(1, len(padded) // 8 + 1):
        word = int.from_bytes(padded[8 * place - 8 : 8 * place], "little")
        total += mixed(word + place * 0xC2B2AE3D27D4EB4F & _MASK)
    return mixed(total & _MASK)


class Services:
    """Call the functions with the case's arguments, and with invalid ones."""

    def __init__(self, kernel: Any, chance: Callable[[], float]) -> None:
        self._kernel = kernel
        self._chance = chance

    def _pick(self, count: int) -> int:
        return int(self._chance() * count)

    def look(self, view: Any, offset: int) -> None:
        """Compare the native survey of a record set, which may be truncated, with Python's."""
        found = self._kernel.survey_batches(view, offset)
        expected = survey.survey_batches(memoryview(bytes(view)), offset)
        assert found == expected, ("survey", found, expected)

    def read(self, found: DecodedRecords) -> None:
        """Read entries and rows out of the columns, and out of changed columns."""
        columns = found.columns
        for column in (columns.values, columns.keys):
            if isinstance(column, BinaryColumn):
                self._entries(column, columns.count)
        if isinstance(columns.headers, RawHeaderColumn):
            self._headers(columns.headers, columns.count)
        self._rows(columns)

    def _headers(self, column: RawHeaderColumn, count: int) -> None:
        """Read raw headers out of columns, unchanged and with invalid values."""
        ends, data = array("i", memoryview(column.offsets)), bytearray(column.data)
        start = self._pick(count + 1)
        stop = start + self._pick(count - start + 1)
        sound = self._chance() < 0.4
        if not sound:
            kind = self._pick(4)
            if kind == 0:
                ends[self._pick(len(ends))] += self._pick(5) - 2
            elif kind == 1:
                ends[self._pick(len(ends))] = _LIES[self._pick(len(_LIES))]
            elif kind == 2:
                start, stop = start + self._far(), stop + self._far()
            elif data:
                data[self._pick(len(data))] = (0, 1, 2, 0x7F, 0x80, 0xFF)[self._pick(6)]
        lengths = memoryview(exact(ends.tobytes())).cast("i")
        try:
            found = self._kernel.header_lists(lengths, exact(bytes(data)), start, stop)
            read = [tuple(each) for each in found]
        except (IndexError, ValueError, OverflowError):
            assert not sound, "sound headers were refused"
            return
        assert 0 <= start <= stop < len(ends), "missing headers were read"
        part = ends[start : stop + 1]
        assert all(0 <= a <= b <= len(data) for a, b in pairwise(part)), "missing bytes"
        plain = RawHeaderColumn(ends, bytes(data)).lists(start, stop)
        assert read == [tuple(each) for each in plain]

    def _entries(self, column: BinaryColumn, count: int) -> None:
        ends = array("i", memoryview(column.offsets))
        data, bits = bytes(column.data), column.validity
        start = self._pick(count + 1)
        stop = start + self._pick(count - start + 1)
        sound = self._chance() < 0.4
        if not sound:
            kind = self._pick(5)
            if kind == 0:
                ends[self._pick(len(ends))] += _LIES[self._pick(len(_LIES))] % 5 - 2
            elif kind == 1:
                ends[self._pick(len(ends))] = _LIES[self._pick(len(_LIES))]
            elif kind == 2:
                start, stop = start + self._far(), stop + self._far()
            elif kind == 3:
                data = data[: len(data) - 1 - self._pick(3)]
            elif bits is not None:
                bits = bytes(bits)[:-1]
        if self._chance() < 0.2:
            self._hashes(ends, data)
        lengths = memoryview(exact(ends.tobytes())).cast("i")
        there = None if bits is None else exact(bytes(bits))
        try:
            found = self._kernel.binary_values(lengths, exact(data), there, start, stop)
        except (IndexError, ValueError, OverflowError):
            assert not sound, "sound entries were refused"
            return
        assert found == self._plainly(ends, data, bits, start, stop)

    def _plainly(
        self, ends: Any, data: bytes, bits: Any, start: int, stop: int
    ) -> list[bytes | None]:
        assert 0 <= start <= stop < len(ends), "missing entries were read"
        told: list[bytes | None] = []
        for i in range(start, stop):
            assert 0 <= ends[i] <= ends[i + 1] <= len(data), "missing bytes were read"
            there = bits is None or bits[i >> 3] >> (i & 7) & 1
            told.append(data[ends[i] : ends[i + 1]] if there else None)
        return told

    def _hashes(self, ends: Any, data: bytes) -> None:
        """Hash all entries, at valid and invalid indexes."""
        sound = all(0 <= a <= b <= len(data) for a, b in pairwise(ends))
        offsets = memoryview(exact(array("q", ends).tobytes())).cast("q")
        count = len(ends) - 1 + (self._pick(3) - 1) * (self._chance() < 0.1)
        found = memoryview(array("Q", [0]) * max(count, 0))
        try:
            self._kernel.text_hashes(exact(data), offsets, found)
        except ValueError:
            assert not sound or count != len(ends) - 1, "sound entries were refused"
            return
        assert sound, "missing bytes were hashed"
        assert list(found) == [text_hash(data[a:b]) for a, b in pairwise(ends)]

    def _far(self) -> int:
        found = _FAR[self._pick(len(_FAR))]
        return found if self._pick(2) else found % 5

    def _rows(self, columns: RecordColumns) -> None:
        epochs: Any = 3 if self._pick(2) else [7] * columns.count
        start = self._pick(columns.count + 1)
        part = columns.slice(start, start + self._pick(columns.count - start + 1))
        if not isinstance(epochs, int):
            epochs = epochs[: part.count]
        sound = self._chance() < 0.5
        if not sound:
            kind = self._pick(3)
            if kind == 0:
                part = copy(part)
                part.start = max(min(part.start + self._far(), (1 << 63) - 1), -(1 << 63))
            elif kind == 1:
                part = copy(part)
                part.count = max(min(part.count + self._far(), (1 << 63) - 1), -(1 << 63))
            elif part.count:
                epochs = [3] * (part.count - 1)
        if self._chance() < 0.02 and part.count:
            try:
                self._kernel.build_rows((list, int, dict)[self._pick(3)], "t", 1, part, 3)
            except TypeError:
                return
            raise AssertionError("rows of a class that is no tuple were created")
        try:
            found = self._kernel.build_rows(ConsumerRecord, "t", 1, part, epochs, Unread)
        except (IndexError, ValueError, OverflowError):
            assert not sound, "sound rows were refused"
            return
        assert min(part.start, part.count) >= 0, "missing rows were read"
        assert part.start + part.count <= columns.count, "missing rows were read"
        expected = rows.build_rows(ConsumerRecord, "t", 1, part, epochs, Unread)
        assert found == expected
        assert [type(row) for row in found] == [type(row) for row in expected]
