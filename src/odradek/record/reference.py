"""Convert record batches to columns and back, in short and simple Python code.

In: the records of one partition from a Fetch response. Out: `DecodedRecords`. Tests compare the
fast kernel with this decoder, which is used if no kernel is built. Every length is compared with
the remaining bytes, and each record and batch must end exactly where its length says. Must not:
keep a view of the buffer; the result owns its bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence

from odradek.common.errors import CorruptRecordError
from odradek.record import batch as b
from odradek.record.aborted import AbortedTransactions
from odradek.record.columns import (
    CREATE_TIME,
    LAYOUTS,
    LOG_APPEND_TIME,
    NO_TIMESTAMP_TYPE,
    BinaryColumn,
    DecodedRecords,
    HeaderColumn,
    Layout,
    RawHeaderColumn,
    RecordColumns,
    Row,
    ViewColumn,
)
from odradek.record.compression import Scratch, codec_number, compress, unpack
from odradek.record.limits import (
    DECOMPRESSED_LIMIT,
    HEADER_COST,
    NO_LIMITS,
    BeyondLimitError,
    Limits,
)
from odradek.record.varint import read_varint, write_varint

COLUMNS_LIMIT = DECOMPRESSED_LIMIT
"""Number of bytes after which decoding stops between two batches, so that int32 offsets suffice."""

_INT64_MIN = -(1 << 63)
_ABORT, _COMMIT = 0, 1
_PRESENT, _NULL = ord("1"), ord("0")
_LARGEST_OLD_CODEC = 3
_PREFIX, _INT32, _INT64 = struct.Struct(">qi"), struct.Struct(">i"), struct.Struct(">q")


class _Binary:
    """A column of byte strings to which entries are appended."""

    __slots__ = ("data", "offsets", "valid")

    def __init__(self) -> None:
        self.offsets = array("i", (0,))
        self.data = bytearray()
        # an ASCII digit per entry, as digits can be packed into bits without a loop
        self.valid = bytearray()

    def add(self, value: bytes | None) -> None:
        if value is None:
            self.valid.append(_NULL)
        else:
            self.valid.append(_PRESENT)
            self.data += value
        self.offsets.append(len(self.data))

    def cut(self, entries: int) -> None:
        """Remove all entries after the first `entries`."""
        del self.offsets[entries + 1 :], self.data[self.offsets[entries] :], self.valid[entries:]

    def finish(self) -> BinaryColumn:
        return BinaryColumn(self.offsets, bytes(self.data), _bitmap(self.valid))


def _bitmap(digits: bytearray) -> bytes | None:
    """Pack digits into Arrow's bits, lowest bit first; return None if no entry is null."""
    if _NULL not in digits:
        return None
    return int(digits[::-1], 2).to_bytes((len(digits) + 7) // 8, "little")


class _Columns:
    """All columns of a result, while rows are added; a corrupt batch's rows are removed again."""

    def __init__(
        self,
        want_key: bool,
        want_value: bool,
        want_headers: bool,
        raw_headers: bool = False,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.types = bytearray()
        self.keys = _Binary() if want_key else None
        self.values = _Binary() if want_value else None
        self.headers = want_headers
        self.limits = limits
        self.raw = bytearray() if raw_headers else None
        """Headers encoded as in the log, if requested instead of separate columns."""
        self.header_ends = array("i", (0,))
        self.header_keys = _Binary()
        self.header_values = _Binary()
        self.first_header = self.header_room = 0
        """Number of headers before the current batch; the maximum number with this batch."""

    def expect_headers(self, unpacked: int) -> int:
        """Begin a batch of `unpacked` decompressed bytes; return how many headers precede it."""
        self.first_header = len(self.header_keys.valid)
        self.header_room = self.first_header + self.limits.room_for_headers(unpacked)
        return self.first_header

    def add(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        self.offsets.append(offset)
        self.timestamps.append(timestamp)
        if self.keys is not None:
            self.keys.add(key)
        if self.values is not None:
            self.values.add(value)
        self.header_ends.append(len(self.header_keys.valid if self.raw is None else self.raw))

    def cut(self, count: int) -> None:
        """Remove all rows after the first `count`."""
        del self.offsets[count:], self.timestamps[count:], self.types[count:]
        for column in (self.keys, self.values):
            if column is not None:
                column.cut(count)
        del self.header_ends[count + 1 :]
        if self.raw is not None:
            del self.raw[self.header_ends[-1] :]
            return
        self.header_keys.cut(self.header_ends[-1])
        self.header_values.cut(self.header_ends[-1])

    def finish(self, layout: Layout) -> RecordColumns:
        headers: HeaderColumn | RawHeaderColumn | None = None
        if self.raw:
            headers = RawHeaderColumn(self.header_ends, bytes(self.raw))
        elif self.header_ends[-1]:
            ends = self.header_ends
            valid = bytearray(
                _PRESENT if ends[i] < ends[i + 1] else _NULL for i in range(len(self.offsets))
            )
            headers = HeaderColumn(
                ends, self.header_keys.finish(), self.header_values.finish(), _bitmap(valid)
            )
        laid_out = ViewColumn.of if layout == "binary_view" else (lambda column: column)
        return RecordColumns(
            count=len(self.offsets),
            offsets=self.offsets,
            timestamps_ms=self.timestamps,
            timestamp_types=bytes(self.types),
            keys=None if self.keys is None else laid_out(self.keys.finish()),
            values=None if self.values is None else laid_out(self.values.finish()),
            headers=headers,
        )


def _walk(
    header: b.BatchHeader, data: bytes, at: int, out: _Columns, low: int, high: int, room: int
) -> bool:
    """Check all records in `data[at:]`; add those with offsets in [low, high), at most `room`.

    Other records are checked, too, so that no row of a corrupt batch is ever returned. Returns
    whether a record wasn't added because of `room`.
    """
    size, added, expected, left_out = len(data), 0, 0, False
    base, last_delta = header.base_offset, header.last_offset_delta
    base_time, append_time = header.base_timestamp, header.log_append_time
    for _ in range(header.count):
        length, at = read_varint(data, at)
        if not 0 < length <= size - at:
            raise b.BadBatchError(
                f"the length of a record is {length}, but {size - at} bytes are left"
            )
        end = at + length
        # A number may be read beyond its record, but not beyond the batch; the check of the end
        # detects it.
        time_delta, at = _number(data, at + 1, 64)  # skip a byte of attributes, not used yet
        delta, at = _number(data, at)
        if not expected <= delta <= last_delta:
            raise b.BadBatchError(f"offset delta {delta} isn't in {expected} to {last_delta}")
        expected = delta + 1
        wanted = low <= base + delta < high
        keep = wanted and added < room
        key, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
        header_count, at = _number(data, at)
        if header_count:
            kept = out if keep and out.headers else None
            at = _headers(data, at, header_count, end, kept, base + delta)
        if at != end:
            raise b.BadBatchError(f"the fields of a record end {at - end:+} bytes from its end")
        timestamp = header.max_timestamp if append_time else base_time + time_delta
        if not _INT64_MIN <= timestamp <= b.INT64_MAX:
            raise b.BadBatchError("a timestamp doesn't fit into 64 bits")
        if keep:
            out.add(base + delta, timestamp, key, value)
            added += 1
        else:
            left_out = left_out or wanted
    if at != size:
        raise b.BadBatchError(f"{size - at} bytes follow its last record")
    out.types += bytes((LOG_APPEND_TIME if append_time else CREATE_TIME,)) * added
    return left_out


def _number(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Read a zigzag number, without a loop if it has one byte, as most numbers have."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return read_varint(data, at, bits)


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Read a length (-1 means null) and as many bytes, which must end before `end`."""
    byte = data[at]
    if byte < 0x80:
        length, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        length, at = read_varint(data, at)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise b.BadBatchError(
            f"the length of a key, value or header is {length}, but {end - at} bytes are left"
        )
    return data[at : at + length], at + length


def _headers(data: bytes, at: int, count: int, end: int, out: _Columns | None, offset: int) -> int:
    """Read one record's headers; replace invalid UTF-8 in their names, as Java does.

    Headers are written directly to the columns, as a record of 200 MB may claim to have 100 million
    headers. If headers aren't requested, their number isn't limited, because they aren't stored.
    """
    if not 0 <= count <= (end - at) // 2:
        raise b.BadBatchError(
            f"the header count of a record is {count}, but {end - at} bytes are left"
        )
    if out is not None and count > out.limits.headers:
        raise out.limits.too_many_headers(offset, count)
    if out is not None and out.raw is None:
        before = len(out.header_keys.valid)
        if count > out.header_room - before:
            raise out.limits.costly_headers(offset, before - out.first_header + count)
    first = at
    for _ in range(count):
        name, at = _bytes(data, at, end)
        if name is None:
            raise b.BadBatchError("a header has no name")
        value, at = _bytes(data, at, end)
        if out is not None and out.raw is None:
            if not name.isascii():
                name = name.decode("utf-8", "replace").encode()
            out.header_keys.add(name)
            out.header_values.add(value)
    if out is not None and out.raw is not None:
        out.raw += data[first:at]
    return at


def _open(header: b.BatchHeader, data: bytes, limits: Limits) -> tuple[bytes, int]:
    """Return a buffer with the records of a batch, decompressed if necessary, and their position.

    `data` is the part of the batch that the checksum covers.
    """
    at = b.HEADER_SIZE - b.CRC_START
    if header.codec == 0 or (header.count == 0 and len(data) == at):
        return data, at
    return unpack(header.codec, memoryview(data)[at:], Scratch(), limits).tobytes(), 0


def _is_abort_marker(header: b.BatchHeader, data: bytes) -> bool:
    """Return whether a control batch aborts a transaction, which its key's second number says."""
    data, at = _open(header, data, NO_LIMITS)
    marker = _Columns(want_key=True, want_value=False, want_headers=False)
    _walk(header, data, at, marker, 0, b.INT64_MAX, 1)
    key = marker.keys.finish().values(0, 1)[0] if marker.offsets and marker.keys else None
    if header.count and (key is None or len(key) < 4):
        raise b.BadBatchError("a control record has no type")
    return key is not None and int.from_bytes(key[2:4], "big", signed=True) == _ABORT


class OldMessage:
    """One message of format 0 or 1: a record, or a wrapper with compressed messages as value."""

    # Not a named tuple, whose creation would delay the start of every client.
    __slots__ = ("codec", "key", "magic", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        magic: int,
        attributes: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        self.offset, self.magic, self.timestamp = offset, magic, timestamp
        self.key, self.value = key, value
        self.codec = attributes & b.CODEC_MASK
        """The number of a wrapper's codec; 0 for a record."""


def _message_end(data: bytes, at: int, smallest: int = b.SMALLEST_MESSAGES[0]) -> int:
    """Return the end of the message at `at`, according to its length."""
    left = len(data) - at
    if left < b.SMALLEST_MESSAGES[0]:
        raise b.BadBatchError("a record runs past its end")
    _, length = _PREFIX.unpack_from(data, at)
    if not smallest <= length + b.LENGTH_END <= left:
        raise b.BadBatchError(
            f"the length of a record is {length}, but {left - b.LENGTH_END} bytes are left"
        )
    return at + b.LENGTH_END + int(length)


def read_message(data: bytes, at: int) -> tuple[OldMessage, int]:
    """Read and check the complete message at `at`; return it, and its end."""
    magic = data[at + b.MAGIC_AT]
    if magic >= b.MAGIC:
        raise b.BadBatchError(f"it contains a message of format {magic}")
    end = _message_end(data, at, b.SMALLEST_MESSAGES[magic])
    if b.message_crc(data[at:end]) != int.from_bytes(data[at + 12 : at + 16], "big"):
        raise b.BadBatchError("its checksum is wrong")
    (offset,), attributes, timestamp = _INT64.unpack_from(data, at), data[at + 17], -1
    at += 18
    if magic:
        (timestamp,), at = _INT64.unpack_from(data, at), at + 8
    key, at = _sized(data, at, end - 4)
    value, at = _sized(data, at, end)
    if at != end:
        raise b.BadBatchError(f"the fields of a record end {at - end:+} bytes from its end")
    return OldMessage(offset, magic, attributes, timestamp, key, value), end


def _sized(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Read a four-byte length (-1 means null) and as many bytes, which must end before `end`."""
    (length,), at = _INT32.unpack_from(data, at), at + 4
    if not -1 <= length <= end - at:
        raise b.BadBatchError(
            f"the length of a key, value or header is {length}, but {end - at} bytes are left"
        )
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _unwrap(wrapper: OldMessage, limits: Limits) -> tuple[bytes, int, int]:
    """Decompress a wrapper; return its messages, their base offset and the last offset.

    Messages in a wrapper of format 1 have numbers from 0 on, after compaction with gaps; the
    wrapper has the offset of its last message. In format 0, messages have their own offsets.
    """
    if wrapper.codec > _LARGEST_OLD_CODEC:
        raise b.BadBatchError(f"it has the unknown codec number {wrapper.codec}")
    if wrapper.value is None:
        raise b.BadBatchError("it is compressed, but has no value")
    data = unpack(wrapper.codec, memoryview(wrapper.value), Scratch(), limits).tobytes()
    at = count = 0
    last = -1
    while at < len(data):
        end = _message_end(data, at)
        (last,) = _INT64.unpack_from(data, at)
        count, at = count + 1, end
    if not count:
        raise b.BadBatchError("it contains no message")
    limits.check_count(count)
    if not 0 <= last <= wrapper.offset:
        raise b.BadBatchError(f"offset delta {last} isn't in 0 to {wrapper.offset}")
    return data, wrapper.offset - last if wrapper.magic else 0, last


class _Decoding:
    """The state of one call of `decode`: the requested offsets, the position and the result."""

    def __init__(
        self, start: int, until: int | None, aborted: Sequence[tuple[int, int]], out: _Columns
    ) -> None:
        self.out = out
        self.transactions = AbortedTransactions(aborted)
        self.position = start
        self.until = b.INT64_MAX if until is None else until
        self.at = 0
        self.decompressed = 0
        self.batches = self.control = self.hidden = 0
        self.epoch = b.NO_LEADER_EPOCH
        self.needed: int | None = None

    def next_batch(self, buffer: memoryview) -> b.BatchHeader | None:
        """Return the header of the next batch if it is complete and begins before `until`."""
        size = b.batch_size(buffer, self.at)
        if size is None or size > len(buffer) - self.at:
            self.needed = size if self.at == 0 else None
            return None
        header = b.read_header(buffer, self.at)
        # The first offset in a wrapper is only known after decompression.
        first = 0 if header.magic < b.MAGIC and header.codec else header.base_offset
        if first >= self.until:
            self.position = max(self.position, self.until)
            return None
        return header

    def take(self, buffer: memoryview, header: b.BatchHeader, room: int) -> bool:
        """Consume one batch; return False if part of it is left, because of `room` or `until`."""
        take = self._take_message if header.magic < b.MAGIC else self._take_batch
        left_out = take(buffer, header, room)
        self.epoch = header.leader_epoch
        if left_out:
            self.position = self.out.offsets[-1] + 1
            return False
        self.position = max(self.position, min(header.last_offset + 1, self.until))
        if header.last_offset >= self.until:
            return False
        self.at += header.size
        self.batches += 1
        return True

    def _take_message(self, buffer: memoryview, header: b.BatchHeader, room: int) -> bool:
        """Add a message's records (format 0 or 1); return whether `room` was too small for all."""
        data = buffer[self.at : self.at + header.size].tobytes()
        outer, _ = read_message(data, 0)
        if header.last_offset < self.position:
            return False
        base, last = 0, outer.offset
        if outer.codec:
            data, base, last = _unwrap(outer, self.out.limits)
        self.decompressed += len(data)
        at = expected = added = 0
        left_out = False
        while at < len(data):
            message, at = read_message(data, at)
            if outer.codec and message.codec:
                raise b.BadBatchError("it contains a compressed message")
            if not expected <= message.offset <= last:
                raise b.BadBatchError(
                    f"offset delta {message.offset} isn't in {expected} to {last}"
                )
            expected = message.offset + 1
            offset = base + message.offset
            if not self.position <= offset < self.until:
                continue
            if added == room:
                left_out = True
                continue
            added += 1
            timestamp, kind = message.timestamp, CREATE_TIME
            if message.magic == 0:
                kind = NO_TIMESTAMP_TYPE
            elif header.log_append_time:
                timestamp, kind = header.max_timestamp, LOG_APPEND_TIME
            self.out.add(offset, timestamp, message.key, message.value)
            self.out.types.append(kind & 0xFF)
        return left_out

    def _take_batch(self, buffer: memoryview, header: b.BatchHeader, room: int) -> bool:
        """Add a batch's records, unless they are invisible; return whether `room` was too small."""
        data = buffer[self.at + b.CRC_START : self.at + header.size].tobytes()
        if b.crc32c(data) != header.crc:
            raise b.BadBatchError("its checksum is wrong")
        left_out = False
        self.transactions.advance(header)
        if header.control:
            if self.transactions.open_for(header) and _is_abort_marker(header, data):
                self.transactions.end(header)
            self.control += 1
        elif header.transactional and self.transactions.open_for(header):
            self.hidden += 1
        elif header.last_offset >= self.position:
            self.out.limits.check_count(header.count)
            data, at = _open(header, data, self.out.limits)
            self.decompressed += len(data)
            before = self.out.expect_headers(0 if at else len(data))
            left_out = _walk(header, data, at, self.out, self.position, self.until, room)
            if self.out.raw is None:
                self.decompressed += HEADER_COST * (self.out.header_ends[-1] - before)
        return left_out

    def full(self, header: b.BatchHeader, enough: int) -> bool:
        """Return whether no further batch may be decoded in this call."""
        rows = len(self.out.offsets)
        return rows >= enough or (rows > 0 and self.decompressed + header.size > COLUMNS_LIMIT)

    def run(self, buffer: memoryview, most: int, enough: int) -> bool:
        """Decode the available batches; return True if nothing is left for another call.

        An error after good batches is raised by the next call, which begins with the bad batch.
        """
        while True:
            rows = len(self.out.offsets)
            base_offset = -1
            try:
                header = self.next_batch(buffer)
                if header is None:
                    return True
                base_offset = header.base_offset
                if self.full(header, enough):
                    return False
                if not self.take(buffer, header, most - rows):
                    return self.position >= self.until
            except CorruptRecordError:
                if not self.batches:
                    raise
            except BeyondLimitError as error:
                if not self.batches:
                    raise error.of(base_offset) from None
            except (b.BadBatchError, IndexError) as error:
                if not self.batches:
                    reason = "a record runs past its end"
                    reason = reason if isinstance(error, IndexError) else str(error)
                    raise b.corrupt(base_offset, reason) from error
            else:
                continue
            self.out.cut(rows)
            return False


def decode(
    buffer: memoryview,
    *,
    start_offset: int,
    until_offset: int | None = None,
    aborted: Sequence[tuple[int, int]] = (),
    want_key: bool = True,
    want_value: bool = True,
    want_headers: bool = True,
    raw_headers: bool = False,
    max_records: int | None = None,
    stop_after: int | None = None,
    layout: Layout = "binary",
    limits: Limits = NO_LIMITS,
) -> DecodedRecords:
    """Decode one partition's records from `start_offset` up to, not including, `until_offset`.

    `aborted` contains (producer id, first offset) of aborted transactions, for read_committed.
    `max_records` is an exact limit, even within a batch, which the next call then decodes again.
    With `stop_after`, decoding stops after the batch that reaches this number of rows: no batch is
    decoded twice, and the caller slices the columns. With the layout `binary_view`, keys and values
    are `ViewColumn`s, which may keep the whole buffer in memory.

    With `raw_headers`, headers remain encoded, in a `RawHeaderColumn`. A batch beyond `limits`
    raises `RecordLimitError`.

    A corrupt batch raises `CorruptRecordError` if it is the first one. After good batches, it ends
    the call with `finished=False`, so that the next call raises the error.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; use {', '.join(LAYOUTS)}")
    out = _Columns(want_key, want_value, want_headers, raw_headers, limits)
    work = _Decoding(start_offset, until_offset, aborted, out)
    most = b.INT64_MAX if max_records is None else max_records
    finished = work.run(
        memoryview(buffer), most, most if stop_after is None else min(most, stop_after)
    )
    return DecodedRecords(
        columns=out.finish(layout),
        next_offset=work.position,
        finished=finished,
        batches=work.batches,
        control_batches=work.control,
        aborted_batches=work.hidden,
        bytes_consumed=work.at,
        last_leader_epoch=work.epoch,
        needed_bytes=work.needed,
        aborted_left=work.transactions.left(),
    )


def _write_bytes(value: bytes | None) -> bytes:
    return write_varint(-1) if value is None else write_varint(len(value)) + value


def encode(
    rows: Iterable[Row],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: str | None = None,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = b.NO_PRODUCER_ID,
    producer_epoch: int = b.NO_PRODUCER_EPOCH,
    base_sequence: int = b.NO_SEQUENCE,
    leader_epoch: int = b.NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Encode rows as one batch, as logs of brokers may contain it (with gaps, append time …).

    Base and last offset are those of the rows unless given (compaction keeps a batch's range).
    Without rows, the batch is empty, and `base_offset` must be given.
    """
    rows = list(rows)
    first = rows[0][0] if base_offset is None else base_offset
    last = (rows[-1][0] if rows else first) if last_offset is None else last_offset
    base_time = rows[0][1] if rows else -1
    records = bytearray()
    for offset, timestamp_ms, _, key, value, headers in rows:
        record = b"\0" + write_varint(timestamp_ms - base_time) + write_varint(offset - first)
        record += _write_bytes(key) + _write_bytes(value) + write_varint(len(headers))
        for name, content in headers:
            record += _write_bytes(name.encode()) + _write_bytes(content)
        records += write_varint(len(record)) + record
    codec = codec_number(compression, level)
    packed = compress(codec, level, memoryview(records)) if codec else records
    attributes = codec | (b.TRANSACTIONAL if transactional else 0) | (b.CONTROL if control else 0)
    attributes |= 0 if log_append_time_ms is None else b.LOG_APPEND_TIME
    latest = max((row[1] for row in rows), default=-1)
    buffer = bytearray(b.HEADER_SIZE) + packed
    b.seal(
        buffer,
        attributes=attributes,
        last_offset_delta=last - first,
        base_timestamp=base_time,
        max_timestamp=latest if log_append_time_ms is None else log_append_time_ms,
        count=len(rows),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=first,
        leader_epoch=leader_epoch,
    )
    return bytes(buffer)


def encode_marker(
    offset: int, timestamp_ms: int, *, producer_id: int, producer_epoch: int, commit: bool
) -> bytes:
    """Encode the control batch by which a broker ends a transaction."""
    key = b"\0\0" + (_COMMIT if commit else _ABORT).to_bytes(2, "big")
    value = bytes(6)  # version and coordinator epoch
    return encode(
        [(offset, timestamp_ms, CREATE_TIME, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
