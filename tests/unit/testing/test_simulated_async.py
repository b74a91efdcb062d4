"""Coroutines in a simulation: `run`, event loops, async tests, and blocking clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from odradek import Admin, AsyncAdmin, Consumer, KafkaTimeoutError, Producer, TopicPartition
from odradek.common.errors import ConfigurationError, IllegalStateError
from odradek.simulation import StuckError
from odradek.testing import KafkaSimulation, VirtualLoop, loop_factories

pytest_plugins = ["pytester"]


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation() as made:
        made.create_topic("t")
        yield made
    made.verify()


def test_a_coroutine_runs_in_virtual_time(simulation: KafkaSimulation) -> None:
    async def main() -> str:
        assert isinstance(asyncio.get_running_loop(), VirtualLoop)
        await asyncio.sleep(30.0)
        return "done"

    assert simulation.run(main()) == "done"
    assert simulation.now == 30.0


def test_futures_of_a_sync_producer_can_be_awaited(simulation: KafkaSimulation) -> None:
    async def main() -> list[int]:
        with Producer({"bootstrap.servers": simulation.bootstrap_servers}) as producer:
            simulation.after(0.2, simulation.move)
            offsets = []
            for i in range(20):
                offsets.append((await producer.send("t", b"%d" % i)).offset)
                await asyncio.sleep(0.1)
            return offsets

    assert simulation.run(main()) == list(range(20))
    assert simulation.now > 5.0


def test_a_coroutine_runs_beside_sync_clients(simulation: KafkaSimulation) -> None:
    simulation.every(0.5, lambda: simulation.send("t", b"x"))

    async def main() -> int:
        await asyncio.sleep(10.2)
        return len(simulation.values("t"))

    assert simulation.run(main()) == 20


def test_a_sync_call_in_a_coroutine_blocks_the_loop(simulation: KafkaSimulation) -> None:
    consumer = simulation.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])

    async def main() -> list[float]:
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                ticks.append(simulation.now)
                await asyncio.sleep(1.0)

        task = asyncio.create_task(tick())
        await asyncio.sleep(0.5)
        consumer.poll(3.0)
        await asyncio.sleep(1.2)
        task.cancel()
        return ticks

    assert simulation.run(main()) == [0.0, 3.5, 4.5]


def test_an_asyncio_client_belongs_to_one_loop(simulation: KafkaSimulation) -> None:
    settings = {"bootstrap.servers": simulation.bootstrap_servers}
    admin, unused = AsyncAdmin(settings), AsyncAdmin(settings)
    loop = simulation.new_loop()
    assert loop.run_until_complete(admin.list_topics()) == ["t"]
    assert loop.run_until_complete(admin.list_topics()) == ["t"]
    for other, error in [
        (asyncio.run, "doesn't advance virtual time"),
        (simulation.run, "another event loop .which still runs"),
    ]:
        with pytest.raises(IllegalStateError, match=error):
            other(admin.list_topics())
    loop.close()
    with pytest.raises(IllegalStateError, match="another event loop .which was closed"):
        simulation.run(admin.list_topics())
    steps = simulation.world.hosts["admin"].steps
    simulation.advance(1000.0)
    assert simulation.world.hosts["admin"].steps == steps
    asyncio.run(admin.close())
    asyncio.run(unused.close())
    simulation.run(unused.close())


def test_sync_clients_work_in_executor_jobs(simulation: KafkaSimulation) -> None:
    """FastAPI, for example, runs handlers that are plain functions in an executor."""
    producer = simulation.producer(linger_ms=5)
    settings = {"bootstrap.servers": simulation.bootstrap_servers}

    def write(number: int) -> int:
        return producer.send("t", b"%d" % number).result().offset

    def read() -> list[bytes | None]:
        with Consumer(settings, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            values: list[bytes | None] = []
            while len(values) < 30:
                values += [record.value for record in consumer.poll(1.0)]
            return values

    async def main() -> None:
        simulation.after(1.0, simulation.move)
        async with AsyncAdmin(settings) as admin:
            assert await admin.list_topics() == ["t"]
            for number in range(20):
                assert await asyncio.to_thread(write, number) == number
                await asyncio.sleep(0.1)
            assert simulation.now > 6.0
            await asyncio.gather(*(asyncio.to_thread(write, number) for number in range(20, 30)))
            begin = simulation.now
            values = await asyncio.to_thread(read)
            assert sorted(int(value or b"") for value in values) == list(range(30))
            with pytest.raises(KafkaTimeoutError):
                await asyncio.to_thread(ask_in_vain)
            assert simulation.now > begin + 2.0

    def ask_in_vain() -> None:
        with Admin(settings) as admin:
            admin.list_topics()
            for broker in simulation.brokers:
                simulation.go_silent(broker)
            admin.describe_cluster(timeout=2.0)

    simulation.run(main())


def test_jobs_with_sync_clients_are_reproducible() -> None:
    def lines() -> list[str]:
        with KafkaSimulation(seed=3) as simulation:
            simulation.create_topic("t")
            producer = simulation.producer()

            def write(number: int) -> float:
                producer.send("t", b"%d" % number).result()
                return simulation.now

            async def main() -> list[float]:
                simulation.after(0.5, lambda: simulation.bounce(1, after=2.0))
                found = []
                for number in range(30):
                    found.append(await asyncio.to_thread(write, number))
                    await asyncio.sleep(0.05)
                return found

            times = simulation.run(main())
            return [*simulation.world.hosts["producer"].trace.lines(), *map(str, times)]

    assert lines() == lines()


def test_calls_of_blocking_clients_in_unknown_threads_raise(simulation: KafkaSimulation) -> None:
    producer, consumer = simulation.producer(), simulation.consumer()
    consumer.assign([TopicPartition("t", 0)])
    calls = [lambda: consumer.poll(1.0), lambda: producer.flush(), lambda: producer.close()]

    async def main() -> None:
        for call in calls:
            with ThreadPoolExecutor() as pool, pytest.raises(IllegalStateError, match="to_thread"):
                pool.submit(call).result(30.0)  # the simulation's loop can't wait for the pool

    simulation.run(main())


def test_the_simulations_trace_is_the_same_in_each_run() -> None:
    def lines() -> list[str]:
        with KafkaSimulation(seed=7) as simulation:
            simulation.create_topic("t", partitions=3)

            async def send(producer: Producer, i: int) -> None:
                await asyncio.sleep(i % 7 / 10)
                await producer.send("t", b"%d" % i, key=b"%d" % i)

            async def main() -> None:
                with Producer({"bootstrap.servers": simulation.bootstrap_servers}) as producer:
                    simulation.after(0.3, lambda: simulation.crash(1))
                    simulation.after(5.0, lambda: simulation.restart(1))
                    await asyncio.gather(*(send(producer, i) for i in range(30)))
                    await asyncio.to_thread(str, producer)

            simulation.run(main())
            return simulation.world.hosts["producer"].trace.lines()

    first = lines()
    assert len(first) > 20
    assert first == lines()


def test_a_run_of_a_coroutine_has_a_limit_of_virtual_time(simulation: KafkaSimulation) -> None:
    with pytest.raises(StuckError, match="is still running after 3600 virtual seconds"):
        simulation.run(asyncio.sleep(3601.0))
    simulation.run(asyncio.sleep(3601.0), limit=4000.0)
    with KafkaSimulation(limit=10.0) as short, pytest.raises(StuckError, match="after 10 virtual"):
        short.run(asyncio.sleep(11.0))


class Asking:
    def __init__(self, *names: str) -> None:
        self.fixturenames = list(names)


def test_loop_factories_return_a_virtual_loop_for_tests_with_the_fixture() -> None:
    assert loop_factories(Asking("tmp_path")) == {"asyncio": asyncio.new_event_loop}
    factories: dict[str, Any] = loop_factories(Asking("tmp_path", "kafka_simulation"))
    with pytest.raises(ConfigurationError, match="Add kafka_simulation to the fixture's arguments"):
        factories["kafka_simulation"]()
    with KafkaSimulation() as simulation:
        loop = factories["kafka_simulation"]()
        simulation.advance(5.0)
        assert loop.time() == 5.0
        loop.close()


@pytest.mark.slow
def test_async_tests_run_in_virtual_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        async def test_it(kafka_simulation, tmp_path):
            await asyncio.sleep(60)
            assert kafka_simulation.now == 60

        @pytest.mark.parametrize("seconds", [1, 2])
        @pytest.mark.kafka_simulation(limit=10)
        class TestMethods:
            async def test_it(self, seconds, kafka_simulation):
                await asyncio.sleep(seconds)
                assert kafka_simulation.now == seconds

            async def test_limit(self, kafka_simulation, seconds):
                await asyncio.sleep(10 * seconds)

        @pytest.fixture
        def topic(kafka_simulation):
            kafka_simulation.create_topic("t")
            return "t"

        async def test_by_another_fixture(topic):
            await asyncio.sleep(60)

        async def test_failing(kafka_simulation):
            kafka_simulation.admin().list_topics()
            await asyncio.Event().wait()
        """
    )
    done = pytester.runpytest_inprocess("-W", "error", "-p", "no:randomly")
    done.assert_outcomes(passed=5, failed=2)
    done.stdout.fnmatch_lines(
        [
            (
                "*StuckError: it is still running after 10 virtual seconds, and these tasks are "
                "waiting:"
            ),
            "*StuckError: the run is stuck: no event is left, and these tasks are waiting:",
            "*test_failing (test_async_tests_run_in_virtual_time.py:*",
            "*- kafka_simulation -*",
            "the last * events of admin:",
        ]
    )
