"""`send_arrow` with rows that fail: the result has a column with the error of each row."""

from __future__ import annotations

import random
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.simulation.produce_script import PARTITIONS, leader_of, make
from tests.volume import some

from odradek.clients.producer import row_errors
from odradek.common.errors import KafkaError, RecordTooLargeError
from odradek.common.types import TopicPartition
from odradek.record import partition_for_key
from odradek.simulation import SimulatedCluster


def written(cluster: SimulatedCluster, partition: int) -> list[int]:
    return [int(bytes(row[4] or b"").split(b"/")[0]) for row in cluster.records("t", partition)]


def failed_rows(column: pa.Array[Any] | None) -> list[int]:
    assert column is not None
    return [n for n, text in enumerate(column.to_pylist()) if text is not None]


def test_the_error_column_is_missing_without_errors() -> None:
    _, _, producer = make(1, replicas=1)
    future = producer.send_arrow("t", pa.table({"value": [b"1", b"2"]}))
    assert future.errors(timeout=10) is None
    assert sum(r.records for r in future.acknowledged()) == 2


def test_each_row_of_a_dead_partition_has_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small windows and batches, errors are assigned to the right rows across boundaries."""
    monkeypatch.setattr(row_errors, "WINDOW", 64)
    _, cluster, producer = make(
        2,
        replicas=1,
        **{"batch.size": 700, "delivery.timeout.ms": 3000, "request.timeout.ms": 1000},
    )
    producer.partitions_for("t", timeout=5)
    leader = leader_of(cluster, 1)
    cluster.crash(leader.id)  # the only replica
    dead = {p for p in range(PARTITIONS) if cluster.leader("t", p) in (leader, None)}
    rng = random.Random(3)
    keys = [b"%d" % rng.randrange(500) for _ in range(900)]
    table = pa.table({"key": keys, "value": [b"%d/" % n for n in range(900)]})
    data = pa.Table.from_batches([*table[:333].to_batches(), *table[333:].to_batches()])
    future = producer.send_arrow("t", data)
    column = future.errors(timeout=30)
    places = [partition_for_key(key, PARTITIONS) for key in keys]
    texts = [] if column is None else column.to_pylist()
    assert failed_rows(column) == [n for n, p in enumerate(places) if p in dead]
    assert column is not None
    assert len(column) == 900
    assert all(
        "may have been written" in str(text) or "not sent" in str(text) for text in texts if text
    )
    with pytest.raises(KafkaError):
        future.result()
    acknowledged = {r.partition.partition: r.records for r in future.acknowledged()}
    for p in set(range(PARTITIONS)) - dead:
        assert acknowledged[p] == places.count(p)
        assert written(cluster, p) == [n for n, place in enumerate(places) if place == p]
    again = data.append_column("error", column).filter(pc.is_valid(column))
    assert again.num_rows == sum(p in dead for p in places)
    frame = polars.from_arrow(data.append_column("error", column))
    assert isinstance(frame, polars.DataFrame)
    assert frame["error"].null_count() == 900 - again.num_rows


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_only_the_row_that_the_topic_refuses_fails(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is split until that row is alone; other rows are written, with or without keys."""
    monkeypatch.setattr(row_errors, "WINDOW", 50)
    rng = random.Random(seed)
    _, cluster, producer = make(seed, replicas=1, **{"batch.size": rng.choice((3000, 20000))})
    for partition in cluster.topics["t"].partitions:
        partition.log.max_message_bytes = 1500
    large = set(rng.sample(range(600), 5))
    keys = [None if rng.random() < 0.3 else b"%d" % rng.randrange(50) for _ in range(600)]
    texts = [b"%d/" % n + b"x" * (2000 if n in large else 10) for n in range(600)]
    future = producer.send_arrow("t", pa.table({"key": keys, "value": texts}))
    column = future.errors(timeout=60)
    assert set(failed_rows(column)) == large
    assert isinstance(future.exception(), RecordTooLargeError)
    assert sorted(n for p in range(PARTITIONS) for n in written(cluster, p)) == sorted(
        set(range(600)) - large
    )
    assert sum(r.records for r in future.acknowledged()) == 595
    for found in future.acknowledged():
        rows = cluster.records("t", found.partition.partition)
        assert found.partition == TopicPartition("t", found.partition.partition)
        assert found.last_offset < len(rows)


def test_memory_of_rows_is_released_with_their_batches() -> None:
    _, _, producer = make(5, replicas=1, **{"batch.size": 5000})
    future = producer.send_arrow(
        "t", pa.table({"key": [b"%d" % n for n in range(3000)], "value": [b"v"] * 3000})
    )
    future.result(timeout=10)
    assert not future._delivery.row_errors._failed
    assert not future._delivery.row_errors.texts
