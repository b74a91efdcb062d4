"""Record sets of all shapes, and hostile ones derived from them, for the decoders.

In: a seed. Out: an endless series of cases, each a buffer and the arguments of `decode`, some ten
thousands per second. Nearly all have a correct checksum, because otherwise nothing is read. A batch
is changed where it contains a length: the places are known from writing it. Must not use the
encoders under test, or both sides could be wrong in the same way.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
from tests.fuzz.old_messages import OldMessages

from odradek.record.compression import CODECS, compress
from odradek.record.limits import NO_LIMITS, Limits

_CHECKED = struct.Struct(">hiqqqhii")
_FRONT = struct.Struct(">qiibI")
_FRONT_SIZE, _HEADER_SIZE = 21, 61
_TRANSACTIONAL, _CONTROL, _APPEND_TIME = 0x10, 0x20, 0x08
_LONG = 1 << 63

LENGTH, TIME, DELTA, SIZE, HEADERS = range(5)
"""Meanings of a number in a record: its length, its deltas, a size, a number of headers."""

NUMBERS = (
    *(0, 1, -1, -2, 2, 5, 63, 64, -64, -65, 127, 128, 8191, 8192, 1 << 20, 1 << 24),
    *((1 << 31) - 1, -(1 << 31), 1 << 31, -(1 << 31) - 1, 1 << 32, _LONG - 1, -_LONG, -_LONG + 1),
)
ENCODINGS = (
    b"\x80\x00",  # more bytes than necessary
    b"\x81\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",  # a number of 33 bits
    b"\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\x00",  # a number in six bytes
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x02",  # a number of 65 bits
    b"\xff" * 9 + b"\x7f",
    b"\xff" * 10 + b"\x01",  # a number in eleven bytes
    b"\x80" * 12,
    b"\x80",  # the last byte may be missing
    b"\xff" * 4,
    b"\xff" * 9,
)
BYTES = b"\x00\x01\x02\x7f\x80\x81\xfe\xff"


class Spot(NamedTuple):
    """A number in the records: its start and end, its meaning, and the index of its record."""

    start: int
    stop: int
    says: int
    record: int


class Span(NamedTuple):
    """A record: start and end of its length field, and its end."""

    start: int
    stop: int
    end: int


@dataclass(slots=True)
class Seed:
    """A valid batch; `checked` are the header fields that the checksum covers."""

    checked: list[int]
    body: bytes
    spots: list[Spot]
    spans: list[Span]
    codec: int | None = None
    """The codec of all batches; None: some batches are compressed, with any codec."""

    @property
    def size(self) -> int:
        """Return the number of offsets of the batch."""
        return self.checked[1] + 1


def varint(value: int) -> bytes:
    """Encode a zigzag number of up to 64 bits."""
    value = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_VARINTS = [varint(n) for n in range(-70, 1100)]


def number(value: int) -> bytes:
    """Encode like `varint`, with a table for small numbers."""
    return _VARINTS[value + 70] if -70 <= value < 1030 else varint(value)


Content = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
"""Time delta, offset delta, key, value and headers of a record."""


def write(contents: list[Content]) -> tuple[bytes, list[Spot], list[Span]]:
    """Write records and note the position of each number."""
    body = bytearray()
    spots: list[Spot] = []
    spans: list[Span] = []
    for index, (time, delta, key, value, headers) in enumerate(contents):
        record = bytearray(b"\0")
        inner: list[tuple[int, int, int]] = []

        def put(says: int, data: bytes, into: bytearray = record, at: Any = inner) -> None:
            at.append((len(into), len(into) + len(data), says))
            into += data

        put(TIME, number(time))
        put(DELTA, number(delta))
        for content in (key, value):
            put(SIZE, number(-1 if content is None else len(content)))
            record += content or b""
        put(HEADERS, number(len(headers)))
        for name, content in headers:
            put(SIZE, number(len(name)))
            record += name
            put(SIZE, number(-1 if content is None else len(content)))
            record += content or b""
        start, length = len(body), number(len(record))
        stop = start + len(length)
        spots.append(Spot(start, stop, LENGTH, index))
        spots += (Spot(stop + a, stop + b, says, index) for a, b, says in inner)
        body += length + record
        spans.append(Span(start, stop, len(body)))
    return bytes(body), spots, spans


SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 100, 127, 128, 129, 255, 256, 300)
NAMES = (
    b"h",
    b"",
    b"\xff" * 90,
    b"trace-id",
    "schlüssel".encode(),
    b"\xff\xfe",
    b"a\xc3",
    b"\xed\xa0\x80x",
)


def contents(rng: random.Random, count: int, gaps: bool) -> list[Content]:
    """Return records of similar shape, like those of most real batches."""
    sizes = SIZES if count < 50 else SIZES[:6]
    null = rng.choice((0.0, 0.0, 0.3, 1.0))
    keyless = rng.choice((0.0, 0.3, 1.0))
    named = rng.choice((0.0, 0.0, 0.5, 1.0))
    times = rng.choice(((0,), (0, 1, 2, 5), (-5, 300, -70_000), (0, 1 << 40, -(1 << 62))))
    found: list[Content] = []
    delta = -1
    for _ in range(count):
        delta += rng.choice((1, 1, 2, 9)) if gaps else 1
        key = None if rng.random() < keyless else rng.randbytes(rng.choice(sizes[:14]))
        value = None if rng.random() < null else rng.randbytes(rng.choice(sizes))
        headers = [
            (rng.choice(NAMES), rng.choice((None, b"", b"x", rng.randbytes(rng.choice(sizes)))))
            for _ in range(rng.choice((1, 2, 2, 5, 16, 17)) if rng.random() < named else 0)
        ]
        found.append((rng.choice(times), delta, key, value, headers))
    return found


def make_seed(rng: random.Random) -> Seed:
    """Create a valid batch of some shape."""
    attributes = rng.choice((0, 0, 0, _APPEND_TIME, _TRANSACTIONAL, _TRANSACTIONAL))
    producer = rng.choice((7, 8)) if attributes & _TRANSACTIONAL else -1
    count = rng.choice((0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 9, 40, 130))
    gaps = rng.random() < 0.3
    if rng.random() < 0.12:
        attributes |= _CONTROL | _TRANSACTIONAL
        producer = rng.choice((7, 8))
        kind = rng.choice((b"\0\0\0\0", b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\0", b""))
        found: list[Content] = [(0, 0, kind, bytes(6), [])]
    else:
        found = contents(rng, count, gaps)
    body, spots, spans = write(found)
    last = found[-1][1] if found else rng.choice((0, 5))
    last += rng.choice((0, 1, 4)) if gaps else 0
    base_time = rng.choice((1_700_000_000_000, 0, -1, 5, _LONG - 1 if rng.random() < 0.1 else 9))
    checked = [attributes, last, base_time, base_time, producer, 0, 0, len(found)]
    return Seed(checked, body, spots, spans)


def long_seed(rng: random.Random) -> Seed:
    """Create a batch with a few values larger than what is copied or read in one step."""
    found: list[Content] = [
        (0, i, rng.randbytes(rng.choice((0, 40, 700))), rng.randbytes(rng.choice((4000, 9000))), [])
        for i in range(2)
    ]
    body, spots, spans = write(found)
    return Seed([0, 1, 5, 5, -1, -1, -1, 2], body, spots, spans)


def packed_seed(rng: random.Random) -> Seed:
    """Create a batch of many records in few bytes: more than its size suggests."""
    named = rng.random() < 0.3
    value = rng.choice((None, b""))
    # A single null in front: the space for the validity bits isn't needed again on the way.
    found: list[Content] = [
        (0, i, None, value, [(b"", None if i == 0 else b"")] if named else []) for i in range(700)
    ]
    body, spots, spans = write(found)
    return Seed([0, 699, 5, 5, -1, -1, -1, 700], body, spots, spans, codec=rng.choice((1, 4)))


def make_seeds(seed: int, count: int = 400) -> list[Seed]:
    """Create many shapes; one in twenty is large, and one in a hundred has many records."""
    rng = random.Random(seed)
    kinds = {0: packed_seed, 20: long_seed, 40: long_seed, 60: long_seed, 80: long_seed}
    return [kinds.get(i % 100, make_seed)(rng) for i in range(count)]


Arguments = dict[str, Any]
Case = tuple[bytes, Arguments]

_FIELDS: tuple[tuple[int, ...], ...] = (
    (0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x18, 0x20, 0x30, 0x38, 0x40, 0x80, -1, -32768, 32767),
    (-1, 0, 1, 2, 5, (1 << 31) - 1, -(1 << 31), 1 << 20),
    (-1, -2, 0, _LONG - 1, -_LONG, _LONG - 5, -_LONG + 5, 1 << 40),
    (-1, -2, 0, _LONG - 1, -_LONG, 1 << 40),
    (-1, 0, 7, 8, _LONG - 1, -_LONG),
    (-1, 0, 32767, -32768),
    (-1, 0, (1 << 31) - 1, -(1 << 31)),
    (-1, 0, 1, 2, 3, 64, 1 << 16, 1 << 24, (1 << 31) - 1, -(1 << 31)),
)
"""Values for the fields under the checksum, attributes first, count last."""

_WANTS = (
    *((True, True, True), (True, True, True), (True, True, False), (False, True, False)),
    *((True, False, True), (False, False, False), (False, True, True), (True, False, False)),
)


_LIMITS = (
    *(Limits(headers=1), Limits(headers=0), Limits(headers=2, records=9), Limits(records=2)),
    *(Limits(decompressed=60), Limits(decompressed=300), Limits(decompressed=3000, ratio=1)),
)


class Frames:
    """Cases for `decode`, which depend on the seed only."""

    def __init__(self, seed: int, seeds: list[Seed] | None = None) -> None:
        self._chance: Callable[[], float] = random.Random(seed).random
        self._seeds = make_seeds(seed % 97) if seeds is None else seeds
        self._old = OldMessages(self._pick)
        # Prefer changes of numbers: most bounds checks are about numbers inside of records.
        self._changes: tuple[Callable[[Seed, bytearray, list[int]], None], ...] = (
            *(self._lie, self._lie, self._lie, self._lie, self._lie, self._lie),
            *(self._cut_record, self._cut_record, self._cut_record, self._cut_body),
            *(self._flip, self._flip, self._field, self._field, self._field, self._count),
            *(self._double, self._drop, self._swap, self._nothing),
        )

    def _pick(self, count: int) -> int:
        return int(self._chance() * count)

    def case(self) -> Case:
        """Create the next case."""
        chance = self._chance
        offset = self._pick(3) * 3
        start = offset
        shape = self._pick(8)
        parts: list[bytes] = []
        if shape == 0:
            offset = self._add(parts, offset, True)
        offset = self._add(parts, offset, shape == 1)
        if shape == 2:
            offset = self._add(parts, offset, True)
        elif shape == 3:
            offset = self._add(parts, offset, self._pick(2) == 0)
            offset = self._add(parts, offset, False)
        buffer = parts[0] if len(parts) == 1 else b"".join(parts)
        if chance() < 0.06:
            buffer = buffer[: self._pick(len(buffer) + 1)]
        elif chance() < 0.04:
            buffer += self._stub(offset)
        return buffer, self._arguments(start, offset)

    def _stub(self, offset: int) -> bytes:
        """Return the start of a header, with any length."""
        lengths = (-1, -13, 0, 13, 14, 15, 40, 48, 49, 50, 1000)
        front = _FRONT.pack(offset, lengths[self._pick(11)], 3, (2, 2, 1)[self._pick(3)], 5)
        return (front + bytes(41))[: 1 + self._pick(62)]

    def _arguments(self, first: int, end: int) -> Arguments:
        chance = self._chance
        keys, values, headers = _WANTS[self._pick(len(_WANTS))] if chance() < 0.5 else _WANTS[0]
        start = first if chance() < 0.7 else first + self._pick(end - first + 2)
        until = None if chance() < 0.75 else start + self._pick(end - start + 2)
        aborted: tuple[tuple[int, int], ...] = ()
        if chance() < 0.25:
            aborted = ((7, first),) if chance() < 0.5 else ((8, end - 1), (7, 0), (9, end + 5))
        most = None if chance() < 0.75 else 1 + self._pick(5)
        enough = None if chance() < 0.85 else 1 + self._pick(5)
        return {
            "start_offset": start,
            "until_offset": until,
            "aborted": aborted,
            "want_key": keys,
            "want_value": values,
            "want_headers": headers,
            "max_records": most,
            "stop_after": enough,
            "layout": "binary" if chance() < 0.75 else "binary_view",
            "raw_headers": chance() < 0.4,
            "limits": _LIMITS[self._pick(len(_LIMITS))] if chance() < 0.2 else NO_LIMITS,
        }

    def _add(self, parts: list[bytes], offset: int, valid: bool) -> int:
        """Append a batch to a record set and return the next offset."""
        if self._pick(8) == 0:
            made, offset = self._old.make(offset, valid)
            parts.append(made)
            return offset
        seed = self._seeds[self._pick(len(self._seeds))]
        body, checked = bytearray(seed.body), seed.checked.copy()
        if not valid:
            self._changes[self._pick(len(self._changes))](seed, body, checked)
            if self._chance() < 0.08:  # usually one: a change may hide another
                self._flip(seed, body, checked)
        packed = self._packed(body, checked, seed.codec)
        parts.append(self._seal(offset, checked, packed, valid))
        if seed.codec is not None and self._pick(2):  # twice: columns must grow
            parts.append(self._seal(offset + seed.size, checked, packed, True))
            return offset + 2 * seed.size
        return offset + seed.size

    def _packed(self, body: bytearray, checked: list[int], codec: int | None) -> bytes | bytearray:
        """Compress some batches before the checksum is written: broken bytes stay inside."""
        if not body or (codec is None and self._chance() > 0.06):
            return body
        if codec is None:
            codec = 1 + self._pick(len(CODECS) - 1)
        checked[0] = checked[0] & ~7 | codec
        packed = compress(codec, None, memoryview(body))
        if self._chance() < 0.3:
            changed = bytearray(packed)
            self._flip(None, changed, checked)
            return changed
        return packed

    def _seal(self, offset: int, checked: list[int], body: bytes | bytearray, valid: bool) -> bytes:
        covered = _CHECKED.pack(*checked) + body
        length = len(covered) + 9
        magic, epoch, crc = 2, 3, google_crc32c.value(covered)
        if not valid and self._chance() < 0.03:
            match self._pick(4):
                case 0:
                    length = (-1, 0, 13, 14, 48, 49, length - 1, length + 1, (1 << 31) - 1)[
                        self._pick(9)
                    ]
                case 1:
                    offset = (-1, -_LONG, _LONG - 1, _LONG - 2, _LONG - 1 - checked[1] % 7)[
                        self._pick(5)
                    ]
                case 2:
                    magic = (0, 1, 3, -1)[self._pick(4)]
                case _:
                    crc ^= 1 << self._pick(32)
        return _FRONT.pack(offset, length, epoch, magic, crc) + covered

    def _nothing(self, seed: Seed | None, body: bytearray, checked: list[int]) -> None:
        """Leave the batch valid."""

    def _hostile(self, spot: Spot, seed: Seed) -> bytes | bytearray:
        """Write some hostile bytes in place of a number."""
        kind = self._pick(12)
        if spot.says == TIME and kind < 4:
            return ENCODINGS[8 + self._pick(5)]
        if kind >= 10:  # the same number in more bytes, in too many, or without an end
            said = bytearray(seed.body[spot.start : spot.stop])
            said[-1] |= 0x80
            return said + b"\x80" * self._pick(10) + (b"" if kind == 10 else b"\0")
        if kind < 5:  # at the limit of its record or batch
            end = seed.spans[spot.record].end if kind < 3 else len(seed.body)
            left = end - spot.stop
            if spot.says == HEADERS and kind:
                left >>= 1
            return number(left + self._pick(5) - 2)
        if kind < 8:
            return varint(NUMBERS[self._pick(len(NUMBERS))])
        return ENCODINGS[self._pick(len(ENCODINGS))]

    def _lie(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Replace a number by another one, and usually adjust its record's length."""
        if not seed.spots:
            return
        spot = seed.spots[self._pick(len(seed.spots))]
        lie = self._hostile(spot, seed)
        body[spot.start : spot.stop] = lie
        if spot.says != LENGTH and self._chance() < 0.8:
            span = seed.spans[spot.record]
            grown = len(lie) - (spot.stop - spot.start)
            body[span.start : span.stop] = number(span.end - span.stop + grown)

    def _cut_record(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Truncate a record, usually with a length that agrees: the next bytes aren't part of it.

        In most cases this is the last record, which no bytes follow.
        """
        if not seed.spans:
            return
        index = len(seed.spans) - 1
        if self._chance() < 0.4:
            index = self._pick(len(seed.spans))
        span = seed.spans[index]
        at = span.stop + self._pick(span.end - span.stop)
        if self._chance() < 0.5:
            inside = [spot for spot in seed.spots if spot.record == index]
            at = inside[self._pick(len(inside))][self._pick(2)]
        del body[max(at, span.stop) : span.end]
        if self._chance() < 0.9:
            body[span.start : span.stop] = number(max(at - span.stop, 0))

    def _cut_body(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Truncate the records anywhere."""
        del body[self._pick(len(body) + 1) :]

    def _flip(self, seed: Seed | None, body: bytearray, checked: list[int]) -> None:
        """Change up to three bytes of the batch."""
        for _ in range(1 + self._pick(3)):
            if body:
                at = self._pick(len(body))
                byte = BYTES[self._pick(8)] if self._pick(2) else body[at] ^ 1 << self._pick(8)
                body[at] = byte

    def _field(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Change a field of the header."""
        at = self._pick(8)
        choice = _FIELDS[at]
        if at in (1, 7) and self._pick(2):
            checked[at] = max(checked[at] + self._pick(5) - 2, -1)
        else:
            checked[at] = choice[self._pick(len(choice))]
            if checked[1] == -1 and self._pick(2):
                checked[7] = 0  # then only the last offset is wrong

    def _count(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Claim more or fewer records, with enough offsets for them."""
        checked[7] = max(checked[7] + self._pick(7) - 3, 0)
        if self._chance() < 0.1:  # a huge count must not allocate memory
            checked[7] = (1 << 16, 1 << 24, (1 << 31) - 1)[self._pick(3)]
        checked[1] = max(checked[1], checked[7])

    def _double(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Repeat or insert some bytes."""
        at = self._pick(len(body) + 1)
        size = 1 + self._pick(12)
        body[at:at] = body[at : at + size] if self._pick(2) else bytes(size)

    def _drop(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Remove some bytes."""
        at = self._pick(len(body) + 1)
        del body[at : at + 1 + self._pick(12)]

    def _swap(self, seed: Seed, body: bytearray, checked: list[int]) -> None:
        """Continue with the records of another batch, from a record's start or from anywhere."""
        other = self._seeds[self._pick(len(self._seeds))]
        here, there = self._pick(len(body) + 1), self._pick(len(other.body) + 1)
        if seed.spans and other.spans and self._pick(2):
            here = seed.spans[self._pick(len(seed.spans))].end
            there = other.spans[self._pick(len(other.spans))].start
        body[here:] = other.body[there:]
        if self._pick(2):
            checked[7] += max(self._pick(4) - 1, 0)
            checked[1] = max(checked[1], checked[7])
