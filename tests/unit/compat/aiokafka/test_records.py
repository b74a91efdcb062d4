"""Test that a consumer returns records like aiokafka's."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import aiokafka.structs
import pytest

from odradek.clients.consumer.records import ConsumerRecord as Record
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.types import TopicPartition
from odradek.compat import aiokafka as ours
from odradek.compat.aiokafka.consumer import consumer as consumers
from odradek.compat.aiokafka.structs import ConsumerRecord, records_of
from odradek.testing import KafkaSimulation

FIELDS = ("t", 3, 7, 1000, 1, b"k", b"value", None, 1, 5, (("h", b""),))


def aiokafka_record() -> ConsumerRecord[Any, Any]:
    [record] = records_of([Record("t", 3, 7, 1000, 1, b"k", b"value", (("h", b""),), 2)])
    return record


def test_a_record_behaves_like_aiokafkas_dataclass() -> None:
    record, same = aiokafka_record(), aiokafka.structs.ConsumerRecord(*FIELDS)
    assert (repr(record), asdict(record), vars(record)) == (repr(same), asdict(same), vars(same))
    assert record == ConsumerRecord(*FIELDS)
    assert type(record) is ConsumerRecord
    for other in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):  # noqa: S301
        assert other == record
    assert replace(record, value=b"x").value == b"x"
    record.value = b"y"
    assert record.value == b"y"
    with pytest.raises(TypeError):
        hash(record)
    [nothing] = records_of([Record("t", 3, 7, 1000, 1, None, None, (), 2)])
    assert (nothing.serialized_key_size, nothing.serialized_value_size) == (-1, -1)


def test_a_record_in_a_reference_cycle_is_garbage_collected() -> None:
    record = aiokafka_record()
    gone = weakref.ref(record)
    record.value = [record]
    del record
    gc.collect()
    assert gone() is None


class FailsOnce:
    """A deserializer that raises the first time it gets the value `at`."""

    def __init__(self, at: bytes) -> None:
        self.at = at

    def __call__(self, value: bytes) -> int:
        if value == self.at:
            self.at = b""
            raise ValueError(value)
        return int(value)


async def by_getone(consumer: Any) -> list[int]:
    return [(await consumer.getone()).value]


async def by_getmany(consumer: Any) -> list[int]:
    found = await consumer.getmany(timeout_ms=1000)
    return [record.value for run in found.values() for record in run]


@pytest.mark.parametrize("ask", [by_getone, by_getmany], ids=lambda ask: ask.__name__)
def test_reading_before_start_raises_an_illegal_state_error(ask: Callable[[Any], Any]) -> None:
    async def main() -> None:
        with pytest.raises(ours.errors.IllegalStateError, match="call await start\\(\\) first"):
            await ask(ours.AIOKafkaConsumer("t", bootstrap_servers="127.0.0.1:1"))

    asyncio.run(main())


@pytest.mark.parametrize("ask", [by_getone, by_getmany], ids=lambda ask: ask.__name__)
def test_a_failing_deserializer_loses_no_records(ask: Callable[..., Any]) -> None:
    with KafkaSimulation(seed=3, brokers=1) as simulation:
        simulation.create_topic("t", partitions=2)
        for partition in range(2):
            for n in range(10):
                simulation.send("t", b"%d" % (10 * partition + n), partition=partition)
        simulation.advance(1.0)

        async def run() -> None:
            consumer = ours.AIOKafkaConsumer(
                "t",
                bootstrap_servers=simulation.bootstrap_servers,
                auto_offset_reset="earliest",
                value_deserializer=FailsOnce(b"5"),
            )
            found: list[int] = []
            failed = 0
            async with consumer:
                while len(found) < 20:
                    try:
                        found += await ask(consumer)
                    except ValueError:
                        failed += 1
            assert failed == 1
            assert sorted(found) == list(range(20))

        simulation.run(run())


def test_getmany_returns_a_single_buffered_record() -> None:
    with KafkaSimulation(seed=3, brokers=1) as simulation:
        simulation.create_topic("t", partitions=1)
        for n in range(20):
            simulation.send("t", b"%d" % n)
        simulation.advance(1.0)

        async def run() -> None:
            consumer = ours.AIOKafkaConsumer(
                "t",
                bootstrap_servers=simulation.bootstrap_servers,
                auto_offset_reset="earliest",
            )
            found: list[int] = []
            async with consumer:
                while len(found) < 20:
                    found.append((await consumer.getone()).offset)
                    many = await consumer.getmany(timeout_ms=1000, max_records=1)
                    found += [record.offset for run in many.values() for record in run]
            assert found == list(range(20))

        simulation.run(run())


def test_a_deserializers_error_is_raised_even_if_the_seek_back_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an error, the consumer seeks back to the records, unless the topic was recreated."""
    sought: list[TopicPartition] = []

    def seek(place: TopicPartition, offset: int) -> None:
        sought.append(place)
        raise TopicRecreatedError(place, f"seek to offset {offset}")

    def fails(*_: object) -> None:
        raise ValueError("no number")

    monkeypatch.setattr(consumers, "records_of", fails)
    runs = [[Record(topic, 3, 7, 1000, 1, b"k", b"v", (), 2)] for topic in "tu"]
    reader: Any = SimpleNamespace(_consumer=SimpleNamespace(seek=seek), _deserializers=(None, None))
    with pytest.raises(ValueError, match="no number"):
        consumers.AIOKafkaConsumer._made(reader, runs)
    assert sought == [TopicPartition("u", 3), TopicPartition("t", 3)]
