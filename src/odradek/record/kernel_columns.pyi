from odradek.record.columns import ByteBuffer

SOURCES: str

class OwnedBlock:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class ColumnReader:
    def __init__(self, columns: bytes, most: int = ...) -> None: ...
    def add(self, schema: int, program: bytes | None, constants: bytes = ...) -> None: ...
    def read(
        self,
        data: ByteBuffer,
        offsets: ByteBuffer,
        validity: ByteBuffer | None,
        wide: bool,
        first: int,
        count: int,
        done: int,
        left: bytearray,
        room: int = ...,
    ) -> int: ...
    @property
    def unknown_schema(self) -> int: ...
    def column(
        self, index: int
    ) -> tuple[int, int, OwnedBlock | None, OwnedBlock | None, OwnedBlock | None]: ...
