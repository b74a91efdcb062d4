from odradek.record.columns import ByteBuffer

SOURCES: str
CRC_BY_INSTRUCTION: bool

def crc32c(data: ByteBuffer) -> int: ...
def crc32c_by_table(data: ByteBuffer) -> int: ...
