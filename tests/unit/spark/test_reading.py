"""How a task reads its offset range: exactly its offsets, in limited batches, with timeouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.conftest import ID_1, ID_3, P0, options

from odradek.common.errors import AuthenticationError, KafkaTimeoutError
from odradek.common.errors.kafka import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.spark.checkpoint_errors import (
    DataLossError,
    NoProgressError,
    OutageError,
    TimestampRangeError,
)
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.tasks import reading
from odradek.spark.tasks.reading import Gatherer, RangeReader
from odradek.spark.values.schema import arrow_schema, check_schema, full_schema

SCHEMA = full_schema(include_headers=True)


def read(
    cluster: Any,
    clock: Any,
    start: int,
    until: int,
    *,
    columns: Sequence[str] = ("offset",),
    lose: bool = True,
    topic_id: str = ID_1,
    **more: str,
) -> list[pa.RecordBatch]:
    given = {"failOnDataLoss": str(lose), "outageTolerance": "300s", **more}
    consumer = cluster.connect({})
    reader = RangeReader(
        consumer, KafkaOffsetRange(P0, start, until), topic_id, options(**given), clock
    )
    full = arrow_schema(SCHEMA)
    target = pa.schema([full.field(name) for name in columns])
    return list(reader.batches(columns, target))


@pytest.fixture
def consumer(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a consumer that all reads in a test share."""
    found = cluster.connect({})
    monkeypatch.setattr(cluster, "connect", lambda _: found)
    return found


def offsets(batches: list[pa.RecordBatch]) -> list[Any]:
    return [o for batch in batches for o in batch.column("offset").to_pylist()]


def test_exactly_the_offsets_of_a_range_are_read(cluster: Any, clock: Any) -> None:
    cluster.per_poll = 7
    batches = read(cluster, clock, 13, 58)
    assert offsets(batches) == list(range(13, 58))
    assert len(batches) == 1  # small batches are joined


def test_batches_have_exactly_the_schema_that_spark_expects(cluster: Any, clock: Any) -> None:
    (batch,) = read(cluster, clock, 0, 4, columns=check_schema(SCHEMA))
    wanted = arrow_schema(SCHEMA)
    assert batch.schema.equals(wanted)
    assert batch.schema.field("headers").type.value_field.name == "element"
    rows = batch.to_pylist()
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert (rows[1]["headers"], rows[1]["key"]) == (None, None)


@pytest.mark.parametrize("gaps", [{3, 4, *range(90, 100)}, set(range(100))])
def test_offsets_removed_by_compaction_are_skipped_without_waiting(
    cluster: Any, clock: Any, gaps: set[int]
) -> None:
    cluster.gaps[P0] = gaps
    assert offsets(read(cluster, clock, 0, 100)) == sorted(set(range(100)) - gaps)


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("lasts", [4, 6, 119, 121, 125, 130, 150, 250, 290])
def test_reading_continues_soon_after_an_outage_ends(
    cluster: Any, clock: Any, lasts: int, through: bool
) -> None:
    cluster.down_until, cluster.waits_through = clock.now() + lasts, through
    assert offsets(read(cluster, clock, 0, 100)) == list(range(100))
    assert clock.now() - 1000 <= lasts + (2 if through else 12)


def test_the_timeout_for_a_partition_without_records_starts_when_an_outage_ends(
    cluster: Any, clock: Any, caplog: Any
) -> None:
    cluster.down_until, cluster.waits_through, cluster.stuck = clock.now() + 200, True, True
    with pytest.raises(NoProgressError, match="for 12. s although its broker answers"):
        read(cluster, clock, 5, 100)
    assert 320 <= clock.now() - 1000 < 332
    assert 4 <= caplog.text.count("no broker has answered") <= 6


@pytest.mark.parametrize(
    ("change", "error", "option", "limit"),
    [
        ({"down_until": math.inf}, OutageError, "outageTolerance", 300),
        ({"stuck": True}, NoProgressError, "pollTimeoutMs", 120),
    ],
    ids=["an outage", "a silent partition on a live broker"],
)
def test_timeout_errors_name_the_partition_and_the_option(
    cluster: Any, clock: Any, change: Any, error: type[Exception], option: str, limit: int
) -> None:
    vars(cluster).update(change)
    begun = clock.now()
    with pytest.raises(error, match=rf"t-0 .*offset 5 .*{option}.*\n.*explanation"):
        read(cluster, clock, 5, 100)
    assert limit <= clock.now() - begun < limit + 20


@pytest.mark.parametrize(
    ("topic_id", "log", "loss"),
    [
        (ID_3, (0, 100), "recreated"),
        (ID_1, (40, 100), r"isn't in the log, which has offsets 40 to 100"),
        (ID_1, (0, 3), r"isn't in the log, which has offsets 0 to 3"),
        (ID_1, (0, 5), r"isn't in the log, which has offsets 0 to 5"),
    ],
)
def test_the_log_of_a_partition_without_records_is_checked_before_its_timeout_ends(
    cluster: Any,
    consumer: Any,
    clock: Any,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
    topic_id: str,
    log: tuple[int, int],
    loss: str,
) -> None:
    """The client's metadata may be older than a recreated topic or a truncated log."""
    monkeypatch.setattr(reading, "known_topic_id", lambda *_: ID_1)
    silent = pa.RecordBatch.from_pydict({"offset": pa.array([], pa.int64())})
    monkeypatch.setattr(consumer, "poll_arrow", lambda **given: clock.pause(1) or silent)
    cluster.topics["t"] = (topic_id, {0: log})
    begun = clock.now()
    with pytest.raises(DataLossError, match=loss):
        read(cluster, clock, 5, 60)
    assert clock.now() - begun < 20
    if log[0] <= 5:
        assert read(cluster, clock, 5, 60, lose=False) == []
        assert "because failOnDataLoss is false" in caplog.text


def test_records_deleted_by_retention_are_data_loss(cluster: Any, clock: Any, caplog: Any) -> None:
    cluster.topics["t"][1][0] = (40, 100)
    with pytest.raises(DataLossError, match=r"t-0: offset 5 .*5 to 60.*40 to 100"):
        read(cluster, clock, 5, 60)
    assert offsets(read(cluster, clock, 5, 60, lose=False)) == list(range(40, 60))
    assert "t-0" in caplog.text
    assert read(cluster, clock, 5, 30, lose=False) == []
    cluster.topics["t"][1][0] = (0, 50)  # a truncated log
    with pytest.raises(DataLossError, match="0 to 50"):
        read(cluster, clock, 60, 70)
    assert read(cluster, clock, 60, 70, lose=False) == []


def test_the_log_start_is_looked_up_again_after_an_outage(
    cluster: Any, consumer: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topics["t"][1][0] = (40, 100)
    real, begun = consumer.beginning_offsets, clock.now()

    def falls(partitions: Any, timeout: float) -> Any:
        if clock.now() == begun:
            cluster.down_until = begun + 200
        return real(partitions, timeout)

    monkeypatch.setattr(consumer, "beginning_offsets", falls)
    assert offsets(read(cluster, clock, 5, 60, lose=False)) == list(range(40, 60))
    assert 200 <= clock.now() - begun < 220


def test_lookups_back_off_while_a_leader_returns_offset_out_of_range(
    cluster: Any, consumer: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = consumer.poll_arrow, clock.now()

    def late(**given: Any) -> Any:
        if clock.now() < begun + 1:
            raise OffsetOutOfRangeError("t-0 at 0")
        return real(**given)

    monkeypatch.setattr(consumer, "poll_arrow", late)
    assert offsets(read(cluster, clock, 0, 50)) == list(range(50))
    assert cluster.calls.count("end") <= 11


@pytest.mark.parametrize("partitions", [None, {1: (10, 20)}])
def test_a_partition_deleted_while_it_is_read_is_data_loss(
    cluster: Any,
    consumer: Any,
    clock: Any,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
    partitions: Any,
) -> None:
    cluster.per_poll = 30
    real = consumer.poll_arrow

    def gone(**given: Any) -> Any:
        if consumer.position(P0) < 60:
            return real(**given)
        cluster.topics = {} if partitions is None else {"t": (ID_1, partitions)}
        clock.at += given["timeout"]
        return None

    def unanswered(tps: Any, timeout: float) -> Any:
        clock.at += timeout
        raise KafkaTimeoutError("t-0 (UNKNOWN_TOPIC_OR_PARTITION)")

    monkeypatch.setattr(consumer, "poll_arrow", gone)
    monkeypatch.setattr(consumer, "end_offsets", unanswered)
    begun, topics = clock.now(), cluster.topics
    with pytest.raises(DataLossError, match=r"t-0 no longer exists .*UNKNOWN_TOPIC_OR_PARTITION"):
        read(cluster, clock, 0, 100)
    assert 10 <= clock.now() - begun < 40
    cluster.topics = topics
    assert offsets(read(cluster, clock, 0, 100, lose=False)) == list(range(60))
    assert "its range is skipped because failOnDataLoss is false" in caplog.text


def test_a_topic_that_is_unknown_for_a_moment_is_still_read(
    cluster: Any, consumer: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = consumer.describe, iter([True, False, True, False])

    def describe(topics: Any, timeout: float) -> Any:
        if next(looks, False):
            raise UnknownTopicOrPartitionError("t")
        return real(topics, timeout)

    def unanswered(tps: Any, timeout: float) -> Any:
        clock.at += timeout
        if clock.now() > 1080:
            cluster.stuck = False
        raise KafkaTimeoutError("t-0")

    cluster.stuck = True
    monkeypatch.setattr(consumer, "describe", describe)
    monkeypatch.setattr(consumer, "end_offsets", unanswered)
    assert offsets(read(cluster, clock, 0, 50)) == list(range(50))


def test_a_recreated_topic_is_skipped_if_fail_on_data_loss_is_false(
    cluster: Any, clock: Any, caplog: Any
) -> None:
    with pytest.raises(DataLossError, match=rf"{ID_3}.*{ID_1}"):
        read(cluster, clock, 0, 50, topic_id=ID_3)
    assert read(cluster, clock, 0, 50, topic_id=ID_3, lose=False) == []
    assert "poll" not in cluster.calls
    assert f"planned with topic id {ID_3}" in caplog.text


@pytest.mark.parametrize("rows", [0, 20])
def test_a_topic_recreated_during_a_task_fails_it_only_if_it_has_returned_rows(
    cluster: Any, consumer: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    real = consumer.poll_arrow
    cluster.per_poll = 20

    def anew(**given: Any) -> Any:
        if consumer.position(P0) >= rows:
            cluster.topics["t"] = (ID_3, {0: (0, 3)})
            raise OffsetOutOfRangeError("t-0")
        return real(**given)

    monkeypatch.setattr(consumer, "poll_arrow", anew)
    if not rows:
        assert read(cluster, clock, 0, 50, lose=False) == []
        return
    with pytest.raises(DataLossError, match="start the query again") as caught:
        read(cluster, clock, 0, 50, lose=False)
    assert "set option failOnDataLoss" not in str(caught.value)


def test_an_error_that_is_not_retriable_fails_the_task(
    cluster: Any, consumer: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def refuse(**_: object) -> None:
        raise AuthenticationError("no")

    monkeypatch.setattr(consumer, "poll_arrow", refuse)
    with pytest.raises(AuthenticationError):
        read(cluster, clock, 0, 50)


def chunk(rows: int, size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([b"x" * size] * rows, pa.binary())})


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([1] * 10, [10]),
        ([reading.ENOUGH_ROWS], [reading.ENOUGH_ROWS]),
        ([10_000, 10_000, 5], [20_000, 5]),
        ([5, reading.MOST_ROWS], [5, reading.MOST_ROWS]),
        ([5, reading.MOST_ROWS * 2 + 1], [5, 43691, 43691, 43691]),
    ],
)
def test_small_batches_are_joined_and_large_ones_split(sizes: list[int], wanted: list[int]) -> None:
    gatherer = Gatherer()
    found = [b for rows in sizes for b in gatherer.add(chunk(rows))]
    found += gatherer.flush()
    assert [b.num_rows for b in found] == wanted
    assert all(isinstance(b, pa.RecordBatch) for b in found)


@pytest.mark.slow
def test_batches_of_large_records_are_split_by_bytes() -> None:
    gatherer = Gatherer()
    found = [*gatherer.add(chunk(100, 1 << 20)), *gatherer.flush()]
    assert sum(b.num_rows for b in found) == 100
    assert max(b.nbytes for b in found) <= reading.MOST_BYTES * 1.1
    assert len(found) == 4


def test_a_batch_of_large_and_small_records_is_split_by_bytes() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"x" * (1 << 20)] * 80 + [b"y"] * 1000, pa.binary())}
    )
    found = list(Gatherer().add(batch))
    assert (
        pa.Table.from_batches(found)
        .column("value")
        .equals(pa.chunked_array([batch.column("value")]))
    )
    assert max(b.nbytes for b in found) <= reading.MOST_BYTES


def test_a_record_above_the_batch_limit_gets_its_own_batch() -> None:
    found = list(Gatherer().add(chunk(3, reading.MOST_BYTES + 1)))
    assert [b.num_rows for b in found] == [1, 1, 1]


WILD = 10**17


def test_the_error_for_an_out_of_range_timestamp_names_the_record(cluster: Any, clock: Any) -> None:
    cluster.wild = {7: WILD, 9: -WILD}
    words = (
        rf"t-0: the record at offset 7 has the timestamp {WILD} ms, .*outOfRangeTimestamps to null"
    )
    with pytest.raises(TimestampRangeError, match=words):
        read(cluster, clock, 5, 20, columns=("timestamp",))
    assert offsets(read(cluster, clock, 5, 20)) == list(range(5, 20))  # the column isn't read


def test_the_error_for_an_out_of_range_timestamp_names_the_offset_during_an_outage(
    cluster: Any, consumer: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.wild = {7: WILD}
    real = consumer.poll_arrow

    def then_falls(**given: Any) -> Any:
        found = real(**given)
        cluster.down_until = clock.now() + 1000
        return found

    monkeypatch.setattr(consumer, "poll_arrow", then_falls)
    with pytest.raises(TimestampRangeError, match="offset 7 has a timestamp, which"):
        read(cluster, clock, 5, 20, columns=("timestamp",))


def test_an_out_of_range_timestamp_becomes_null_if_out_of_range_timestamps_is_null(
    cluster: Any, clock: Any
) -> None:
    cluster.wild = {7: WILD}
    [batch] = read(
        cluster, clock, 6, 9, columns=("timestamp", "offset"), outOfRangeTimestamps="null"
    )
    assert [t is None for t in batch.column("timestamp").to_pylist()] == [False, True, False]
