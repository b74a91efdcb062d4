from __future__ import annotations

import pytest

from odradek.common.errors import kafka as errors
from odradek.record import BatchBuilder, decode
from odradek.simulation.logs.partition_log import (
    MAX_MESSAGE_BYTES,
    MAX_SEQUENCE,
    PartitionLog,
    StoredBatch,
    check_batch,
    next_sequence,
)


def batch(
    *values: bytes, producer: int = -1, epoch: int = 0, sequence: int = 0, time: int = 1000
) -> bytes:
    builder = BatchBuilder(1 << 20, None)
    for i, value in enumerate(values):
        builder.append(None, value, (), time + i)
    if producer < 0:
        return bytes(builder.build())
    return bytes(builder.build(producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def append(log: PartitionLog, data: bytes, *, commit: bool = True, epoch: int = 0) -> StoredBatch:
    header = check_batch(data)
    stored = log.find_duplicate(header) or log.append(data, header, epoch)
    if commit:
        log.commit(stored)
    return stored


def values(log: PartitionLog) -> list[bytes | None]:
    return [row[4] for row in log.rows()]


def test_a_leader_epoch_that_ends_before_or_begins_after_an_offset_is_recognized() -> None:
    log = PartitionLog()
    append(log, batch(b"a", b"b"), epoch=3)
    append(log, batch(b"c"), epoch=5)
    ends = [[log.ends_before(epoch, position) for position in range(4)] for epoch in (3, 5)]
    begins = [[log.begins_after(epoch, position) for position in range(4)] for epoch in (3, 5)]
    assert ends == [[False, False, False, True], [False] * 4]
    assert begins == [[False] * 4, [True, True, False, False]]
    assert not log.begins_after(-1, 0)
    assert not PartitionLog().begins_after(5, 0)


def test_the_log_sets_offsets_and_leader_epoch_and_the_checksum_remains_valid() -> None:
    log = PartitionLog()
    append(log, batch(b"a", b"b"), epoch=3)
    second = append(log, batch(b"c"), epoch=4)
    assert (second.base_offset, second.last_offset, log.high_watermark) == (2, 2, 3)
    got = decode(memoryview(log.read(0, 1 << 20, whole_first=True)), start_offset=0)
    assert [row[0] for row in got.columns.rows()] == [0, 1, 2]
    assert got.last_leader_epoch == 4
    assert log.leader_epoch_at(1) == 3


def test_only_committed_batches_can_be_read() -> None:
    log = PartitionLog()
    append(log, batch(b"a"))
    append(log, batch(b"b"), commit=False)
    assert log.read(1, 1 << 20, whole_first=True) == b""
    assert values(log) == [b"a"]
    assert log.available(0) == len(log.batches[0].data)


def test_a_read_is_limited_in_bytes_except_for_its_first_batch() -> None:
    log = PartitionLog()
    for value in (b"x" * 100, b"y" * 100):
        append(log, batch(value))
    first, second = (len(b.data) for b in log.batches)
    assert len(log.read(0, 10, whole_first=True)) == first
    assert log.read(0, 10, whole_first=False) == b""
    assert len(log.read(0, first + 20, whole_first=True)) == first + 20
    assert len(log.read(1, 1 << 20, whole_first=True)) == second


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d[:-1], errors.CorruptMessageError),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), errors.CorruptMessageError),
        (lambda d: d + d, errors.InvalidRecordError),
        (lambda d: b"", errors.CorruptMessageError),
        (lambda d: b"x" * (MAX_MESSAGE_BYTES + 1), errors.MessageTooLargeError),
    ],
)
def test_a_corrupt_or_too_large_batch_is_rejected(change, error) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error):
        check_batch(change(batch(b"value")))


def test_a_repeated_batch_of_an_idempotent_producer_keeps_its_offset() -> None:
    log = PartitionLog()
    sent = [batch(b"%d" % i, producer=7, sequence=i) for i in range(7)]
    first = [append(log, data) for data in sent]
    for i in range(2, 7):  # the log remembers a producer's last five batches
        assert append(log, sent[i]) is first[i]
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        append(log, sent[1])
    assert log.end_offset == 7


def test_sequence_numbers_are_contiguous_and_start_at_zero_in_a_new_epoch() -> None:
    log = PartitionLog()
    append(log, batch(b"a", b"b", producer=7, sequence=0))
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        append(log, batch(b"d", producer=7, sequence=3))
    append(log, batch(b"c", producer=7, sequence=2))
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        append(log, batch(b"d", producer=7, epoch=1, sequence=3))
    append(log, batch(b"d", producer=7, epoch=1, sequence=0))
    with pytest.raises(errors.InvalidProducerEpochError):
        append(log, batch(b"e", producer=7, epoch=0, sequence=3))
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_an_unknown_producer_id_is_rejected_only_if_strict_producers_is_set() -> None:
    append(PartitionLog(), batch(b"a", producer=7, sequence=5))
    log = PartitionLog()
    log.strict_producers = True
    with pytest.raises(errors.UnknownProducerIdError):
        append(log, batch(b"a", producer=7, sequence=5))


def test_sequence_numbers_wrap_around() -> None:
    assert next_sequence(MAX_SEQUENCE, 1) == 0
    assert next_sequence(MAX_SEQUENCE - 1, 3) == 1


def test_a_crashed_leader_may_lose_its_last_uncommitted_batches() -> None:
    log = PartitionLog()
    append(log, batch(b"a", producer=7, sequence=0))
    told: list[tuple[bytes, bool]] = []
    for i, value in enumerate((b"b", b"c", b"d"), start=1):
        stored = append(log, batch(value, producer=7, sequence=i), commit=False)
        stored.when_settled(lambda ok, v=value: told.append((v, ok)))  # type: ignore[misc]
    log.leader_lost(keep=1)
    assert values(log) == [b"a", b"b"]
    assert (log.end_offset, log.high_watermark) == (2, 2)
    assert told == [(b"b", False), (b"c", False), (b"d", False)]
    append(log, batch(b"b", producer=7, sequence=1))  # a retry of a batch that was kept
    append(log, batch(b"c", producer=7, sequence=2))
    assert values(log) == [b"a", b"b", b"c"]


def test_a_batchs_commit_also_completes_earlier_batches_and_wakes_waiting_fetches() -> None:
    log = PartitionLog()
    told: list[bool] = []
    woken: list[int] = []
    log.on_commit[lambda: woken.append(log.high_watermark)] = None
    append(log, batch(b"a"), commit=False).when_settled(told.append)
    append(log, batch(b"b"), commit=True).when_settled(told.append)
    assert told == [True, True]
    assert woken == [2]


def test_offsets_are_found_by_timestamp() -> None:
    log = PartitionLog()
    append(log, batch(b"a", b"b", time=1000), epoch=1)
    append(log, batch(b"c", time=2000), epoch=2)
    append(log, batch(b"d", time=9000), commit=False)
    assert log.offset_for_timestamp(0) == (0, 1000, 1)
    assert log.offset_for_timestamp(1001) == (1, 1001, 1)
    assert log.offset_for_timestamp(1002) == (2, 2000, 2)
    assert log.offset_for_timestamp(2001) is None
    assert log.latest_timestamp() == (2, 2000, 2)
