"""Runs a pipeline's queries to their end, to a failure, or to a signal.

In: a checked `Pipeline`, a display. Out: an exit status. After a signal, each query finishes its
current batch; a batch that is interrupted anyway is reported, because the next run repeats it. Must
not: restart a failed query (a supervisor of the process does), or depend on a kind of display.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

from odradek.cli.demo.timeline import EventReader
from odradek.cli.frame.results import counted
from odradek.cli.pipeline.checkpoint import Checkpoint, look
from odradek.cli.pipeline.dead_letters import DeadLetterTopics, in_words
from odradek.cli.pipeline.display import Display
from odradek.cli.pipeline.graph import (
    ONCE_MORE,
    Graph,
    end_session,
    is_not_connected,
    session,
    text_of,
)
from odradek.cli.pipeline.lock import locked
from odradek.cli.pipeline.outages import Outages
from odradek.cli.pipeline.planning import ask_clusters
from odradek.cli.pipeline.progress import Batch, QueryProgress
from odradek.cli.pipeline.spec import OURS, Pipeline
from odradek.runtime.assembly import EVENTS_DIR

POLL = 0.25
POLL_STOPPING = 0.02
"""Seconds between checks while stopping; short, to catch the time between two batches."""
PATIENT = 5.0
"""Seconds for which a stop waits for a query to be idle, before it accepts other states."""


class Stop:
    """Handlers of SIGTERM and Ctrl-C, which record the signals that end the run."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._take_over(self._asked_early)
        return self

    def watch(self) -> None:
        """Install the handlers. Call this after Spark's start, which replaces Ctrl-C's handler."""
        self._take_over(self._asked)

    def _take_over(self, handler: Callable[[int, FrameType | None], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, handler)
            self._before.setdefault(number, before)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def _asked_early(self, number: int, frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt` at once, because no query runs yet."""
        self.signals.append(number)
        raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Defer a signal until the end of the block; a second signal isn't deferred.

        PySpark leaves a JVM running if it is interrupted while it starts the JVM.
        """
        self._take_over(self._asked_while_held)
        try:
            yield
        finally:
            self._take_over(self._asked_early)

    def _asked_while_held(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        if len(self.signals) > 1:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)


@dataclass(slots=True)
class Flow:
    """Running query of a sink."""

    name: str
    query: Any
    progress: QueryProgress
    checkpoint: str | None = None
    cut: bool = False
    """Whether the query was stopped within a batch."""
    left: Checkpoint | None = None
    """State of the checkpoint after the stop; None if the query wasn't stopped."""
    again: bool = False
    """Whether the query was restarted."""

    def between_batches(self, *, patient: bool) -> bool:
        """Return whether, by the query's status, no batch runs that a stop would interrupt.

        Spark can't stop a query at the end of a batch. Odradek's sources begin no further batch
        (option pauseFile); with other sources the next batch may begin before the stop arrives, so
        `stop` checks the checkpoint afterwards. While a query requests offsets, a stop only takes
        effect when the next batch begins. So this state counts only if `patient` is false, that is
        if the query hasn't been idle for some time.
        """
        status = self.query.status
        if not status["isTriggerActive"]:
            return True
        second_best = () if patient else ("Getting offsets",)
        found: bool = status["message"].startswith(("Waiting for", "Initializing", *second_best))
        return found

    def stop(self, *, forced: bool) -> None:
        """Stop the query, and determine by its checkpoint whether a batch was interrupted."""
        self.query.stop()
        self.left = Checkpoint(seen=False) if self.checkpoint is None else look(self.checkpoint)
        self.cut = self.left.repeats is not None if self.left.seen else forced


VANISHED = (
    "something else stopped its query, perhaps a query with the same checkpoint in this or another "
    "session"
)


class Queries:
    """Queries of one pipeline."""

    def __init__(
        self,
        started: Mapping[str, Any],
        display: Display,
        checkpoints: Mapping[str, str] | None = None,
        *,
        letters: DeadLetterTopics | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        places = checkpoints or {}
        self.letters = letters or DeadLetterTopics()
        self.flows = [Flow(n, q, QueryProgress(n), places.get(n)) for n, q in started.items()]
        self._display, self._now, self._sleep = display, now, sleep

    def poll(self) -> float | None:
        """Show new batches; return the current time if one of them has rows, else None."""
        landed = None
        new: list[tuple[Flow, list[Batch]]] = []
        for flow in self.flows:
            last = flow.query.lastProgress
            recent = partial(getattr, flow.query, "recentProgress")
            new.append((flow, flow.progress.fresh(last, recent)))
        ran = [flow.name for flow, fresh in new if any(batch.ran for batch in fresh)]
        if ran:
            self.letters.look(ran)
        for flow, fresh in new:
            for batch in fresh:
                if batch.rows:
                    landed = time.time()
                told = replace(batch, dead_letters=self.letters.of(flow.name))
                self._display.batch(told, flow.progress.rows)
        return landed

    @property
    def active(self) -> list[Flow]:
        """Return the flows whose queries are running."""
        return [flow for flow in self.flows if flow.query.isActive]

    def failures(self) -> dict[str, str]:
        """Return the errors of failed flows."""
        found = {}
        for flow in self.flows:
            error = flow.query.exception()
            if error is not None and not flow.cut:
                found[flow.name] = text_of(error)
        return found

    def vanished(self, continuous: Collection[str]) -> set[str]:
        """Return the flows that ended without an error although they had more to do.

        `continuous`: flows whose trigger has no end. All other flows may end by themselves, unless
        a batch is unfinished.
        """
        return {
            flow.name
            for flow in self.flows
            if not flow.query.isActive and flow.query.exception() is None and flow.left is None
            if flow.name in continuous
            or (flow.checkpoint is not None and look(flow.checkpoint).repeats is not None)
        }

    def start_again(self, start: Callable[[str], Any]) -> None:
        """Restart flows that failed because a Python process of Spark started too slowly.

        The query continues from its checkpoint; a second such failure ends the flow.
        """
        for flow in self.flows:
            error = None if flow.again else flow.query.exception()
            if error is not None and is_not_connected(error):
                self._display.say("starting", f"{flow.name}: {ONCE_MORE}", flow=flow.name)
                flow.again, flow.query = True, start(flow.name)

    def wind_down(self, timeout: float, hurried: Callable[[], bool]) -> None:
        """Stop each query after its current batch; after the timeout, stop it within the batch.

        The queries are stopped concurrently, so that none begins another batch meanwhile.
        """
        begin = self._now()
        end = begin + timeout

        def stop(flow: Flow) -> None:
            between = False
            while (now := self._now()) < end and not hurried() and flow.query.isActive:
                between = flow.between_batches(patient=now < begin + PATIENT)
                if between:
                    break
                self._sleep(POLL_STOPPING)
            if flow.query.isActive:
                flow.stop(forced=not between)

        flows = self.active
        with ThreadPoolExecutor(max_workers=max(1, len(flows))) as pool:
            list(pool.map(stop, flows))


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
        """Existing session, which isn't stopped at the end."""
        self._stop_timeout = stop_timeout
        self._home = pipeline.local_storage or Path(tempfile.mkdtemp(prefix="odradek-pipeline-"))
        self._log = log or self._home / "spark.log"
        self._events = self._home / "events"
        self._pause = (self._home / f"pause-{os.getpid()}-{id(self):x}").absolute()
        """File that is created to stop the queries: while it exists, our sources begin no batch."""
        names = {
            s.cluster.name
            for s in (*pipeline.sources.values(), *pipeline.sinks.values())
            if s.format == OURS and s.cluster is not None
        }
        self._outages = {name: Outages(name) for name in sorted(names)}
        self._readers: dict[str, EventReader] = {}
        self._vanished: set[str] = set()
        """Flows that were stopped from outside."""

    def run(self) -> int:
        """Start, watch and stop the queries; return the exit status.

        Raises `IllegalStateError` if another process runs queries with the same checkpoints.
        """
        pipeline = self._pipeline
        try:
            with locked(map(pipeline.checkpoint, pipeline.sinks.values())):
                return self._started()
        except KeyboardInterrupt:  # no query ran yet
            self._display.say("stopped", f"{self._pipeline.name} was stopped before it had started")
            return 0 if signal.SIGTERM in self._stop.signals[-1:] else 128 + signal.SIGINT

    def _started(self) -> int:
        ask_clusters(
            self._pipeline, only_new=True, say=lambda text: self._display.say("starting", text)
        )
        self._clear_events()
        if self._given is not None:
            return self._run(self._given)
        self._share_events()
        self._display.say("starting", f"starting Spark; its log is {self._log}", log=str(self._log))
        with self._stop.held():
            spark = session(self._pipeline, self._log)
        try:
            if self._stop.signals:
                raise KeyboardInterrupt
            return self._run(spark)
        finally:
            end_session(spark)

    def _run(self, spark: Any) -> int:
        graph = Graph(
            self._pipeline,
            spark,
            self._events if _is_local(self._pipeline, spark) else None,
            self._pause if _plans_here(spark) else None,
            say=partial(self._display.say, "starting"),
        )
        frames = graph.analyse()
        self._stop.watch()
        checkpoints = {
            name: self._pipeline.checkpoint(s) for name, s in self._pipeline.sinks.items()
        }
        with closing(DeadLetterTopics.met(self._pipeline)) as letters:
            queries = Queries(graph.start(frames), self._display, checkpoints, letters=letters)
            for flow in queries.flows:
                sink = self._pipeline.sinks[flow.name]
                self._display.say(
                    "started",
                    f"{flow.name}: {sink.reads} → {sink.format}, {sink.trigger}",
                    flow=flow.name,
                    trigger=sink.trigger,
                    checkpoint=flow.checkpoint,
                )
            try:
                self._watch(queries, lambda name: graph.start_one(name, frames[name]))
            finally:
                for flow in queries.active:
                    flow.query.stop()
                with suppress(OSError):
                    self._pause.unlink(missing_ok=True)
            letters.look([flow.name for flow in queries.flows])
            return self._ended(queries)

    def _clear_events(self) -> None:
        """Delete the events of earlier runs."""
        for name in self._outages:
            folder = self._events / name
            folder.mkdir(parents=True, exist_ok=True)
            self._readers[name] = EventReader(folder, clearing=True)
            self._readers[name].forget()

    def _share_events(self) -> None:
        """Let the driver's processes write events about outages if tasks run on other machines.

        The option eventsDir would create files on the other machines, where they aren't read. The
        environment variable used instead applies to all clients of the driver, so it is only set
        for a single cluster.
        """
        if not _is_local(self._pipeline, None) and len(self._outages) == 1:
            [name] = self._outages
            os.environ[EVENTS_DIR] = str(self._events / name)

    def _watch(self, queries: Queries, start: Callable[[str], Any]) -> None:
        while not self._stop.signals:
            queries.start_again(start)
            self._vanished = queries.vanished(self._pipeline.continuous)
            if not queries.active or queries.failures() or self._vanished:
                break
            self._look(queries)
            time.sleep(POLL)
        if queries.active:
            if self._stop.signals:
                self._display.say(
                    "stopping", "stopping after the running batches (a second signal stops at once)"
                )
            with suppress(OSError):  # such as a full disk
                self._pause.touch()
            queries.wind_down(self._stop_timeout, lambda: len(self._stop.signals) > 1)
        self._look(queries)

    def _look(self, queries: Queries) -> None:
        landed = queries.poll()
        for name, watch in self._outages.items():
            reader = self._readers[name]
            for outage in watch.notice(reader.poll()):
                self._display.outage("outage" if outage.over is None else "back", outage)
            reader.events.clear()  # otherwise they would fill the memory in long runs
            flowing = watch.landed(landed) if landed is not None else None
            if flowing is not None:
                self._display.outage("flowing", flowing)

    def _ended(self, queries: Queries) -> int:
        failures = queries.failures()
        for flow in queries.flows:
            repeats = None if flow.left is None else flow.left.repeats
            what = "written" if flow.progress.written else "read"
            dead = queries.letters.of(flow.name)
            done = (
                f"{counted(flow.progress.rows, 'row')} {what} in {flow.progress.batches:,} "
                f"{'batch' if flow.progress.batches == 1 else 'batches'}"
            )
            done += in_words(dead)
            if flow.name in failures:
                event, text = "failed", f"{flow.name} failed: {failures[flow.name]}"
            elif flow.name in self._vanished:
                event, text = "failed", f"{flow.name} failed: {VANISHED}; {done}"
            elif flow.cut:
                event = "cut"
                which = "a batch" if repeats is None else f"batch {repeats}"
                text = f"{flow.name} was stopped within {which}, which will be repeated; {done}"
            else:
                event = "stopped" if self._stop.signals else "ended"
                text = f"{flow.name} {event}: {done}"
                if flow.left is not None and not flow.left.seen:
                    text += "; a batch that had just begun will be repeated (the checkpoint "
                    text += "can't be read from here)"
            self._display.say(
                event, text, flow=flow.name, rows=flow.progress.rows, repeats=repeats,
                batches=flow.progress.batches, positions=flow.progress.positions,
                dead_letters=dead,
            )  # fmt: skip
        if failures or self._vanished:
            return 1
        if signal.SIGINT in self._stop.signals:
            return 128 + signal.SIGINT  # the status of all commands after Ctrl-C
        if any(flow.cut for flow in queries.flows):
            return 128 + (self._stop.signals[-1] if self._stop.signals else signal.SIGTERM)
        return 0


def _plans_here(spark: Any) -> bool:
    """Return whether the driver, which plans the batches, is on this machine (no Connect)."""
    return getattr(spark, "_sc", None) is not None


def _is_local(pipeline: Pipeline, spark: Any) -> bool:
    """Return whether tasks run on this machine; without a session, according to the SPEC."""
    if "spark.remote" in pipeline.spark:
        return False
    master = pipeline.spark.get("spark.master", "local")
    if spark is not None:
        master = str(spark.conf.get("spark.master", master))
    return master.startswith("local")
