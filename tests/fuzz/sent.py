"""Columns to send and records to append, valid and hostile, for the encoders.

In: a seed. Out: an endless series of cases, and `drive`, which uses a pair of encoder and builder
like a producer, and returns all results, to be compared with those of another pair. Buffers have
the least possible size, so that a sanitizer reports reads beyond them.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from odradek.common.errors import KafkaError
from odradek.record.columns import ByteBuffer
from odradek.record.compression import CODECS
from odradek.record.sent_columns import (
    Encoded,
    SentBinary,
    SentColumns,
    SentHeaders,
    SentNumbers,
    StopReason,
)

Outcome: TypeAlias = list[Any]
_LONG = 1 << 63
COUNTS = (0, 1, 1, 2, 3, 5, 8, 9, 17, 40, 70)
SIZES = (0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 257, 300)
HOSTILE = (
    *(-1, -2, 0, 1, 7, 8, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 32, (1 << 32) + 1),
    *(_LONG - 1, -_LONG, _LONG - 8, 1 << 60, 1 << 61, -(1 << 61), 1 << 62),
)
NAMES = (b"h", b"", b"trace-id", "schlüssel".encode(), b"n" * 70)
BAD_NAMES = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")


def exact(data: bytes | bytearray) -> ByteBuffer:
    """Copy the bytes into memory of exactly that size; `bytes` have one more."""
    room = array("B", data)
    return memoryview(room[: len(data)])  # a slice has no spare memory


def bitmap(present: Sequence[bool], start: int) -> ByteBuffer | None:
    """Return Arrow's validity bits; the unused ones are arbitrary."""
    bits = bytearray(b"\xa5" * ((start + len(present) + 7) // 8))
    for i, there in enumerate(present, start):
        bits[i >> 3] = bits[i >> 3] & ~(1 << (i & 7)) | there << (i & 7)
    return exact(bits)


def integers(values: Sequence[int], wide: bool) -> ByteBuffer:
    """Return a buffer of integers."""
    return exact(array("q" if wide else "i", values).tobytes())


def binary(rng: random.Random, count: int, sizes: Sequence[int], null: float) -> SentBinary:
    """Return a valid column of byte strings, perhaps a slice of something larger."""
    start, wide, at = rng.choice((0, 0, 1, 9)), rng.random() < 0.3, rng.choice((0, 0, 3))
    ends, present = [rng.randrange(at + 1) for _ in range(start)], []
    ends.sort()
    ends.append(at)
    for _ in range(count):
        present.append(rng.random() >= null)
        # The content of a null is arbitrary, but within the data.
        at += rng.choice(sizes) if present[-1] or rng.random() < 0.1 else 0
        ends.append(at)
    nullable = not all(present) or rng.random() < 0.2
    return SentBinary(
        integers(ends, wide),
        exact(rng.randbytes(at + rng.choice((0, 0, 0, 5)))),
        bitmap(present, start) if nullable else None,
        start,
        wide,
    )


def strings(rng: random.Random, count: int, names: Sequence[bytes]) -> SentBinary:
    """Return a valid column of header names, or one with some that aren't UTF-8."""
    ends, data = [0], bytearray()
    for _ in range(count):
        data += rng.choice(names)
        ends.append(len(data))
    wide = rng.random() < 0.3
    return SentBinary(integers(ends, wide), exact(data), None, 0, wide)


def numbers(rng: random.Random, values: Sequence[int], wide: bool) -> SentNumbers:
    """Return a valid column of integers, some of them null."""
    start = rng.choice((0, 0, 2, 8))
    null = rng.choice((0.0, 0.0, 0.4))
    present = [rng.random() >= null for _ in values]
    data = integers([5] * start + list(values), wide)
    return SentNumbers(data, None if all(present) else bitmap(present, start), start)


def headers(rng: random.Random, count: int) -> SentHeaders:
    """Return a valid column of header lists."""
    ends = [0]
    for _ in range(count):
        ends.append(ends[-1] + rng.choice((0, 0, 1, 2, 5)))
    start, wide, entries = rng.choice((0, 0, 4)), rng.random() < 0.3, ends[-1]
    names = NAMES if rng.random() < 0.95 else NAMES * 5 + BAD_NAMES
    present = [rng.random() < 0.9 for _ in range(count)]
    return SentHeaders(
        integers([0] * start + ends, wide),
        strings(rng, entries, names),
        binary(rng, entries, SIZES[:12], 0.3),
        entries,
        None if all(present) else bitmap(present, start),
        start,
        wide,
    )


def packed(value: int, wide: bool) -> bytes:
    """Encode a number for a buffer, truncated to its width."""
    return struct.pack("=Q", value % (1 << 64)) if wide else struct.pack("=I", value % (1 << 32))


@dataclass(frozen=True, slots=True)
class Case:
    """Columns, and what a producer does with them."""

    columns: SentColumns
    partitions: int
    largest: int
    ignore_keys: bool
    limit: int
    codec: str | None
    time: int
    room: int
    sticky_room: int
    step: int
    extra: int
    """Additional action: 1 other appends; 2 calls out of range; 3 batches are built again; 4
    columns change after they were checked; 5 batches are closed.
    """
    wound: tuple[int, int, int] = (0, 0, 0)
    """If `extra` is 4: the changed column, the index in it, and the value written there."""


@dataclass(slots=True)
class _Pool:
    """Valid columns of one length."""

    binaries: list[SentBinary]
    headers: list[SentHeaders]
    partitions: list[SentNumbers]
    times: list[SentNumbers]


def make_pool(rng: random.Random, count: int) -> _Pool:
    """Create columns with many shapes."""
    sizes = SIZES if count < 30 else SIZES[:8]
    now = 1_700_000_000_000
    spans = ((now, now + 9), (-1, 5), (now - 100_000, now + 100_000), (-1, _LONG - 1))
    ends = (-1, _LONG - 1, _LONG - 2, 0)
    places = ((0, 0), (0, 0), (0, 2), (0, 6), (5, 6))
    times = [[rng.randint(*spans[i % 4]) for _ in range(count)] for i in range(8)]
    times += [[rng.choice(ends) for _ in range(count)] for _ in range(2)]
    homes = [[rng.randint(*places[i % 5]) for _ in range(count)] for i in range(10)]
    large = (0, 100, 5000)
    return _Pool(
        [binary(rng, count, sizes, rng.choice((0.0, 0.0, 0.3, 1.0))) for _ in range(20)]
        + [binary(rng, count, large, 0.1) for _ in range(1 if count < 10 else 0)],
        [headers(rng, count) for _ in range(8)],
        [numbers(rng, one, False) for one in homes],
        [numbers(rng, one, True) for one in times],
    )


class Sendings:
    """Cases for `drive`, which depend on the seed only."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self._chance: Callable[[], float] = rng.random
        self._pools = {count: make_pool(rng, count) for count in set(COUNTS)}

    def _pick(self, count: int) -> int:
        return int(self._chance() * count)

    def _one(self, choice: Sequence[Any]) -> Any:
        return choice[int(self._chance() * len(choice))]

    def case(self) -> Case:
        """Create the next case; four of ten have a fault."""
        chance, one = self._chance, self._one
        count = one(COUNTS)
        pool = self._pools[count]
        columns = SentColumns(
            count,
            one(pool.binaries) if chance() < 0.95 else None,
            one(pool.binaries) if chance() < 0.8 else None,
            one(pool.headers) if chance() < 0.4 else None,
            one(pool.partitions) if chance() < 0.3 else None,
            one(pool.times) if chance() < 0.4 else None,
            one((0, 0, 1000)),
        )
        if chance() < 0.4:
            columns = self._broken(columns)
        return Case(
            columns,
            partitions=one((1, 2, 3, 7, 7, 50)),
            largest=1 << 20 if chance() < 0.95 else one((36, 60, 200)),
            ignore_keys=chance() < 0.1,
            limit=one((62, 100, 150, 200, 400, 1000, 1 << 14)),
            codec=None if chance() < 0.97 else one(CODECS),
            time=one((1_700_000_000_000, -1, 0, _LONG - 1)),
            room=1 << 40 if chance() < 0.8 else self._pick(500),
            sticky_room=1 << 40 if chance() < 0.6 else 1 + self._pick(300),
            step=1000 if chance() < 0.8 else 1 + self._pick(5),
            extra=1 + self._pick(5) if chance() < 0.5 else 0,
            wound=(self._pick(5), self._pick(1 << 16), self._one(HOSTILE)),
        )

    def _broken(self, columns: SentColumns) -> SentColumns:
        """Return the columns with one invalid value."""
        fields = [name for name in _COLUMNS if getattr(columns, name) is not None]
        if not fields or self._chance() < 0.08:
            lies = (columns.count + 1, columns.count + 8, columns.count - 1, -1, 1 << 40, _LONG - 1)
            # Without columns any count is valid, but a large one takes long.
            return columns._replace(count=self._one(lies if fields else lies[:4]))
        name = self._one(fields)
        column = getattr(columns, name)
        if isinstance(column, SentBinary):
            column = self._broken_binary(column, columns.count)
        elif isinstance(column, SentNumbers):
            column = self._broken_numbers(column, columns.count, name == "timestamps_ms")
        else:
            column = self._broken_headers(column, columns.count)
        return columns._replace(**{name: column})

    def _other(self, data: ByteBuffer, start: int, count: int, wide: bool, edge: int) -> ByteBuffer:
        """Return a copy in which one number at or after index `start` is changed."""
        width = 8 if wide else 4
        changed = bytearray(data)
        at = (start + self._pick(max(count, 1))) * width
        if not 0 <= at <= len(changed) - width:
            return data
        here = int.from_bytes(changed[at : at + width], "little", signed=True)
        lies = (edge - 1, edge, edge + 1, here - 1, here + 1, -here, self._one(HOSTILE))
        changed[at : at + width] = packed(self._one(lies), wide)
        return exact(changed)

    def _shorter(self, data: ByteBuffer) -> ByteBuffer:
        """Return the buffer without some of its last bytes."""
        size = memoryview(data).nbytes
        drop = self._one((1, 1, 2, 4, 8, 9, size))
        return exact(bytes(memoryview(data)[: max(size - drop, 0)]))

    def _moved(self, start: int) -> int:
        return start + 1 if self._chance() < 0.4 else int(self._one(HOSTILE))

    def _broken_binary(self, column: SentBinary, count: int) -> SentBinary:
        kind = self._pick(12)
        if kind < 6:
            size = memoryview(column.data).nbytes
            changed = self._other(column.offsets, column.start, count + 1, column.wide, size)
            return column._replace(offsets=changed)
        if kind == 6:
            return column._replace(offsets=self._shorter(column.offsets))
        if kind == 7:
            return column._replace(data=self._shorter(column.data))
        if kind == 8 and column.validity is not None:
            return column._replace(validity=self._shorter(column.validity))
        if kind == 9:
            return column._replace(wide=not column.wide)
        return column._replace(start=self._moved(column.start))

    def _broken_numbers(self, column: SentNumbers, count: int, wide: bool) -> SentNumbers:
        kind = self._pick(6)
        if kind < 3:
            return column._replace(data=self._other(column.data, column.start, count, wide, -1))
        if kind == 3:
            return column._replace(data=self._shorter(column.data))
        if kind == 4 and column.validity is not None:
            return column._replace(validity=self._shorter(column.validity))
        return column._replace(start=self._moved(column.start))

    def _broken_headers(self, column: SentHeaders, count: int) -> SentHeaders:
        kind = self._pick(14)
        if kind < 4:
            changed = self._other(
                column.offsets, column.start, count + 1, column.wide, column.entries
            )
            return column._replace(offsets=changed)
        if kind == 4:
            return column._replace(offsets=self._shorter(column.offsets))
        if kind == 5 and column.validity is not None:
            return column._replace(validity=self._shorter(column.validity))
        if kind == 6:
            return column._replace(wide=not column.wide)
        if kind == 7:
            return column._replace(start=self._moved(column.start))
        if kind == 8:
            lies = (column.entries + 1, column.entries - 1, *HOSTILE)
            return column._replace(entries=self._one(lies))
        if kind == 9:
            names = bytearray(column.keys.data)
            if names:
                names[self._pick(len(names))] = self._one(b"\x80\xc3\xe2\xf0\xed\xff")
            return column._replace(keys=column.keys._replace(data=exact(names)))
        if kind == 10:
            bits = exact(self._one((b"\xff", b"\xfe", b"\x00")) * (column.entries // 8 + 1))
            return column._replace(keys=column.keys._replace(validity=bits))
        if kind == 11:
            return column._replace(values=self._broken_binary(column.values, column.entries))
        return column._replace(keys=self._broken_binary(column.keys, column.entries))


_COLUMNS = ("values", "keys", "headers", "partitions", "timestamps_ms")


def refusal(error: Exception) -> Any:
    """Return the comparable part of an error."""
    return type(error).__name__, getattr(error, "row", None), "UTF-8" in str(error)


def agree(case: Case, ours: Outcome, theirs: Outcome) -> bool:
    """Return whether two drives have the same results.

    The native encoder checks only at its creation whether header names are UTF-8, the Python one in
    each row, so only the Python one notices later changes. Results before such a row must be equal,
    and the native encoder must get as far; later ones aren't compared.
    """
    if ours == theirs:
        return True
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if case.extra != 4 or at is None or not _torn(theirs[at]):
        return False
    found, row = ours[at], theirs[at][1]
    if not isinstance(found, tuple):
        return False
    reached = found[1] if isinstance(found[0], str) else Encoded(*found).row
    return isinstance(reached, int) and reached >= row


def _torn(event: Any) -> bool:
    return isinstance(event, tuple) and event[0] == "InvalidRowError" and event[2] is True


def refused(events: Outcome, call: Callable[[], object]) -> None:
    """Make a call that must be refused, and record its error."""
    try:
        events.append(call())
    except (IndexError, ValueError) as error:
        events.append(type(error).__name__)


def wounded(case: Case) -> Callable[[], None] | None:
    """Write into a buffer of the columns; return a function that restores it."""
    column = getattr(case.columns, _COLUMNS[case.wound[0]])
    if column is None:
        return None
    if isinstance(column, SentHeaders) and case.wound[1] % 3:
        column = column.keys if case.wound[1] % 3 == 1 else column.values
    view = column.data if isinstance(column, SentNumbers) else column.offsets
    width = 8 if getattr(column, "wide", case.wound[0] == 4) else 4
    if not isinstance(view, memoryview) or view.readonly or view.nbytes < width:
        return None
    at = case.wound[1] % (view.nbytes // width) * width
    before = bytes(view[at : at + width])
    view[at : at + width] = packed(case.wound[2], width == 8)

    def heal() -> None:
        view[at : at + width] = before

    return heal


def drive(encoders: Any, builders: Any, case: Case) -> Outcome:
    """Send the columns and return each result and each batch."""
    events: Outcome = []
    try:
        encoder = encoders(
            case.columns, case.partitions, case.largest, ignore_keys=case.ignore_keys
        )
    except KafkaError as error:
        return [refusal(error)]
    count, row, sticky, room = case.columns.count, 0, 0, case.room
    batches: dict[int, Any] = {}
    done: list[Any] = []
    if case.extra == 2:
        for bad in (-1, case.partitions, 1 << 40):
            refused(events, lambda bad=bad: encoder.use(bad, builders(100, None)))  # type: ignore[misc]
        for first, last, time in ((0, count + 1, 0), (-1, count, 0), (1, 0, 0), (0, count, -2)):
            refused(
                events,
                lambda first=first, last=last, time=time: encoder.encode(  # type: ignore[misc]
                    first, last, timestamp_ms=time, room=100
                ),
            )
    healed = wounded(case) if case.extra == 4 else None
    for turn in range(6 * count + 20):
        try:
            found: Encoded = encoder.encode(
                row,
                min(row + case.step, count),
                timestamp_ms=case.time,
                room=room,
                sticky=sticky,
                sticky_room=case.sticky_room,
            )
        except KafkaError as error:
            events.append(refusal(error))
            break
        events.append(tuple(found))
        row = found.row
        if found.reason == StopReason.DONE and row == count:
            break
        if found.reason == StopReason.BATCH:
            at = found.partition
            old = batches.get(at)
            fresh = builders(case.limit, case.codec) if old is None or old.count else old
            if case.extra == 1 and turn % 3 == 0:
                fresh.append(b"k", b"other's", [("h", None)], 5)
            if old is not None and old is not fresh:
                done.append(old)
            batches[at] = fresh
            events.append(encoder.use(at, fresh))
        elif found.reason == StopReason.ROOM:
            room = max(found.size, case.room)
        elif found.reason == StopReason.STICKY:
            sticky = (sticky + 1) % case.partitions
        if case.extra == 1 and turn % 4 == 1 and batches:
            next(iter(batches.values())).append(None, b"x" * turn, (), case.time)
        if case.extra == 5 and turn % 5 == 0 and batches:
            next(reversed(batches.values())).close()
    if healed is not None:
        healed()
    events.append(encoder.pieces())
    events.append(encoder.pieces())
    done += [batches[at] for at in sorted(batches)]
    for number, batch in enumerate(done):
        events += sealed(batch, number, case.extra == 3)
    return events


def sealed(batch: Any, number: int, again: bool) -> Outcome:
    """Build a batch and return its properties."""
    told: Outcome = [batch.count, batch.estimated_size, batch.max_timestamp_ms, batch.closed]
    if not batch.count:
        return told
    told.append(bytes(batch.build(producer_id=number - 1, producer_epoch=3, base_sequence=77)))
    if again:
        told.append(bytes(batch.build(producer_id=number - 1, producer_epoch=3, base_sequence=77)))
        told.append(bytes(batch.build(producer_id=9, producer_epoch=4, transactional=True)))
        if number % 2:
            batch.release()
    told += [batch.append(b"", None, (), 0), batch.closed, batch.estimated_size]
    return told
