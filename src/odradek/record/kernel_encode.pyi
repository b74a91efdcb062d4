from odradek.record.builder import BatchBuilder as BatchBuilder
from odradek.record.columns import ByteBuffer
from odradek.record.encoder import ColumnEncoder as ColumnEncoder

SOURCES: str

def murmur2(data: ByteBuffer) -> int: ...
def partition_for_key(key: ByteBuffer, partitions: int) -> int: ...
