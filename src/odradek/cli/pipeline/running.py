"""Runs a pipeline's queries to their end, to a failure, or to a signal.

In: a checked `Pipeline`, a display. Out: an exit status. A signal lets each query finish the batch
it is in; the next one may be planned by then, never written. Must not: restart a query that failed
(whatever supervises the process does), or know what the display makes of it all.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from odradek.cli.demo.timeline import EventReader
from odradek.cli.pipeline.display import Display
from odradek.cli.pipeline.graph import Graph, end_session, session, text_of
from odradek.cli.pipeline.outages import Outages
from odradek.cli.pipeline.planning import ask_clusters, goes_on
from odradek.cli.pipeline.progress import Progress
from odradek.cli.pipeline.spec import OURS, Pipeline

POLL = 0.25
POLL_STOPPING = 0.02
"""Often enough to stop a query between its batches when they follow each other at once."""


class Stop:
    """Whether somebody asked for an end: SIGTERM or Ctrl-C, once or twice."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def watch(self) -> None:
        """Take the signals over; after Spark is up, which takes Ctrl-C for itself."""
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, self._asked)
            self._before.setdefault(number, before)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)


@dataclass(slots=True)
class Flow:
    """One query while it runs."""

    name: str
    query: Any
    progress: Progress
    asked_at: str | None = field(default=None)
    """The newest progress when it was asked to stop."""
    cut: bool = False
    """Stopped within a batch."""

    def between_batches(self) -> bool:
        """Whether stopping it now interrupts no batch that has begun to be written."""
        status = self.query.status
        if not status["isTriggerActive"]:
            return True
        if status["message"].startswith(("Getting offsets", "Waiting for", "Initializing")):
            return True
        last = self.query.lastProgress
        return last is not None and last["timestamp"] != self.asked_at


class Queries:
    """The queries of one pipeline and what they have told so far."""

    def __init__(
        self,
        started: Mapping[str, Any],
        display: Display,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.flows = [Flow(name, query, Progress(name)) for name, query in started.items()]
        self._display, self._now, self._sleep = display, now, sleep

    def poll(self) -> float | None:
        """Show new batches; gives the time of one with rows, if there was one."""
        landed = None
        for flow in self.flows:
            last = flow.query.lastProgress
            for batch in flow.progress.fresh(last, partial(getattr, flow.query, "recentProgress")):
                if batch.rows:
                    landed = time.time()
                self._display.batch(batch, flow.progress.rows)
        return landed

    @property
    def active(self) -> list[Flow]:
        """Those that go on."""
        return [flow for flow in self.flows if flow.query.isActive]

    def failures(self) -> dict[str, str]:
        """What those said that failed."""
        found = {}
        for flow in self.flows:
            error = flow.query.exception()
            if error is not None and not flow.cut:
                found[flow.name] = text_of(error)
        return found

    def wind_down(self, timeout: float, hurried: Callable[[], bool]) -> None:
        """Stop each query after the batch it is in; after the timeout within it."""
        for flow in self.active:
            last = flow.query.lastProgress
            flow.asked_at = last["timestamp"] if last else None
        end = self._now() + timeout
        while self.active and self._now() < end and not hurried():
            for flow in self.active:
                if flow.between_batches():
                    flow.query.stop()
            self._sleep(POLL_STOPPING)
        for flow in self.active:
            flow.cut = True
            flow.query.stop()


class Running:
    """One run of a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        display: Display,
        stop: Stop,
        *,
        log: Path | None,
        stop_timeout: float,
        spark: Any = None,
    ) -> None:
        self._pipeline, self._display, self._stop = pipeline, display, stop
        self._given = spark
        """A session that is there already; it goes on afterwards."""
        self._stop_timeout = stop_timeout
        self._home = pipeline.local_storage or Path(tempfile.mkdtemp(prefix="odradek-pipeline-"))
        self._log = log or self._home / "spark.log"
        self._events = self._home / "events"
        names = {
            s.cluster.name
            for s in (*pipeline.sources.values(), *pipeline.sinks.values())
            if s.format == OURS and s.cluster is not None
        }
        self._outages = {name: Outages(name) for name in sorted(names)}
        self._readers: dict[str, EventReader] = {}

    def run(self) -> int:
        """Start, watch and stop it; gives the exit status."""
        if not goes_on(self._pipeline):
            ask_clusters(self._pipeline)
        self._clear_events()
        if self._given is not None:
            return self._run(self._given)
        self._display.say("starting", f"starting Spark; its log is {self._log}", log=str(self._log))
        spark = session(self._pipeline, self._log)
        try:
            return self._run(spark)
        finally:
            end_session(spark)

    def _run(self, spark: Any) -> int:
        graph = Graph(self._pipeline, spark, self._events)
        frames = graph.analyse()
        self._stop.watch()
        queries = Queries(graph.start(frames), self._display)
        for flow in queries.flows:
            sink = self._pipeline.sinks[flow.name]
            self._display.say(
                "started",
                f"{flow.name}: {sink.reads} → {sink.format}, {sink.trigger}",
                flow=flow.name,
                trigger=sink.trigger,
                checkpoint=graph.checkpoint(sink),
            )
        try:
            self._watch(queries)
        finally:
            for flow in queries.active:
                flow.query.stop()
        return self._ended(queries)

    def _clear_events(self) -> None:
        """Events of earlier runs are no news."""
        for name in self._outages:
            folder = self._events / name
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("*.jsonl"):
                with contextlib.suppress(OSError):
                    path.unlink()
            self._readers[name] = EventReader(folder)

    def _watch(self, queries: Queries) -> None:
        while queries.active and not self._stop.signals and not queries.failures():
            self._look(queries)
            time.sleep(POLL)
        if queries.active:
            if self._stop.signals:
                self._display.say(
                    "stopping", "stopping after the running batches (once more: at once)"
                )
            queries.wind_down(self._stop_timeout, lambda: len(self._stop.signals) > 1)
        self._look(queries)

    def _look(self, queries: Queries) -> None:
        landed = queries.poll()
        for name, watch in self._outages.items():
            reader = self._readers[name]
            for outage in watch.notice(reader.poll()):
                self._display.outage("outage" if outage.over is None else "back", outage)
            reader.events.clear()  # a run may last for months
            flowing = watch.landed(landed) if landed is not None else None
            if flowing is not None:
                self._display.outage("flowing", flowing)

    def _ended(self, queries: Queries) -> int:
        failures = queries.failures()
        cut = [flow.name for flow in queries.flows if flow.cut]
        for flow in queries.flows:
            done = f"{flow.progress.rows:,} rows in {flow.progress.batches} batches"
            if flow.name in failures:
                event, text = "failed", f"{flow.name} failed: {failures[flow.name]}"
            elif flow.cut:
                event = "cut"
                text = f"{flow.name} was stopped within a batch, which will be repeated; {done}"
            else:
                event = "stopped" if self._stop.signals else "ended"
                text = f"{flow.name} {event}: {done}"
            self._display.say(
                event, text, flow=flow.name, rows=flow.progress.rows,
                batches=flow.progress.batches, positions=flow.progress.positions,
            )  # fmt: skip
        if failures:
            return 1
        if cut:
            return 128 + (self._stop.signals[-1] if self._stop.signals else signal.SIGTERM)
        return 0
