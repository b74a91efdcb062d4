"""`VirtualLoop`: asyncio programs without clients run in a simulation's virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import math
import queue
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from odradek.simulation import StuckError, World
from odradek.testing.virtual import loop_threads, virtual_loop
from odradek.testing.virtual.loop_threads import LoopThreads
from odradek.testing.virtual.virtual_loop import NOT_HERE, VirtualLoop

T = TypeVar("T")


@pytest.fixture
def world() -> World:
    return World()


def run(
    world: World, main: Coroutine[Any, Any, T], *, limit: float = 3600.0, debug: bool | None = None
) -> T:
    def factory() -> VirtualLoop:
        return VirtualLoop(world, limit=limit)

    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)


async def noted(seen: list[Any], seconds: float, what: object) -> None:
    await asyncio.sleep(seconds)
    seen.append((asyncio.get_running_loop().time(), what))


# Time


def test_sleeping_takes_only_virtual_time(world: World) -> None:
    async def main() -> list[Any]:
        seen: list[Any] = []
        async with asyncio.TaskGroup() as group:
            for seconds in (3600.0, 0.25, 86400.0, 0.0):
                group.create_task(noted(seen, seconds, "slept"))
        return seen

    assert run(world, main(), limit=math.inf) == [
        (0.0, "slept"),
        (0.25, "slept"),
        (3600.0, "slept"),
        (86400.0, "slept"),
    ]
    assert world.now == 86400.0


def test_timers_with_the_same_time_fire_in_the_order_of_their_creation(world: World) -> None:
    async def main() -> list[Any]:
        seen: list[Any] = []
        loop = asyncio.get_running_loop()
        timers = [loop.call_at(2.0, seen.append, i) for i in range(50)]
        for i in range(0, 50, 3):
            timers[i].cancel()
        await asyncio.sleep(2.0)
        return seen

    assert run(world, main()) == [i for i in range(50) if i % 3]


def test_events_of_the_simulation_precede_timers_with_the_same_time(world: World) -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(1.0, seen.append, "timer")
        world.at(1.0, lambda: loop.call_soon(seen.append, "callback of the first event"))
        world.at(1.0, lambda: seen.append("second event"))
        await asyncio.sleep(1.5)

    run(world, main())
    assert seen == ["second event", "callback of the first event", "timer"]


def test_events_of_the_simulation_happen_while_the_loop_is_busy(world: World) -> None:
    async def main() -> int:
        seen: list[None] = []
        world.after(0.0, lambda: seen.append(None))
        rounds = 0
        while not seen:
            rounds += 1
            await asyncio.sleep(0)
        return rounds

    assert run(world, main()) == 1
    assert world.now == 0.0


def test_timers_with_nearly_equal_times_fire_in_order(world: World) -> None:
    world.run_until(1e9 + 0.1)

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        begin, seen = loop.time(), list[float]()
        for when in (begin, math.nextafter(begin, math.inf), begin + 1e-7):
            loop.call_at(when, lambda: seen.append(loop.time()))
        await asyncio.sleep(1.0)
        return [round((when - begin) / math.ulp(begin)) for when in seen]

    assert run(world, main()) == [0, 1, 1]


def test_an_error_of_an_action_scheduled_in_the_simulation_is_raised_by_run(world: World) -> None:
    async def main() -> None:
        world.after(2.0, lambda: [][0])
        await asyncio.sleep(5.0)

    with pytest.raises(IndexError):
        run(world, main())
    assert world.now == 2.0


def test_the_next_loop_continues_at_the_time_of_the_previous_loop(world: World) -> None:
    run(world, asyncio.sleep(5.0))
    run(world, asyncio.sleep(5.0))
    assert world.now == 10.0


# asyncio's tools


async def tools() -> list[Any]:
    """Use most of asyncio's features, and return a list of results."""
    loop = asyncio.get_running_loop()
    seen: list[Any] = []
    line: asyncio.Queue[int] = asyncio.Queue(2)

    async def numbers() -> AsyncIterator[int]:
        try:
            for i in range(100):
                await asyncio.sleep(0.1)
                yield i
        finally:
            await asyncio.sleep(0.1)
            seen.append("numbers ended")

    async def produce() -> None:
        async for i in numbers():
            await line.put(i)

    async def consume() -> None:
        while (i := await line.get()) < 5:
            await noted(seen, 0.3, i)

    producer = asyncio.create_task(produce())
    await consume()
    producer.cancel()
    seen.append(await asyncio.gather(producer, return_exceptions=True))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.create_future(), 2.0)
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(noted(seen, 60.0, "not reached"))
            group.create_task(asyncio.wait_for(asyncio.sleep(60.0), 1.0))
    lock = asyncio.Lock()

    async def held(i: int) -> None:
        async with lock:
            await noted(seen, 1.0, f"lock {i}")

    await asyncio.gather(*(held(i) for i in range(3)))
    done, pending = await asyncio.wait(
        [asyncio.create_task(asyncio.sleep(i)) for i in range(10)], timeout=4.5
    )
    seen.append((len(done), len(pending)))
    seen.append(await asyncio.shield(asyncio.sleep(1.0, "shielded")))
    left = numbers()
    seen.append(await anext(left))  # this generator is still open when the loop ends
    for task in pending:
        task.cancel()
    seen.append(loop.time())
    return [str(line) for line in seen]


def test_asyncio_features_give_the_same_results_in_each_run() -> None:
    runs = [run(World(seed), tools()) for seed in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert "numbers ended" in runs[0]
    assert "(6.0, 'not reached')" not in runs[0]
    assert runs[0][-4:-1] == ["(5, 5)", "shielded", "0"]


def test_sets_of_tasks_have_a_reproducible_order() -> None:
    """Tasks hash by memory address by default, so the order of a set would differ between runs."""

    async def main() -> None:
        async def wait(number: int) -> int:
            try:
                await asyncio.sleep(number % 3)
            finally:
                seen.append(f"{number} ends")
            return number

        tasks = [asyncio.create_task(wait(number)) for number in range(300)]
        done, pending = await asyncio.wait(tasks, timeout=1.5)
        seen.extend(f"{task.get_name()}: {task.result()}" for task in done)
        seen.extend(task.get_name() for task in pending)
        assert tasks[0] == tasks[0] != tasks[1]

    runs = []
    for _ in range(3):
        seen: list[str] = []
        run(World(), main())
        runs.append(seen)
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]) == 600


def test_debug_mode_reports_slow_callbacks(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert run(World(), tools(), debug=True) == run(World(), tools())

    async def main() -> None:
        world.advance(3.0)  # as a blocking call of a client would

    run(world, main(), debug=True)
    assert "took 3.000 seconds" in caplog.text


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager_task_factory came with 3.12")
def test_eager_tasks_give_the_same_results(world: World) -> None:
    async def main() -> list[Any]:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        return await tools()

    assert run(world, main()) == run(World(), tools())


def test_an_abandoned_generator_is_closed_at_the_end(world: World) -> None:
    seen: list[float] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(7.0)
            seen.append(world.now)

    async def main() -> None:
        generators.append(numbers())
        await anext(generators[0])

    generators: list[AsyncIterator[int]] = []
    run(world, main())
    assert seen == [7.0]


def test_a_task_can_be_cancelled_from_outside(world: World) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(3.0, task.cancel)
        try:
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(2.0)

    with pytest.raises(asyncio.CancelledError):
        run(world, main())
    assert world.now == 5.0


# Programs that never end


def test_a_run_without_further_events_raises_stuck_error(world: World) -> None:
    async def waits_for_good() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        others = [asyncio.create_task(waits_for_good(), name=f"other-{i}") for i in range(20)]
        await asyncio.gather(*others)

    with pytest.raises(StuckError) as raised:
        run(world, main())
    lines = str(raised.value).splitlines()
    assert lines[0] == "the run is stuck: no event is left, and these tasks are waiting:"
    assert any("main (test_virtual_loop.py:" in line for line in lines)
    assert any("other-0: waits_for_good (test_virtual_loop.py:" in line for line in lines)
    assert "wait (locks.py:" in lines[2]
    assert lines[-1] == "  and 11 more"


def test_an_infinite_sleep_raises_stuck_error(world: World) -> None:
    with pytest.raises(StuckError, match="no event is left"):
        run(world, asyncio.sleep(math.inf))
    assert world.now == 0.0


@pytest.mark.parametrize("by", ["loop", "world"])
def test_a_run_that_exceeds_its_limit_raises_stuck_error(world: World, by: str) -> None:
    async def main() -> None:
        if by == "world":
            again()
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(1.0)

    def again() -> None:
        world.after(1.0, again)

    world.run_until(500.0)
    with pytest.raises(
        StuckError, match=r"is still running after 100 virtual seconds.*\n.*main \("
    ):
        run(world, main(), limit=100.0)
    assert world.now == 600.0


def test_tasks_of_a_stuck_run_are_cancelled(world: World) -> None:
    seen: list[float] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.0)
            seen.append(world.now)

    with pytest.raises(StuckError):
        run(world, main())
    assert seen == [1.0]


def test_a_task_that_never_waits_raises_stuck_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_loop, "MAX_ROUNDS_AT_ONCE", 1000)

    async def main() -> None:
        while world.now < 1.0:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="ran 1000 times at 0.0 s, because a task never waits"):
        run(world, main())


# Threads


class Step:
    """A point at which a thread waits, in real time, until the test continues it."""

    def __init__(self) -> None:
        self._gate: queue.Queue[None] = queue.Queue()

    def __call__(self) -> None:
        self._gate.put(None)

    def wait(self) -> None:
        self._gate.get(timeout=30.0)


def test_virtual_time_stops_while_an_executor_job_runs(world: World) -> None:
    async def main() -> list[Any]:
        seen: list[Any] = []
        step = Step()
        loop = asyncio.get_running_loop()
        other = asyncio.create_task(noted(seen, 0.001, "timer"))
        loop.call_soon(loop.call_soon, loop.call_soon, step)
        await asyncio.to_thread(step.wait)
        seen.append((loop.time(), "job"))
        await other
        return seen

    assert run(world, main()) == [(0.0, "job"), (0.001, "timer")]


def test_a_finished_executor_job_is_noticed_after_all_ready_callbacks(world: World) -> None:
    async def busy(seen: list[str], ended: Future[None]) -> None:
        ended.result(timeout=30.0)  # the job ends before the loop's next iteration
        for i in range(10):
            seen.append(str(i))
            await asyncio.sleep(0)

    async def main() -> list[str]:
        seen: list[str] = []
        ended: Future[None] = Future()
        other = asyncio.create_task(busy(seen, ended))
        await asyncio.to_thread(ended.set_result, None)
        seen.append("job")
        await other
        return seen

    assert run(world, main()) == [*map(str, range(10)), "job"]


def test_a_busy_loop_notices_a_finished_executor_job(world: World) -> None:
    async def main() -> str:
        job = asyncio.get_running_loop().run_in_executor(None, str, 7)
        while not job.done():
            await asyncio.sleep(0)
        return job.result()

    assert run(world, main()) == "7"


def test_custom_executors_work_and_exceptions_of_jobs_are_raised(world: World) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "mine") as pool:
            name = await loop.run_in_executor(pool, lambda: threading.current_thread().name)
            assert name == "mine_0"
            loop.set_default_executor(pool)
            with pytest.raises(ZeroDivisionError):
                await loop.run_in_executor(None, lambda: 1 // 0)
        variable = contextvars.ContextVar("variable", default=0)
        variable.set(3)
        await loop.shutdown_default_executor()
        with pytest.raises(RuntimeError, match="shutdown"):
            await asyncio.to_thread(variable.get)

    run(world, main())


def test_virtual_time_also_stops_while_a_cancelled_job_runs(world: World) -> None:
    async def main() -> list[float]:
        step, seen = Step(), list[float]()

        def job() -> None:
            step.wait()
            seen.append(world.now)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.to_thread(job))
            await asyncio.sleep(0)
            task.cancel()
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, step)
        await asyncio.sleep(5.0)
        return seen

    assert run(world, main()) == [0.0]


def test_an_executor_job_may_wait_for_a_coroutine(world: World) -> None:
    async def later(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return world.now

    def job(loop: asyncio.AbstractEventLoop) -> list[float]:
        return [
            asyncio.run_coroutine_threadsafe(later(seconds), loop).result(30.0)
            for seconds in (1.0, 20.0, 300.0)
        ]

    async def main() -> list[list[float]]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(asyncio.to_thread(job, loop) for _ in range(2)))

    assert run(world, main()) == [[1.0, 21.0, 321.0]] * 2


def test_jobs_queued_for_a_free_thread_do_not_stop_virtual_time(world: World) -> None:
    async def later() -> float:
        await asyncio.sleep(1.0)
        return world.now

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()

        def job() -> float:
            return asyncio.run_coroutine_threadsafe(later(), loop).result(30.0)

        with ThreadPoolExecutor(2) as pool:
            return await asyncio.gather(*(loop.run_in_executor(pool, job) for _ in range(5)))

    assert run(world, main()) == [1.0, 1.0, 2.0, 2.0, 3.0]


def test_an_idle_loop_waits_in_real_time_for_callbacks_of_other_threads(world: World) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[str] = loop.create_future()
        step = Step()

        def call() -> None:
            step.wait()
            loop.call_soon_threadsafe(arrived.set_result, "called")

        thread = threading.Thread(target=call)
        thread.start()
        loop.call_soon(step)
        try:
            return await arrived
        finally:
            thread.join(30.0)

    assert run(world, main()) == "called"


def test_a_callback_scheduled_before_run_is_called_during_run(world: World) -> None:
    loop = VirtualLoop(world)
    seen: list[int] = []
    loop.call_soon_threadsafe(seen.append, 1)
    loop.run_until_complete(asyncio.sleep(1.0))
    assert seen == [1]
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(seen.append, 2)


def test_an_executor_job_that_never_ends_raises_stuck_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_threads, "PATIENCE", 0.01)
    step = Step()

    def endless_job() -> None:
        step.wait()

    async def main() -> None:
        try:
            await asyncio.to_thread(endless_job)
        finally:
            step()

    with pytest.raises(StuckError, match=r"these executor jobs.*endless_job"):
        run(world, main())


def test_a_busy_thread_of_anyio_stops_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a copy of anyio's thread interface; test_async_plugins uses anyio itself."""
    loop = VirtualLoop(World())

    class Worker(threading.Thread):
        stopping = False
        idle_workers: tuple[threading.Thread, ...] = ()

        def __init__(self, run: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(target=run)
            self.loop = loop

    step = Step()
    threads = LoopThreads(loop)
    worker, other = Worker(step.wait, loop), Worker(step.wait, VirtualLoop(World()))
    worker.start()
    other.start()
    monkeypatch.delitem(sys.modules, "anyio", raising=False)
    assert threads.at_work() == []
    monkeypatch.setitem(sys.modules, "anyio", threading)
    assert threads.at_work() == ["a call in a thread of anyio"]
    worker.idle_workers = (worker,)
    assert threads.at_work() == []
    worker.idle_workers, worker.stopping = (), True
    assert threads.at_work() == []
    for thread in (worker, other):
        step()
        step()
        thread.join(30.0)
    loop.close()
    other.loop.close()


# Unsupported methods


@pytest.mark.parametrize("name", NOT_HERE)
def test_unsupported_methods_raise_errors(world: World, name: str) -> None:
    loop = VirtualLoop(world)
    assert callable(getattr(asyncio.AbstractEventLoop, name))
    with pytest.raises(NotImplementedError, match=f"^{name}: an event loop in virtual time has no"):
        getattr(loop, name)(1, 2)
    loop.close()


@pytest.mark.parametrize(
    "connect",
    [
        lambda: asyncio.open_connection("127.0.0.1", 9),
        lambda: asyncio.start_server(print, "127.0.0.1", 0),
        lambda: asyncio.create_subprocess_exec("true"),
    ],
)
def test_streams_and_subprocesses_raise_not_implemented_error(
    world: World, connect: Callable[[], Awaitable[Any]]
) -> None:
    async def main() -> None:
        with pytest.raises(NotImplementedError, match="kafka_cluster"):
            await connect()

    run(world, main())
