"""A small service that uses the asyncio clients during cluster faults, in virtual time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.volume import some

from odradek import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from odradek.testing import KafkaSimulation

LIVES = 25.0
"""Duration of the fault and the recovery, in seconds."""


class Service:
    """A service that doubles numbers: it reads "in", writes "out" and commits."""

    def __init__(self, servers: str) -> None:
        config = {"bootstrap.servers": servers}
        self.consumer = AsyncConsumer(
            config, group_id="doubling", auto_offset_reset="earliest", enable_auto_commit=False
        )
        self.producer = AsyncProducer(config, linger_ms=5)
        self.rebalances: list[int] = []

    async def run(self) -> None:
        async with self.producer, self.consumer:
            await self.consumer.subscribe(["in"], on_assigned=self._assigned)
            while True:
                records = await self.consumer.poll(1.0)
                async with asyncio.TaskGroup() as group:
                    for record in records:
                        group.create_task(self._double(int(record.value or b"")))
                if records:
                    await self.consumer.commit(timeout=60.0)

    async def _assigned(self, consumer: object, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        self.rebalances.append(len(partitions))

    async def _double(self, number: int) -> None:
        await self.producer.send_and_wait("out", b"%d" % (2 * number), key=b"%d" % number)

    def health(self) -> str:
        for client in (self.consumer, self.producer):
            if client.ended is not None:
                return "ended"
            outage = client.explain().outage
            if outage is not None and outage.total:
                return "out"
        return "well"


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=5) as made:
        made.create_topic("in", partitions=3)
        made.create_topic("out", partitions=3)
        yield made
    made.verify()


def lives_through(
    simulation: KafkaSimulation,
    trouble: Callable[[], object],
    *,
    services: int = 1,
    eager: bool = False,
    debug: bool = False,
) -> dict[str, int]:
    """Run services during a fault while records are written; count the states of health()."""
    sent = iter(range(10_000))

    async def main() -> dict[str, int]:
        if eager:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        running = [Service(simulation.bootstrap_servers) for _ in range(services)]
        tasks = [asyncio.create_task(service.run()) for service in running]
        stop = simulation.every(0.1, lambda: simulation.send("in", b"%d" % next(sent)))
        simulation.after(3.0, trouble)
        said: dict[str, int] = {}
        while simulation.now < LIVES:
            await asyncio.sleep(0.5)
            for service in running:
                said[service.health()] = said.get(service.health(), 0) + 1
        stop()
        await asyncio.sleep(10.0)
        assert {service.health() for service in running} == {"well"}
        assert all(service.rebalances for service in running)
        for task in tasks:
            task.cancel()
        assert {type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)} == {
            asyncio.CancelledError
        }
        return said

    said = simulation.run(main(), debug=debug)
    doubled = [int(value or b"") for value in simulation.values("out")]
    assert set(doubled) == {2 * number for number in range(next(sent))}  # at least once
    assert all(host.closed or "kafka" in name for name, host in simulation.world.hosts.items())
    return said


@pytest.mark.parametrize("broker", some([1, 2, 3], 1))
def test_the_service_survives_a_broker_restart(simulation: KafkaSimulation, broker: int) -> None:
    assert set(lives_through(simulation, lambda: simulation.bounce(broker, after=10.0))) == {"well"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager_task_factory came with 3.12")
def test_the_service_works_with_eager_tasks(simulation: KafkaSimulation) -> None:
    lives_through(simulation, lambda: simulation.move(after=8.0), eager=True)


def test_the_event_loop_is_not_blocked_while_all_brokers_move(
    simulation: KafkaSimulation, caplog: pytest.LogCaptureFixture
) -> None:
    said = lives_through(simulation, lambda: simulation.move(after=8.0), debug=True)
    assert said["out"] > 5
    assert "Executing" not in caplog.text  # each call that waits lets the event loop run


def test_the_service_survives_a_hanging_coordinator(simulation: KafkaSimulation) -> None:
    def hang() -> None:
        groups = simulation.cluster.groups
        place = simulation.cluster.topics[groups.name].partitions[groups.index("doubling")]
        broker = place.leader
        simulation.go_silent(broker)
        simulation.after(12.0, lambda: simulation.repair(broker))

    lives_through(simulation, hang, services=2)


def test_asyncio_timeout_cancels_a_call_to_silent_brokers(simulation: KafkaSimulation) -> None:
    """Handlers of web services limit the time of their calls this way."""

    async def main() -> float:
        async with AsyncAdmin(bootstrap_servers=simulation.bootstrap_servers) as admin:
            await admin.list_topics()
            for broker in simulation.brokers:
                simulation.go_silent(broker)
            begin = simulation.now
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.5):
                    await admin.describe_cluster()
            return simulation.now - begin

    assert simulation.run(main()) == pytest.approx(2.5, abs=0.01)
