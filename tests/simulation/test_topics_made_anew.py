"""A topic that is deleted and recreated while a group reads it: every new record is read."""

from __future__ import annotations

from typing import Literal

import pytest

from odradek.testing import KafkaSimulation


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("gone", [0.0, 0.5, 3.0, 10.0])
def test_a_recreated_topic_is_read_completely(
    kafka_simulation: KafkaSimulation, protocol: Literal["classic", "consumer"], gone: float
) -> None:
    """`gone`: seconds without the topic. Brokers delete committed offsets of deleted topics."""
    simulation = kafka_simulation

    def fill(count: int) -> None:
        simulation.create_topic("t", partitions=2)
        for partition in range(2):
            rows = [b"%d %d" % (count, n) for n in range(count)]
            simulation.produce("t", rows, partition=partition)

    fill(30)
    consumer = simulation.consumer(
        group_id="g", auto_offset_reset="earliest", group_protocol=protocol
    )
    consumer.subscribe(["t"])
    assert len(simulation.poll_for(consumer, seconds=20)) == 60  # auto-commit is enabled
    simulation.cluster.delete_topic("t")
    assert set(simulation.admin().list_group_offsets("g")["g"]) == set()
    simulation.advance(gone)
    fill(40)
    records = simulation.poll_for(consumer, seconds=60)
    assert len(records) == 80
    assert {record.value for record in records} == {b"40 %d" % n for n in range(40)}
