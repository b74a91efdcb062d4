"""R-PR-1: confluent-kafka's `Producer.close()` reports all deliveries before it returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.compat.confluent_kafka import KafkaError, Producer
from odradek.testing import KafkaSimulation


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(brokers=1) as made:
        made.create_topic("t", partitions=1)
        yield made


def test_close_reports_the_messages_of_the_transaction_that_it_aborts(
    simulation: KafkaSimulation,
) -> None:
    told: list[tuple[Any, bytes]] = []
    producer = Producer(
        {
            "bootstrap.servers": simulation.bootstrap_servers,
            "transactional.id": "payments",
            "linger.ms": 60_000,
        }
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    for n in range(3):
        producer.produce(
            "t",
            b"%d" % n,
            on_delivery=lambda error, m: told.append((error and error.code(), m.value())),
        )
    assert told == []
    assert producer.close()
    assert told == [(KafkaError._PURGE_QUEUE, b"%d" % n) for n in range(3)]
    assert len(producer) == 0
    assert producer.close()
    assert len(told) == 3
