"""What users' callbacks raise comes out as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from odradek import Consumer, TopicPartition
from odradek.testing.simulated import KafkaSimulation


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=3) as simulation:
        simulation.create_topic("t", partitions=1)
        yield simulation


def subscribed(consumer: Consumer, callback: Callable[..., object]) -> None:
    consumer.subscribe(["t"], on_assigned=callback)


def committed(consumer: Consumer, callback: Callable[..., object]) -> None:
    consumer.assign([TopicPartition("t", 0)])
    consumer.commit_async({TopicPartition("t", 0): 0}, callback)


@pytest.mark.parametrize("begin", [subscribed, committed])
@pytest.mark.parametrize("close", [False, True])
def test_stop_iteration_of_a_callback_is_not_the_end_of_its_call(
    simulation: KafkaSimulation, begin: Callable[..., None], close: bool
) -> None:
    """PEP 479 makes a RuntimeError of it where it leaves a generator."""
    stop, seen = StopIteration("mine"), []

    def callback(*_: object) -> None:
        seen.append(1)
        raise stop

    consumer = simulation.consumer({"group.id": "g"})
    begin(consumer, callback)
    if close and begin is subscribed:
        consumer.subscribe(["t"], on_revoked=callback)
        while (
            not consumer.group_metadata().member_id or not consumer._engine.subscription.partitions
        ):
            consumer.poll(0.5)
    with pytest.raises(StopIteration) as caught:
        if close:
            consumer.close()
        else:
            for _ in range(20):
                consumer.poll(0.5)
    assert caught.value is stop
    assert seen == [1]


def test_a_runtime_error_that_a_callback_made_of_it_stays_one(simulation: KafkaSimulation) -> None:
    def callback(*_: object) -> None:
        def broken() -> Iterator[int]:
            yield next(iter(()))

        next(broken())

    consumer = simulation.consumer({"group.id": "g"})
    consumer.subscribe(["t"], on_assigned=callback)
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        for _ in range(20):
            consumer.poll(0.5)
