"""The run of `--versus`: brokers, one publisher (ours), a reader of each client, the move.

In: the number of brokers, patience. Out: a `VersusOutcome`. All readers read by assignment: a
group would only add to the others' delay. Must not: leave a process running, or tell any client
anything but the front door's address.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.api.admin import Admin
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.producer import Producer
from odradek.cli.demo.data import PARTITIONS, TOPIC
from odradek.cli.demo.loop_thread import LoopThread
from odradek.cli.demo.sample import FlightSample
from odradek.cli.demo.timeline import EventReader, Teller
from odradek.cli.demo.versus.child import ReaderProcess
from odradek.cli.demo.versus.outcome import Course, VersusOutcome, judge, picture
from odradek.cli.demo.versus.peers import OTHERS, OURS, OURS_IN_LOOP, PeerLibrary, how_to_install
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import KafkaError
from odradek.testing import LocalCluster

RATE = 100
"""Rows in a second."""
POLL_S = 0.05
START_S = 30.0
"""Seconds that the readers get for their first row."""
STEADY_S = 4.0
"""Seconds of undisturbed reading before the move, and after the last reader's return."""
STEADY_ROWS = 100
"""Rows that each reader has before the move, however slow the machine; waited for `START_S`."""
DRAIN_S = 15.0
"""Seconds that our reader gets for what is still under way at the end."""
REMIND_S = 10.0
FLUSH_S = 60.0


class VersusError(KafkaError):
    """The run couldn't be brought to its end."""


class Publishing(threading.Thread):
    """Publishes rows at a steady rate until it is told to stop."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(name="demo-publisher", daemon=True)
        self._settings = settings
        self._sample = FlightSample()
        self._stopped = threading.Event()
        self.published: list[float] = []
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._producer = Producer(self._settings)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer.__exit__(kind, error, trace)

    def run(self) -> None:
        """Publish in even steps, however late the producer lets go."""
        try:
            for wait in self._steps():
                self._stopped.wait(wait)
                key, value = self._next()
                self._producer.send(TOPIC, value=value, key=key)
            self._producer.flush(timeout=FLUSH_S)
        except BaseException as error:  # told to the main thread
            self.error = error

    def _steps(self) -> Iterator[float]:
        """How long to wait each time, until it is stopped."""
        begin = time.monotonic()
        while not self._stopped.is_set():
            yield max(0.0, begin + len(self.published) / RATE - time.monotonic())

    def _next(self) -> tuple[bytes | None, bytes]:
        """The row that is published now."""
        row = len(self.published)
        self.published.append(time.time())
        return self._sample.record(row)

    def stop(self) -> None:
        """Publish nothing more; return when everything has an outcome."""
        self._stopped.set()
        self.join(70)
        if self.error is not None:
            raise VersusError(f"the producer failed: {self.error}") from self.error


class LoopPublishing(LoopThread, Publishing):
    """The same with asyncio's producer, in an event loop."""

    async def main(self) -> None:
        """Publish in even steps, however late the producer lets go."""
        async with AsyncProducer(self._settings) as producer:
            for wait in self._steps():
                await asyncio.sleep(wait)
                key, value = self._next()
                await producer.send(TOPIC, value=value, key=key)
            await producer.flush(timeout=FLUSH_S)


class Versus:
    """One run."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[float, str], None],
        *,
        brokers: int,
        patience: float,
        in_loop: bool = False,
    ) -> None:
        """With `in_loop` our publisher and our reader are asyncio's clients."""
        self._folder = folder
        self._events = folder / "events"
        self._reader = EventReader(self._events)
        self._teller = Teller()
        self._say_to = say
        self._brokers = brokers
        self._ours = OURS_IN_LOOP if in_loop else OURS
        self._publishing = LoopPublishing if in_loop else Publishing
        self._patience = patience
        self._begin = time.time()
        self._timeline: list[tuple[float, str]] = []
        self._missing = [peer for peer in OTHERS if not peer.installed]

    def run(self) -> VersusOutcome:
        """Run it; whatever it started is gone afterwards, also after Ctrl-C."""
        self._events.mkdir(parents=True, exist_ok=True)
        os.environ["ODRADEK_EVENTS_DIR"] = str(self._events)
        if self._missing:
            self._say(how_to_install(self._missing))
        with LocalCluster(self._brokers, report=self._say) as cluster:
            self._say(f"{self._brokers} Kafka {cluster.version} brokers are up")
            servers = {"bootstrap.servers": cluster.bootstrap_servers}
            with Admin({**servers, "client.id": "demo-admin"}) as admin:
                topic = NewTopic(TOPIC, PARTITIONS, min(3, self._brokers))
                admin.create_topics([topic], timeout=60)
            with (
                self._children(cluster.bootstrap_servers) as children,
                self._publishing({**servers, "client.id": "demo-producer"}) as publishing,
            ):
                return self._play(cluster, publishing, children)

    @contextmanager
    def _children(self, bootstrap: str) -> Iterator[list[ReaderProcess]]:
        children: list[ReaderProcess] = []
        try:
            for peer in (self._ours, *(p for p in OTHERS if p.installed)):
                children.append(self._child(peer, bootstrap))
                how = ", in an event loop" if peer is OURS_IN_LOOP else ""
                self._say(f"{peer.title} reads, in a process of its own{how}")
            yield children
        finally:
            for child in children:
                child.end()

    def _child(self, peer: PeerLibrary, bootstrap: str) -> ReaderProcess:
        return ReaderProcess(peer, bootstrap, self._folder / f"{peer.name}.log", self._events)

    def _play(
        self, cluster: LocalCluster, publishing: Publishing, children: list[ReaderProcess]
    ) -> VersusOutcome:
        begin = time.time()
        publishing.start()
        self._wait(children, START_S, lambda: all(child.heard.rows for child in children))
        silent = [child.peer.name for child in children if not child.heard.rows]
        if silent:
            raise VersusError(f"{', '.join(silent)} read nothing in {START_S:.0f} s; see its log")
        self._wait(children, STEADY_S)
        self._wait(
            children, START_S, lambda: all(len(c.heard.rows) > STEADY_ROWS for c in children)
        )
        gone, first_new_row = self._move(cluster, publishing, children)
        back = time.time()
        self._say(f"the cluster is back, at {', '.join(cluster.broker_addresses)}")
        self._watch(children, first_new_row, back)
        end = time.time()
        publishing.stop()
        ours = children[0].heard
        self._wait(
            children,
            DRAIN_S,
            lambda: len({row for _, row in ours.rows}) >= len(publishing.published),
        )
        course = Course(begin, gone, back, end, publishing.published, first_new_row)
        return self._outcome(course, children)

    def _move(
        self, cluster: LocalCluster, publishing: Publishing, children: list[ReaderProcess]
    ) -> tuple[float, int]:
        """Move the cluster; say when it was gone, and which row was the first to come after."""
        self._say("the whole cluster goes away")
        seen = len(cluster.timeline)
        with ThreadPoolExecutor(1, "demo-mover") as executor:
            moved = executor.submit(cluster.move)
            while not moved.done():
                self._wait(children, POLL_S)
            moved.result()
        events = cluster.timeline[seen:]
        exits = [event.wall for event in events if event.name == "broker_exited"]
        first = next(
            (row for row, at in enumerate(publishing.published) if at > max(exits)),
            len(publishing.published),
        )
        return min(exits), first

    def _watch(self, children: list[ReaderProcess], first_new_row: int, back: float) -> None:
        """Wait until all have come back, or for `patience`."""
        waiting = list(children)
        reminded = time.time()
        while waiting and time.time() < back + self._patience:
            self._wait(children, POLL_S)
            for child in list(waiting):
                at = child.heard.came_back(first_new_row)
                if at is not None:
                    late = max(0.0, at - back)
                    self._say(f"{child.peer.title} reads again, {late:.1f} s after the return", at)
                    waiting.remove(child)
                elif child.heard.ended is not None:
                    at, how = child.heard.ended
                    self._say(f"{child.peer.title} has ended: {how}", at)
                    waiting.remove(child)
            if waiting and time.time() - reminded >= REMIND_S:
                reminded = time.time()
                names = ", ".join(child.peer.title for child in waiting)
                self._say(f"still waiting for {names}")
        for child in waiting:
            self._say(f"{child.peer.title} did not read again in {self._patience:g} s")
        if not waiting:
            self._wait(children, STEADY_S)

    def _wait(
        self,
        children: list[ReaderProcess],
        seconds: float,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        end = time.time() + seconds
        while time.time() < end and not until():
            time.sleep(POLL_S)
            for child in children:
                child.look()
            for at, line in self._teller.lines(self._reader.poll()):
                self._say(line, at)

    def _outcome(self, course: Course, children: list[ReaderProcess]) -> VersusOutcome:
        everybody = [child.heard for child in children]
        return VersusOutcome(
            readers=[judge(heard, course) for heard in everybody],
            rows_sent=len(course.published),
            outage_s=course.back - course.gone,
            observed_s=course.end - course.back,
            not_installed=[peer.name for peer in self._missing],
            timeline=sorted(self._timeline),
            picture=picture(everybody, course),
        )

    def _say(self, text: str, at: float | None = None) -> None:
        moment = (time.time() if at is None else at) - self._begin
        self._timeline.append((moment, text))
        self._say_to(moment, text)
