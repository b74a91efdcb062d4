"""Test that `poll()` returns buffered messages, and creates each of them once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import odradek
from odradek import IllegalStateError, KafkaError
from odradek.compat.confluent_kafka import Consumer, Producer, TopicPartition
from odradek.compat.confluent_kafka import consumer as consumers
from odradek.compat.confluent_kafka.aio import AIOConsumer
from odradek.compat.confluent_kafka.consumer_core import ConsumerCore
from odradek.compat.confluent_kafka.message import messages_of
from odradek.errors import TopicRecreatedError
from odradek.testing import FakeCluster

RECORDS = 1100
"""Number of records; more than the consumer converts to messages at once (1024)."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with FakeCluster(1, topics=["t"]) as brokers:
        producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "linger.ms": 5000})
        for number in range(RECORDS):
            producer.produce("t", str(number).encode(), partition=0)
        producer.flush()  # sends one batch, as linger.ms is long
        producer.close()
        yield brokers.bootstrap_servers


def config(servers: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False} | more


def test_callbacks_between_polls_do_not_cause_messages_to_be_created_again(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    told: list[str] = []
    make = messages_of

    def noted(rows: list[Any]) -> list[Any]:
        made.append(len(rows))
        return make(rows)

    monkeypatch.setattr(consumers, "messages_of", noted)
    more = {"statistics.interval.ms": 1, "stats_cb": told.append}
    consumer = Consumer(config(servers, **more))
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        for number in range(50):
            message = consumer.poll(30)
            assert message is not None
            assert message.value() == str(number).encode()
            time.sleep(0.002)
        assert len(told) > 10  # callbacks ran between the polls
        assert made == [1024]
    finally:
        consumer.close()


def test_poll_with_a_timeout_of_0_returns_buffered_messages(servers: str) -> None:
    """`poll(0)` must not return None because the next messages haven't been created yet."""

    async def values() -> list[Any]:
        consumer = AIOConsumer(config(servers))
        try:
            await consumer.assign([TopicPartition("t", 0, 0)])
            messages = [await consumer.poll(30)]
            messages += [await consumer.poll(0) for _ in range(RECORDS - 1)]
            return [None if message is None else message.value() for message in messages]
        finally:
            await consumer.close()

    assert asyncio.run(values()) == [str(number).encode() for number in range(RECORDS)]


@pytest.mark.parametrize(
    "error",
    [IllegalStateError("gone"), TopicRecreatedError(odradek.TopicPartition("t", 0), "seek")],
)
def test_messages_of_all_partitions_are_put_back_even_if_a_seek_fails(error: KafkaError) -> None:
    """If it ended the call, the application's error would be hidden and messages lost."""
    places = [odradek.TopicPartition(name, 0) for name in "tuv"]
    sought: list[odradek.TopicPartition] = []

    class Gone:
        def assigned(self) -> set[odradek.TopicPartition]:
            return {*places}

        def seek(self, place: odradek.TopicPartition, offset: object) -> None:
            sought.append(place)
            raise error

    core: Any = SimpleNamespace(_consumer=Gone())
    runs: Any = [[(*place, 5, None, None, None, None, None, 1)] for place in places]
    ConsumerCore._give_back(core, [], runs)
    assert {*sought} == {*places}
