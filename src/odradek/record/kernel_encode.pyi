from odradek.record.builder import BatchBuilder as BatchBuilder
from odradek.record.columns import ByteBuffer
from odradek.record.encoder import ColumnEncoder as ColumnEncoder
from odradek.record.open_batches import Notes as Notes
from odradek.record.open_batches import OpenBatches as OpenBatches
from odradek.record.open_batches import Room as Room
from odradek.record.open_batches import build_reports as build_reports
from odradek.record.sent_columns import gather as gather
from odradek.record.sent_columns import only_bytes as only_bytes

SOURCES: str

def murmur2(data: ByteBuffer) -> int: ...
def partition_for_key(key: ByteBuffer, partitions: int) -> int: ...
def pool_state() -> tuple[int, int, int, int, int]: ...
def set_pool_limit(limit: int) -> None: ...
