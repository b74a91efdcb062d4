"""What a caller may give to `commit`, as offsets.

In: offsets by partition, records, Arrow data. Out: the offset behind the last of them, partition by
partition. Must not: know what is assigned, or import pyarrow before somebody has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek.clients.consumer.partition_arguments import one_partition
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.clients.consumer.subscription_state import MAX_OFFSET, check_partition
from odradek.common.errors import ConfigurationError
from odradek.common.types import TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]
ARROW_COLUMNS = ("topic", "partition", "offset")


def offsets_to_commit(given: Any) -> Offsets:
    """Read the argument of `commit`."""
    if isinstance(given, ConsumerRecord):
        return _behind_records([given])
    if isinstance(given, Mapping):
        return {(p := one_partition(tp)): _offset(p, offset) for tp, offset in given.items()}
    if hasattr(given, "schema") and hasattr(given, "column"):
        return _behind_rows(given)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        records = list(given)
        if all(isinstance(r, ConsumerRecord) for r in records):
            return _behind_records(records)
    raise ConfigurationError(
        "commit() takes offsets by TopicPartition, records of this consumer, an Arrow RecordBatch "
        f"or Table with {', '.join(ARROW_COLUMNS)}, or nothing; not {type(given).__name__}"
    )


def _offset(partition: TopicPartition, given: Any) -> OffsetAndMetadata:
    check_partition(partition)
    if isinstance(given, int) and not isinstance(given, bool):
        given = OffsetAndMetadata(given)
    if not isinstance(given, OffsetAndMetadata):
        raise ConfigurationError(
            f"the offset of {partition} must be a number or OffsetAndMetadata, not {given!r}"
        )
    if not 0 <= given.offset < MAX_OFFSET:
        raise ConfigurationError(f"the offset of {partition} must be 0 or more, not {given.offset}")
    return given


def _behind_records(records: Iterable[ConsumerRecord]) -> Offsets:
    found: Offsets = {}
    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        before = found.get(tp)
        if before is None or before.offset <= record.offset:
            found[tp] = OffsetAndMetadata(record.offset + 1, leader_epoch=record.leader_epoch)
    return found


def _behind_rows(data: Any) -> Offsets:
    missing = [name for name in ARROW_COLUMNS if name not in data.schema.names]
    if missing:
        raise ConfigurationError(
            f"commit() needs the columns topic, partition and offset; this batch has no "
            f"{' and no '.join(missing)}: add them to columns=, or commit() without an argument"
        )
    import pyarrow as pa

    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    last = (
        table.select(ARROW_COLUMNS).group_by(["topic", "partition"]).aggregate([("offset", "max")])
    )
    return {
        TopicPartition(row["topic"], row["partition"]): OffsetAndMetadata(row["offset_max"] + 1)
        for row in last.to_pylist()
        if row["offset_max"] is not None
    }
