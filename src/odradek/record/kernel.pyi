from collections.abc import Sequence
from typing import Any, TypeVar

from odradek.record.columns import (
    ByteBuffer,
    DecodedRecords,
    Headers,
    IntBuffer,
    Layout,
    PoolState,
    RawHeaders,
    RecordColumns,
)
from odradek.record.limits import Limits

_R = TypeVar("_R", bound=tuple[Any, ...])
_T = TypeVar("_T")

SOURCES: str

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
    limits: Limits = ...,
) -> DecodedRecords: ...
def apart(view: memoryview) -> memoryview: ...
def read_as_slots(cls: type[tuple[Any, ...]]) -> None: ...
def survey_batches(
    buffer: memoryview, offset: int
) -> tuple[int, int, int | None, bool, list[tuple[int, int]]]: ...
def binary_values(
    offsets: IntBuffer, data: ByteBuffer, validity: ByteBuffer | None, start: int, stop: int
) -> list[bytes | None]: ...
def build_rows(
    cls: type[_R],
    topic: str,
    partition: int,
    columns: RecordColumns,
    leader_epochs: int | Sequence[int],
    unread: type[_R] | None = None,
) -> list[_R]: ...
def blanks(cls: type[_T], count: int) -> list[_T]: ...
def become(things: list[Any], base: type, cls: type) -> None: ...
def collectable(thing: object) -> None: ...
def header_lists(
    offsets: IntBuffer, data: ByteBuffer, start: int, stop: int
) -> list[Headers | RawHeaders]: ...
def microseconds(milliseconds: IntBuffer, start: int, count: int) -> memoryview | None: ...
def wide_types(types: ByteBuffer, start: int, count: int) -> memoryview | None: ...

class ArrowBatch:
    @property
    def address(self) -> int: ...

def arrow_batch(
    columns: RecordColumns, wanted: bytes, topic: str, partition: int
) -> ArrowBatch | None: ...
def pool_state() -> PoolState: ...
def set_pool_limit(limit: int) -> None: ...
def crc32c(data: ByteBuffer) -> int: ...
def crc32c_by_table(data: ByteBuffer) -> int: ...
def text_hashes(data: Any, offsets: Any, found: Any) -> None: ...
