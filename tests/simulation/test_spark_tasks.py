"""A Spark task beside a simulated cluster: what it does when the log is cut under it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.test_spark_sink_abort import Clock

from odradek.common.types import TopicPartition
from odradek.simulation.brokers.broker_faults import unclean_election
from odradek.spark.checkpoint_errors import DataLossError
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.source_options import BATCH, parse_options
from odradek.spark.tasks import reading
from odradek.spark.tasks.reading import RangeReader
from odradek.spark.values.schema import arrow_schema, full_schema
from odradek.testing.simulated import KafkaSimulation

TP = TopicPartition("t", 0)


def wrote(simulation: KafkaSimulation, word: str, count: int) -> None:
    for n in range(count):
        simulation.send("t", f"{word} {n}".encode()).result(10)


def read_through_a_cut(simulation: KafkaSimulation, *, fails: bool) -> list[Any]:
    """Read 0 to 50; after some offsets another log with records of its own is there."""
    simulation.create_topic("t", partitions=1)
    wrote(simulation, "old", 50)
    consumer: Any = simulation.consumer(
        {"auto.offset.reset": "none", "max.partition.fetch.bytes": 200, "fetch.max.bytes": 2000}
    )
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "outageTolerance": "300s"}
    options = parse_options({**given, "failOnDataLoss": str(fails)}, BATCH)
    clock = Clock(simulation)
    reader = RangeReader(consumer, KafkaOffsetRange(TP, 0, 50), None, options, clock)
    full = arrow_schema(full_schema(include_headers=False))
    target = pa.schema([full.field("offset"), full.field("value")])
    found: list[Any] = []
    for batch in reader.batches(("offset", "value"), target):
        found += batch.to_pylist()
        if len(found) == 4:
            unclean_election(simulation.cluster, "t", 0, 48)
            simulation.advance(1.0)
            wrote(simulation, "new", 60)
            simulation.advance(1.0)
    return found


def test_a_log_that_is_cut_under_a_task_is_a_loss_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ENOUGH_ROWS", 1)
    with KafkaSimulation(brokers=3) as simulation:
        with pytest.raises(
            DataLossError, match=r"t-0: the log was truncated by an unclean .* 0 to 50"
        ):
            read_through_a_cut(simulation, fails=True)
        assert simulation.now < 30  # not after kafkaConsumer.pollTimeoutMs


def test_where_loss_is_allowed_a_task_goes_on_in_the_log_that_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(reading, "ENOUGH_ROWS", 1)
    with KafkaSimulation(brokers=3) as simulation:
        found = read_through_a_cut(simulation, fails=False)
        assert [row["offset"] for row in found] == list(range(50))
        assert [row["value"][:3] for row in found] == [b"old"] * 4 + [b"new"] * 46
        assert "unclean leader election" in caplog.text
