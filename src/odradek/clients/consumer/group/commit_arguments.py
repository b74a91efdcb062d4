"""Check the arguments of `commit` and `send_offsets_to_transaction`.

In: offsets by partition, records, Arrow data. Out: by partition, the offset after the last record.
Must not: know what is assigned, or import pyarrow unless the caller has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek.clients.consumer.partition_arguments import offset_number, one_partition
from odradek.clients.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
)
from odradek.common.arguments import INT32_MAX, is_list, refusal, shown, text, whole_number
from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.common.types import TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]
ARROW_COLUMNS = ("topic", "partition", "offset")


def offsets_to_commit(given: Any, call: str = "commit()") -> Offsets:
    """Check the offsets argument of `commit`, or of `call`, and return offsets by partition."""
    if isinstance(given, ConsumerRecord):
        return _behind_records([given])
    if isinstance(given, Mapping):
        return _offsets(given)
    if hasattr(given, "schema") and hasattr(given, "column"):
        return _behind_rows(given, call)
    if is_list(given):
        records = list(given)
        if all(isinstance(r, ConsumerRecord) for r in records):
            return _behind_records(records)
    raise ArgumentError(
        f"{call} takes offsets by TopicPartition, a list of ConsumerRecord, or an Arrow "
        f"RecordBatch or Table with {', '.join(ARROW_COLUMNS)}; not {type(given).__name__}"
    )


def group_to_send_to(given: Any) -> ConsumerGroupMetadata:
    """Check the group of `send_offsets_to_transaction`: a consumer's group metadata or an id."""
    if isinstance(given, str):
        return ConsumerGroupMetadata(group_id(given))
    if not isinstance(given, ConsumerGroupMetadata):
        cure = "pass consumer.group_metadata()" if hasattr(given, "group_metadata") else ""
        raise refusal(
            "group", "the result of consumer.group_metadata(), or a group id", given, cure
        )
    instance = given.group_instance_id
    return ConsumerGroupMetadata(
        group_id(given.group_id),
        whole_number("generation_id of the group", given.generation_id, -1, INT32_MAX),
        text("member_id of the group", given.member_id),
        None if instance is None else text("group_instance_id of the group", instance),
    )


def group_id(given: Any) -> str:
    """Check an argument that is a group id, and return it."""
    found = text("group", given)
    if not found:
        raise ConfigurationError("group is empty: pass a group id")
    return found


def _offsets(given: Mapping[Any, Any]) -> Offsets:
    return {(p := one_partition(tp)): _offset(p, offset) for tp, offset in given.items()}


def _offset(partition: TopicPartition, given: Any) -> OffsetAndMetadata:
    name = f"the offset of {partition}"
    if not isinstance(given, OffsetAndMetadata):
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise ArgumentError(f"{name} must be a number or OffsetAndMetadata, not {shown(given)}")
        return OffsetAndMetadata(offset_number(name, given))
    offset = offset_number(name, given.offset)
    epoch = whole_number(f"leader_epoch at {name}", given.leader_epoch, -1, INT32_MAX)
    return OffsetAndMetadata(offset, text(f"metadata at {name}", given.metadata), epoch)


def _behind_records(records: Iterable[ConsumerRecord]) -> Offsets:
    found: dict[tuple[str, int], ConsumerRecord] = {}
    for record in records:
        offset_number("the offset of a record", record.offset)
        tp = one_partition((record.topic, record.partition))
        before = found.get(tp)
        if before is None or before.offset <= record.offset:
            found[tp] = record
    return {
        TopicPartition(*tp): OffsetAndMetadata(
            offset_number(f"record.offset + 1 for {tp}", int(last.offset) + 1),
            leader_epoch=whole_number("leader_epoch", last.leader_epoch, -1, INT32_MAX),
        )
        for tp, last in found.items()
    }


def _behind_rows(data: Any, call: str) -> Offsets:
    missing = [name for name in ARROW_COLUMNS if name not in data.schema.names]
    if missing:
        raise ConfigurationError(
            f"{call} needs the columns topic, partition and offset; this batch has no "
            f"{' and no '.join(missing)}: add them to columns=, or pass offsets by TopicPartition"
        )
    import pyarrow as pa

    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise refusal("offsets", "an Arrow RecordBatch or Table", data)
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    try:
        grouped = table.select(ARROW_COLUMNS).group_by(["topic", "partition"])
        last = grouped.aggregate([("offset", "max")]).to_pylist()
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise ConfigurationError(f"{call} can't read the columns: {error}") from None
    return {
        one_partition((row["topic"], row["partition"])): OffsetAndMetadata(
            offset_number("the offset after a row", row["offset_max"]) + 1
        )
        for row in last
        if row["offset_max"] is not None
    }
