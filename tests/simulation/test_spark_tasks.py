"""A Spark task whose log is truncated while it reads."""

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
    """Read offsets 0 to 50 while the log is replaced by another one with other records."""
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


def test_a_log_truncation_during_a_task_is_reported_as_a_loss_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "ENOUGH_ROWS", 1)
    with KafkaSimulation(brokers=3) as simulation:
        with pytest.raises(
            DataLossError, match=r"t-0: the log was truncated by an unclean .* 0 to 50"
        ):
            read_through_a_cut(simulation, fails=True)
        assert simulation.now < 30  # earlier than kafkaConsumer.pollTimeoutMs


def test_a_task_continues_in_the_remaining_log_if_loss_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(reading, "ENOUGH_ROWS", 1)
    with KafkaSimulation(brokers=3) as simulation:
        found = read_through_a_cut(simulation, fails=False)
        assert [row["offset"] for row in found] == list(range(50))
        assert [row["value"][:3] for row in found] == [b"old"] * 4 + [b"new"] * 46
        assert "unclean leader election" in caplog.text
