"""A soak's workers run in threads or in one event loop, whose activity is reported."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from tests.soak.soak import Plan, Soak
from tests.soak.ways import InLoop, InThreads, Way, finished, of
from tests.soak.workers import Worker

from odradek.common.types import TopicPartition


@pytest.fixture(params=[InThreads, InLoop])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    if request.param is InThreads:
        yield InThreads()
    else:
        with InLoop() as loop:
            yield loop


class Waiting(Worker):
    """A worker that waits until it has to stop, then returns or raises an error."""

    def __init__(self, way: Way, error: BaseException | None = None) -> None:
        super().__init__("waiting", way)
        self.error = error
        self.thread = ""

    async def work(self) -> None:
        self.thread = threading.current_thread().name
        while not await self.way.pause(100.0, self.stopping):
            pass
        if self.error is not None:
            raise self.error


def test_workers_end_when_they_are_told_to_stop(way: Way) -> None:
    workers = [Waiting(way), Waiting(way, ValueError("broken"))]
    for worker in workers:
        worker.start()
        assert worker.name == f"{way.prefix}waiting"
    for worker in workers:
        worker.join(0.0)
        assert isinstance(worker.failure, TimeoutError)
        worker.failure = None
        worker.stopping.set()
        worker.join()
    assert [worker.failure for worker in workers] == [None, workers[1].error]
    where = "event loop" if isinstance(way, InLoop) else "waiting"
    assert {worker.thread for worker in workers} == {where}


def test_calls_of_blocking_and_of_asyncio_clients_can_be_awaited_alike() -> None:
    async def seven() -> int:
        return 7

    async def both() -> tuple[int, int]:
        return await of(7), await of(seven())

    assert finished(both()) == (7, 7)

    async def waits() -> None:
        await Turn()

    with pytest.raises(AssertionError, match="waits for something"):
        finished(waits())


class Turn:
    """An awaitable that yields once."""

    def __await__(self) -> Generator[None]:
        yield


class FakeCluster:
    """A fake cluster with only the methods that a soak calls before its run."""

    broker_addresses = ("a:1",)

    def client_config(self) -> dict[str, object]:
        return {"bootstrap.servers": "a:1"}

    librdkafka_config = client_config


def test_a_soak_whose_event_loop_did_nothing_fails() -> None:
    cluster: Any = FakeCluster()
    soak = Soak(cluster, Plan(1.0, members=1, readers=1, asyncio=1), lambda line: None)
    names = [worker.name for worker in soak.workers]
    for name in ("source", "chain-classic-0", "reader-consumer-0"):
        assert names.count(name) == names.count(f"asyncio-{name}") == 1
    soak._conclude_loop()
    assert len(soak.report.failures) == len(soak.report.asyncio) == 4
    soak.report.failures.clear()
    for group in (None, "chain-classic"):
        made = soak.history.begin("asyncio-someone", group=group)
        made.ended()
    reader = next(one for one in soak.readers if one.way is soak.loop)
    reader.count, reader.seen = 1, {TopicPartition("out-classic", 0): {0}}
    soak.loop.cancelled["polls cancelled"] += 1
    soak._conclude_loop()
    assert soak.report.failures == []
    assert set(soak.report.asyncio.values()) == {1}


def test_without_the_asyncio_option_all_workers_run_in_threads() -> None:
    cluster: Any = FakeCluster()
    soak = Soak(cluster, Plan(1.0), lambda line: None)
    assert not any(worker.name.startswith("asyncio") for worker in soak.workers)
    assert [source.name for source in soak.sources] == ["source"]
