"""Two ways in which the programs of a soak wait: in threads of their own, or in one event loop.

A program is written once, as a coroutine. What a client's call gives goes through `of`, which
awaits it where the client is one of asyncio's. In: a program. Out: its run. Must not: know what
programs do.
"""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek.api.admin import Admin
from odradek.api.asyncio_admin import AsyncAdmin
from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerRecord
from odradek.runtime.hosts.delivery_future import DeliveryFuture
from odradek.runtime.hosts.record_future import RecordFuture

T = TypeVar("T")
Program = Callable[[], Coroutine[Any, Any, None]]
AnyConsumer = Consumer | AsyncConsumer
AnyProducer = Producer | AsyncProducer
AnyAdmin = Admin | AsyncAdmin
Delivery = RecordFuture | DeliveryFuture
HASTE = 0.1
"""The share of polls in an event loop that are cancelled if they take a little longer."""
TURN = 0.05
"""Seconds until a task that pauses looks again whether it shall stop."""


async def of(given: Coroutine[Any, Any, T] | T) -> T:
    """What a call of a client gives, whichever client it is."""
    return await given if asyncio.iscoroutine(given) else given


async def sent(producer: AnyProducer, topic: str, value: str, partition: int) -> Delivery:
    """Give a record to a producer; its outcome comes later."""
    given = producer.send(topic, value.encode(), partition=partition)
    return await given if asyncio.iscoroutine(given) else given


def finished(program: Coroutine[Any, Any, T]) -> T:
    """The result of a program whose clients are sync: it never awaits anything."""
    try:
        program.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    program.close()
    raise AssertionError(f"{program!r} waits for something")


class HastyConsumer(AsyncConsumer):
    """Some of its polls are cancelled, as by a program that gives up: that must lose nothing."""

    def hurried(self, chance: random.Random, cancelled: Counter[str]) -> Self:
        """Have chance decide which; they are counted."""
        self._chance, self._cancelled = chance, cancelled
        return self

    async def poll(self, timeout: float = 1.0, *rest: Any, **more: Any) -> list[ConsumerRecord]:
        """As `AsyncConsumer.poll`; none where it was cancelled."""
        if self._chance.random() >= HASTE:
            return await super().poll(timeout, *rest, **more)
        try:
            async with asyncio.timeout(self._chance.uniform(0.0, timeout / 2)) as limit:
                return await super().poll(timeout, *rest, **more)
        except TimeoutError:
            if not limit.expired():
                raise
            self._cancelled["polls cancelled"] += 1
            return []


class Way(ABC):
    """How programs run, wait, and make their clients."""

    prefix = ""
    """What their names begin with."""

    @abstractmethod
    def start(self, name: str, program: Program) -> Future[None]:
        """Have a program run; the future has its end."""

    @abstractmethod
    async def pause(self, seconds: float, stopping: threading.Event) -> bool:
        """Wait a while, or until it shall stop; gives whether it shall."""

    @abstractmethod
    def consumer(self, name: str, settings: dict[str, Any]) -> AnyConsumer:
        """Make a consumer; `name` is that of its program."""

    @abstractmethod
    def producer(self, settings: dict[str, Any]) -> AnyProducer:
        """Make a producer."""

    @abstractmethod
    def admin(self, settings: dict[str, Any]) -> AnyAdmin:
        """Make an admin client."""


class InThreads(Way):
    """Each program has a thread, and sync clients."""

    def start(self, name: str, program: Program) -> Future[None]:
        """Run it in a thread."""
        ended: Future[None] = Future()

        def run() -> None:
            try:
                ended.set_result(finished(program()))
            except BaseException as error:
                ended.set_exception(error)

        threading.Thread(target=run, name=name).start()
        return ended

    async def pause(self, seconds: float, stopping: threading.Event) -> bool:
        """Block the thread."""
        return stopping.wait(seconds)

    def consumer(self, name: str, settings: dict[str, Any]) -> Consumer:
        """Make a sync one."""
        return Consumer(settings)

    def producer(self, settings: dict[str, Any]) -> Producer:
        """Make a sync one."""
        return Producer(settings)

    def admin(self, settings: dict[str, Any]) -> Admin:
        """Make a sync one."""
        return Admin(settings)


class InLoop(Way):
    """All programs are tasks of one event loop, which has a thread; clients are asyncio's."""

    prefix = "asyncio-"

    def __init__(self) -> None:
        """It runs while this is entered."""
        self.cancelled: Counter[str] = Counter()
        self.made = 0
        """Clients that were created."""
        self._thread = threading.Thread(target=self._run, name="event loop")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def start(self, name: str, program: Program) -> Future[None]:
        """Run it as a task."""
        return asyncio.run_coroutine_threadsafe(program(), self.loop)

    async def pause(self, seconds: float, stopping: threading.Event) -> bool:
        """Let the other tasks have their turns."""
        end = self.loop.time() + seconds
        while not stopping.is_set() and (left := end - self.loop.time()) > 0:
            await asyncio.sleep(min(left, TURN))
        return stopping.is_set()

    def consumer(self, name: str, settings: dict[str, Any]) -> AsyncConsumer:
        """Make one some of whose polls are cancelled."""
        self.made += 1
        return HastyConsumer(settings).hurried(random.Random(name), self.cancelled)

    def producer(self, settings: dict[str, Any]) -> AsyncProducer:
        """Make one of asyncio's."""
        self.made += 1
        return AsyncProducer(settings)

    def admin(self, settings: dict[str, Any]) -> AsyncAdmin:
        """Make one of asyncio's."""
        self.made += 1
        return AsyncAdmin(settings)
