"""R-WK-3: test when the tasks of asyncio workers are done, and with which error."""

from __future__ import annotations

import asyncio
from inspect import signature
from typing import Any

import pytest

from odradek import AsyncWorkers, ConsumerRecord, Workers
from odradek.clients.workers.work_queue import WorkItem
from odradek.runtime.hosts.worker_tasks import WorkerTasks


class Sending:
    """A producer whose acknowledgement the test controls."""

    def __init__(self) -> None:
        self.acknowledged = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def send(self, **letter: Any) -> asyncio.Event:
        self.sent.append(letter)
        return self.acknowledged

    async def send_and_wait(self, **letter: Any) -> None:
        await (await self.send(**letter)).wait()


def item() -> WorkItem:
    record = ConsumerRecord("t", 0, 5, 0, 0, None, b"v", (), 0)
    return WorkItem(record, record.topic_partition, None)


@pytest.mark.parametrize("method", ["__init__", "run"])
def test_thread_and_asyncio_workers_have_the_same_arguments(method: str) -> None:
    ours, theirs = (signature(getattr(kind, method)) for kind in (Workers, AsyncWorkers))
    assert list(ours.parameters) == list(theirs.parameters)
    defaults = [{n: p.default for n, p in one.parameters.items()} for one in (ours, theirs)]
    assert defaults[0] == defaults[1]


def test_an_item_is_done_only_when_its_dead_letter_is_acknowledged() -> None:
    async def work(record: ConsumerRecord) -> None: ...

    async def main() -> None:
        producer, one = Sending(), item()
        hands = WorkerTasks(work, producer, asyncio.get_running_loop().time, None, lambda: None)
        one.letter = {"topic": "dead"}
        hands.start(one)
        assert (await hands.taken(), await hands.taken()) == ([], [])
        assert producer.sent == [{"topic": "dead"}]
        producer.acknowledged.set()
        assert await hands.done(10.0) == [(one, None)]
        await hands.close()

    asyncio.run(main())


def test_a_cancelled_task_ends_with_an_error() -> None:
    async def work(record: ConsumerRecord) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        one = item()
        hands = WorkerTasks(work, None, asyncio.get_running_loop().time, None, lambda: None)
        hands.start(one)
        await hands.taken()
        hands.abandon(list(hands.busy))
        [(ended, error)] = await hands.done(10.0)
        assert ended is one
        assert str(error) == "the task was cancelled"
        assert not hands.busy

    asyncio.run(main())
