"""Run the programs of a soak in threads with synchronous clients, or as tasks with asyncio clients.

Each program is written once, as a coroutine. It passes the return value of a client's call to `of`,
which awaits it if the client is an asyncio client. In: a program. Out: its run. Must not: know what
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
"""The share of polls in an event loop that get a short timeout, which cancels them."""
TURN = 0.05
"""Seconds after which a pausing task checks again whether it must stop."""


async def of(given: Coroutine[Any, Any, T] | T) -> T:
    """Return the result of a call of a synchronous or an asyncio client."""
    return await given if asyncio.iscoroutine(given) else given


async def sent(producer: AnyProducer, topic: str, value: str, partition: int) -> Delivery:
    """Send a record, and return the future of its acknowledgement."""
    given = producer.send(topic, value.encode(), partition=partition)
    return await given if asyncio.iscoroutine(given) else given


def finished(program: Coroutine[Any, Any, T]) -> T:
    """Run a program with synchronous clients, which never awaits, and return its result."""
    try:
        program.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    program.close()
    raise AssertionError(f"{program!r} waits for something")


class HastyConsumer(AsyncConsumer):
    """A consumer some of whose polls are cancelled, which must not lose records."""

    def hurried(self, chance: random.Random, cancelled: Counter[str]) -> Self:
        """Set the random generator and the counter of cancelled polls."""
        self._chance, self._cancelled = chance, cancelled
        return self

    async def poll(self, timeout: float = 1.0, *rest: Any, **more: Any) -> list[ConsumerRecord]:
        """Poll like `AsyncConsumer.poll`; a cancelled poll returns no records."""
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
    """Runs programs, lets them pause, and creates their clients."""

    prefix = ""
    """Prefix of the names of the programs that run in this way."""

    @abstractmethod
    def start(self, name: str, program: Program) -> Future[None]:
        """Start a program, and return the future of its end."""

    @abstractmethod
    async def pause(self, seconds: float, stopping: threading.Event) -> bool:
        """Wait until the time is over or `stopping` is set; return whether it is set."""

    @abstractmethod
    def consumer(self, name: str, settings: dict[str, Any]) -> AnyConsumer:
        """Create a consumer for the program of this name."""

    @abstractmethod
    def producer(self, settings: dict[str, Any]) -> AnyProducer:
        """Create a producer."""

    @abstractmethod
    def admin(self, settings: dict[str, Any]) -> AnyAdmin:
        """Create an admin client."""


class InThreads(Way):
    """Each program has a thread and synchronous clients."""

    def start(self, name: str, program: Program) -> Future[None]:
        """Start a thread that runs the program."""
        ended: Future[None] = Future()

        def run() -> None:
            try:
                ended.set_result(finished(program()))
            except BaseException as error:
                ended.set_exception(error)

        threading.Thread(target=run, name=name).start()
        return ended

    async def pause(self, seconds: float, stopping: threading.Event) -> bool:
        """Block the program's thread."""
        return stopping.wait(seconds)

    def consumer(self, name: str, settings: dict[str, Any]) -> Consumer:
        """Create a synchronous consumer."""
        return Consumer(settings)

    def producer(self, settings: dict[str, Any]) -> Producer:
        """Create a synchronous producer."""
        return Producer(settings)

    def admin(self, settings: dict[str, Any]) -> Admin:
        """Create a synchronous admin client."""
        return Admin(settings)


class InLoop(Way):
    """All programs are tasks of one event loop in a thread; the clients are asyncio clients."""

    prefix = "asyncio-"

    def __init__(self) -> None:
        """Create the thread; the event loop runs while the context manager is entered."""
        self.cancelled: Counter[str] = Counter()
        self.made = 0
        """Number of clients that were created."""
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
        """Start a task that runs the program."""
        return asyncio.run_coroutine_threadsafe(program(), self.loop)

    async def pause(self, seconds: float, stopping: threading.Event) -> bool:
        """Sleep in short steps, so that other tasks run."""
        end = self.loop.time() + seconds
        while not stopping.is_set() and (left := end - self.loop.time()) > 0:
            await asyncio.sleep(min(left, TURN))
        return stopping.is_set()

    def consumer(self, name: str, settings: dict[str, Any]) -> AsyncConsumer:
        """Create an asyncio consumer some of whose polls are cancelled."""
        self.made += 1
        return HastyConsumer(settings).hurried(random.Random(name), self.cancelled)

    def producer(self, settings: dict[str, Any]) -> AsyncProducer:
        """Create an asyncio producer."""
        self.made += 1
        return AsyncProducer(settings)

    def admin(self, settings: dict[str, Any]) -> AsyncAdmin:
        """Create an asyncio admin client."""
        self.made += 1
        return AsyncAdmin(settings)
