"""R-HO-6 with confluent-kafka's API: a call makes records available while `poll()` waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from odradek.compat.confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    TopicPartition,
    assigned_consumer,
    consumer,
    consumer_core,
)
from odradek.testing import KafkaSimulation

RECORDS = 10
"""Initial records in each of the two partitions."""
HELD = 20.0
"""Seconds for which brokers hold a fetch without records."""
TIMEOUT, SOON = 8.0, 0.3
"""Timeout of a waiting call, and allowed time from an enabling call to the records, in seconds."""


def at(partition: int, offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition("t", partition, offset)


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaSimulation]:
    """Create a cluster in virtual time, which the package's own clocks use as well."""
    with KafkaSimulation(brokers=1) as made:
        made.create_topic("t", partitions=2)
        for partition in (0, 1):
            made.produce("t", [b"%d" % n for n in range(RECORDS)], partition=partition)
        in_virtual_time(made, monkeypatch)
        yield made


def in_virtual_time(simulation: KafkaSimulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "time", SimpleNamespace(sleep=simulation.sleep))
    for module in (assigned_consumer, consumer, consumer_core):
        monkeypatch.setattr(module, "monotonic", lambda: simulation.now)


def made(simulation: KafkaSimulation, **more: Any) -> Consumer:
    config = {
        "bootstrap.servers": simulation.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": int(1000 * HELD),
    }
    return Consumer(config | more)


def poll(reader: Consumer) -> Any:
    message = reader.poll(TIMEOUT)
    return message and (message.partition(), message.offset())


def consume(reader: Consumer) -> Any:
    return next(((m.partition(), m.offset()) for m in reader.consume(1, TIMEOUT)), None)


def at_the_end(reader: Consumer) -> None:
    reader.assign([at(0, 0)])
    while reader.poll(0.5) is not None:
        pass


def paused(reader: Consumer) -> None:
    reader.assign([at(0, 0)])
    reader.pause([at(0)])


def paused_amid(reader: Consumer) -> None:
    reader.assign([at(0, 0)])
    assert reader.poll(5.0) is not None
    reader.pause([at(0)])


class Enabling(NamedTuple):
    """A call that makes records available."""

    name: str
    begin: Callable[[Consumer], None]
    """Calls that precede the enabling call."""
    call: Callable[[Consumer], object]
    first: tuple[int, int]


ENABLING = (
    Enabling("resume", paused, lambda c: c.resume([at(0)]), (0, 0)),
    Enabling("resume of what was fetched", paused_amid, lambda c: c.resume([at(0)]), (0, 1)),
    Enabling("seek", at_the_end, lambda c: c.seek(at(0, 3)), (0, 3)),
    Enabling(
        "seek to the beginning", at_the_end, lambda c: c.seek(at(0, OFFSET_BEGINNING)), (0, 0)
    ),
    Enabling("seek to the end", at_the_end, lambda c: c.seek(at(0, OFFSET_END)), (0, RECORDS)),
    Enabling("assign", at_the_end, lambda c: c.assign([at(1, 2)]), (1, 2)),
    Enabling("assign while all is paused", paused, lambda c: c.assign([at(1, 2)]), (1, 2)),
    Enabling("incremental_assign", at_the_end, lambda c: c.incremental_assign([at(1, 2)]), (1, 2)),
    Enabling(
        "incremental_assign while all is paused",
        paused,
        lambda c: c.incremental_assign([at(1, 2)]),
        (1, 2),
    ),
)


@pytest.mark.parametrize("enabling", ENABLING, ids=lambda e: e.name.replace(" ", "-"))
@pytest.mark.parametrize("waiting", [poll, consume])
def test_a_call_that_makes_records_available_wakes_the_reader(
    simulation: KafkaSimulation, waiting: Callable[[Consumer], Any], enabling: Enabling
) -> None:
    reader = made(simulation)
    enabling.begin(reader)
    begin = simulation.now + 0.2  # while the call blocks in its first second
    simulation.after(0.2, lambda: enabling.call(reader))
    if enabling.first == (0, RECORDS):
        simulation.after(0.25, lambda: simulation.send("t", b"new", partition=0))
    assert waiting(reader) == enabling.first
    assert simulation.now - begin < SOON
    reader.close()


def test_an_assignment_at_the_end_reports_the_partition_end(simulation: KafkaSimulation) -> None:
    """`on_assign` assigns at the committed offset, before the first fetch."""
    first = made(simulation)
    offsets = [at(0, RECORDS), at(1, RECORDS)]
    assert first.commit(offsets=offsets, asynchronous=False) is not None
    first.close()

    def on_assign(reader: Consumer, partitions: list[TopicPartition]) -> None:
        simulation.advance(0.3)  # the application does something else
        reader.assign(reader.committed(partitions))

    config = {"enable.partition.eof": True, "fetch.wait.max.ms": 500}
    reader = made(simulation, **config)
    reader.subscribe(["t"], on_assign=on_assign)
    ends = set[Any]()
    while len(ends) < 2:
        message = reader.poll(1.0)
        assert simulation.now < 30.0
        if message is not None:
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._PARTITION_EOF
            ends.add((message.partition(), message.offset()))
    assert ends == {(0, RECORDS), (1, RECORDS)}
    reader.close()
