"""Count the Python function calls per record, from the program's call to its result.

All calls count, those of the standard library too, in the program's thread and in the client's own,
except in the thread of the simulated broker on loopback. The smallest of several counts is used,
since a read may be split in two; otherwise the number is the same each time. The number must not
grow.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from tests.property.interrupting import THEIRS

from odradek import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from odradek.runtime.locks import ClientLock
from odradek.testing import FakeCluster

MOST = {
    "await send_and_wait()": 231,
    "send().result()": 213,
    "poll() of a buffered record": 192,
    "poll() that waits for a record": 232,
    "poll() that waits for a record, soon after another": 188,
    "poll_arrow() of a buffered batch": 185,
    "poll(5, 1) while more of its batch waits": 52,
    "a record from send_and_wait() to a task that polls": 499,
    "a second of a producer that idles": 60,
    "a poll() without records": 130,
    "a fetch without records": 115,
}
"""Upper limits of the calls; two of them count each request and its response, for `metrics()`.

At commit 6b10a693 there were 468 calls of the first kind and 457 of the second, 414 for a poll() of
a buffered record, 425 to an Arrow batch, 930 from sender to reader (475 until the reader ran before
the next fetch), and 391 for a poll() with two fetches.
"""
ATTEMPTS = 15
FIRST = 10
"""Number of calls that aren't counted: after them, the connections have reset their backoff."""
P = TopicPartition("t", 0)
LOCKING = getattr(ClientLock.__enter__, "__code__", None)
"""Acquiring a lock is a Python function only from 3.14 on; the limits are those of 3.11."""
MOMENT = 0.01
"""Seconds after which a thread that has answered waits again."""


class Count:
    """Count calls while `on` is true, in this thread and in threads that start while installed."""

    def __init__(self) -> None:
        self.on = False
        self.calls = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not self.on or event != "call" or code.co_filename.startswith(THEIRS):
            return
        self.calls += code is not LOCKING

    def least(
        self,
        action: Callable[[], object],
        before: Callable[[], object],
        attempts: int = ATTEMPTS,
        enough: int = 0,
    ) -> int:
        """Return the smallest count of several attempts; calls in `before` aren't counted.

        An attempt with `enough` calls or fewer is the last one.
        """
        found = []
        for _ in range(attempts):
            before()
            time.sleep(MOMENT)
            self.calls, self.on = 0, True
            action()
            time.sleep(MOMENT)
            self.on = False
            found.append(self.calls)
            if self.calls <= enough:
                break
        return min(found)

    async def least_awaited(self, action: Callable[[], Awaitable[object]]) -> int:
        found = []
        for _ in range(ATTEMPTS):
            await asyncio.sleep(MOMENT)
            self.calls, self.on = 0, True
            await action()
            self.on = False
            found.append(self.calls)
        return min(found)


@pytest.fixture
def count() -> Iterator[Count]:
    counting = Count()
    before = sys.getprofile()
    threading.setprofile(counting.note)
    sys.setprofile(counting.note)
    try:
        yield counting
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1, topics=["t"]) as opened:
        yield opened


@pytest.fixture
def servers(cluster: FakeCluster) -> str:
    return cluster.bootstrap_servers


def checked(what: str, calls: int) -> None:
    assert 0 < calls <= MOST[what], f"{what}: {calls} calls"


def nothing() -> None:
    """Do nothing before an attempt."""


def test_sending_a_record_and_waiting_takes_few_python_calls(servers: str, count: Count) -> None:
    with Producer({"bootstrap.servers": servers, "linger.ms": 0}) as producer:
        for _ in range(FIRST):
            producer.send("t", b"-").result()
        checked("send().result()", count.least(lambda: producer.send("t", b"-").result(), nothing))
        idles = "a second of a producer that idles"
        checked(idles, count.least(lambda: time.sleep(1.0), nothing, enough=MOST[idles]))


def test_reading_a_new_record_takes_few_python_calls(cluster: FakeCluster, count: Count) -> None:
    servers = cluster.bootstrap_servers
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "latest"}
    threading.setprofile(None)  # the producer's thread isn't counted
    with (
        Producer({"bootstrap.servers": servers, "linger.ms": 0}) as producer,
        Consumer(settings) as consumer,
    ):
        consumer.assign([P])
        consumer.position(P)

        def one_more() -> None:
            consumer.poll(0)  # so that a fetch is in flight
            producer.send("t", b"-").result()

        def polled() -> None:
            assert len(consumer.poll(5.0, 1)) == 1

        def waited_for(again: Callable[[], object] = nothing) -> None:
            count.on = False
            again()
            threading.Timer(5 * MOMENT, lambda: producer.send("t", b"-")).start()
            count.on = True
            polled()

        for _ in range(FIRST):
            one_more()
            polled()
        checked("poll() of a buffered record", count.least(polled, one_more))
        batch = count.least(lambda: consumer.poll_arrow(5.0), one_more)
        checked("poll_arrow() of a buffered batch", batch)
        waited = count.least(waited_for, lambda: consumer.poll(0))
        checked("poll() that waits for a record", waited)
        # A poll within a millisecond returns the record before the next fetch is sent. A loaded
        # machine is rarely that fast.
        soon = "poll() that waits for a record, soon after another"
        again = lambda: waited_for(lambda: consumer.poll(0))  # noqa: E731
        at_once = count.least(again, nothing, 20 * ATTEMPTS, MOST[soon])
        checked(soon, at_once)
        consumer.poll(0)
        tries: list[tuple[int, int, int]] = []
        while not any(calls <= most for _, calls, most in tries):
            assert len(tries) < ATTEMPTS, tries
            fetches, count.calls = cluster.requests()["Fetch"], 0
            count.on = True
            assert not consumer.poll(1.2)
            count.on = False
            fetches = cluster.requests()["Fetch"] - fetches
            assert fetches
            most = MOST["a poll() without records"] + fetches * MOST["a fetch without records"]
            tries.append((fetches, count.calls, most))


def test_reading_a_buffered_record_takes_few_python_calls(servers: str, count: Count) -> None:
    """Read buffered records: the sockets are only checked once per millisecond."""
    with (
        Producer({"bootstrap.servers": servers}) as producer,
        Consumer({"bootstrap.servers": servers, "auto.offset.reset": "latest"}) as consumer,
    ):
        consumer.assign([P])
        consumer.position(P)
        producer.send_many("t", [b"-"] * (FIRST + ATTEMPTS))
        producer.flush()
        assert len(consumer.poll(5.0, FIRST)) == FIRST
        found = []
        for _ in range(ATTEMPTS):
            count.calls, count.on = 0, True
            records = consumer.poll(5.0, 1)
            count.on = False
            assert len(records) == 1
            found.append(count.calls)
        checked("poll(5, 1) while more of its batch waits", min(found))


def test_sending_and_reading_in_an_event_loop_takes_few_python_calls(
    servers: str, count: Count
) -> None:
    async def main() -> None:
        settings = {"bootstrap.servers": servers}
        async with (
            AsyncProducer({**settings, "linger.ms": 0}) as producer,
            AsyncConsumer({**settings, "auto.offset.reset": "latest"}) as consumer,
        ):
            for _ in range(FIRST):
                await producer.send_and_wait("t", b"-")
            calls = await count.least_awaited(lambda: producer.send_and_wait("t", b"-"))
            checked("await send_and_wait()", calls)
            consumer.assign([P])
            await consumer.position(P)

            async def there_and_back() -> None:
                polling = asyncio.ensure_future(consumer.poll(5.0, 1))
                count.on = False
                await asyncio.sleep(MOMENT)
                count.on = True
                await producer.send_and_wait("t", b"-")
                assert len(await polling) == 1
                await asyncio.sleep(MOMENT)

            for _ in range(FIRST):
                await there_and_back()
            calls = await count.least_awaited(there_and_back)
            checked("a record from send_and_wait() to a task that polls", calls)

    asyncio.run(main())


def test_a_thousand_tasks_that_send_at_once_are_all_acknowledged(servers: str) -> None:
    """Check that all records of 1000 concurrent tasks are acknowledged, three of each task."""

    async def main() -> int:
        async with AsyncProducer({"bootstrap.servers": servers, "linger.ms": 5}) as producer:

            async def caller() -> None:
                for _ in range(3):
                    await producer.send_and_wait("t", b"-" * 100)

            await asyncio.gather(*(caller() for _ in range(1000)))
            return producer._engine.unsettled()

    assert asyncio.run(main()) == 0
