"""Run a user's blocking functions, which process records, in threads.

In: records to process, from the thread that called `run`. Out: results, through a queue that signal
handlers can't damage. Threads are started when there is work for them, and are daemons, so that a
thread that hangs doesn't delay the program's exit. Must not: decide which records are processed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import Context, copy_context
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import Any, Never, TypeVar

from odradek.clients.consumer.fetching.delivery import Convert
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.traces import Traces
from odradek.clients.workers.work_queue import WorkItem
from odradek.clients.workers.work_run import Outcome, WorkFlow
from odradek.common.types import TopicPartition

T = TypeVar("T")

NOTHING = nullcontext()


class WorkerThreads:
    """The threads of one call of `run` (implements `WorkerPool`)."""

    def __init__(
        self,
        work: Callable[[ConsumerRecord], object],
        producer: Any,
        now: Callable[[], float],
        convert: Convert | None,
        outcome: Callable[[], None],
        traces: Traces | None = None,
    ) -> None:
        """Set the functions and clients of the run.

        `producer` sends dead letters, `outcome` is called after each result, and `traces` is set if
        the consumer is traced.
        """
        self._work, self._producer, self._now = work, producer, now
        self._convert, self._outcome, self._traces = convert, outcome, traces
        self.busy: dict[WorkItem, None] = {}
        self._jobs: SimpleQueue[tuple[Context, WorkItem] | None] = SimpleQueue()
        self._came: SimpleQueue[Outcome] = SimpleQueue()
        self._threads = self._out = 0
        """Number of threads, and of started records whose results weren't taken yet."""
        self._owner = threading.get_ident()

    @property
    def arrived(self) -> bool:
        """Whether results are available."""
        return not self._came.empty()

    def start(self, item: WorkItem) -> None:
        """Pass a record to a thread, with the context variables of the caller of `run`."""
        self.busy[item] = None
        self._out += 1
        self._jobs.put((copy_context(), item))
        if self._threads < self._out:
            self._threads += 1
            name = f"odradek-worker-{self._threads}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            context, item = job
            self._came.put((item, context.run(self._attempted, item)))
            # Remove the record here, not where the result is taken, where a Ctrl-C may prevent it.
            # After `put`, so that a reader that sees no busy thread finds all results.
            self.busy.pop(item, None)
            del job, context, item  # drop references before waiting
            self._outcome()

    def _attempted(self, item: WorkItem) -> BaseException | None:
        traces = self._traces
        try:
            if item.letter is not None:
                with NOTHING if traces is None else traces.burying(item.record):
                    self._producer.send(**item.letter).result()
                return None
            with NOTHING if traces is None else traces.working(item.record):
                record = item.record if self._convert is None else self._convert([item.record])[0]
                made = self._work(record)
                if isawaitable(made):
                    getattr(made, "close", bool)()
                    raise TypeError(
                        "the work function returned an awaitable, which nothing awaits: use "
                        "AsyncWorkers"
                    )
        except BaseException as error:
            return error
        return None

    def taken(self) -> list[Outcome]:
        """Return the results that are available."""
        came: list[Outcome] = []
        while not self._came.empty():
            came.append(self._came.get_nowait())
        self._out -= len(came)
        return came

    def done(self, seconds: float) -> list[Outcome]:
        """Return results; wait at most this number of seconds for the first result."""
        try:
            first = self._came.get(timeout=seconds)
        except Empty:
            return []
        self._out -= 1
        return [first, *self.taken()]

    def abandon(self, items: object) -> None:
        """Do nothing: threads can't be cancelled."""

    def close(self) -> None:
        """Let each thread end after its current record."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def callback(
        self, flow: Callable[[list[TopicPartition]], WorkFlow[None]]
    ) -> Callable[[Any, list[TopicPartition]], None]:
        """Return a rebalance callback.

        If a thread that processes a record closes the consumer, the callback does nothing: `run`
        decides about its records, and ends because the consumer is closed.
        """

        def call(_: Any, partitions: list[TopicPartition]) -> None:
            if threading.get_ident() == self._owner:
                carried_out(flow(partitions), self._now)

        return call


def carried_out(flow: WorkFlow[T], now: Callable[[], float]) -> T:
    """Call the functions that a generator yields until it ends; return its result.

    An error that occurs meanwhile, also a Ctrl-C, is raised in the generator.
    """
    resume: Callable[[Any], Callable[[], Any]] = flow.send
    given: Any = None
    try:
        while True:
            try:
                _do_steps(flow, now, resume, given)
            except BaseException as error:
                if flow.gi_frame is not None:  # type: ignore[attr-defined]  # it hasn't ended
                    resume, given = flow.throw, error
                elif isinstance(error, StopIteration):
                    result: T = error.value
                    return result
                else:
                    raise
    finally:
        given = None  # so that an error's traceback doesn't refer to it
        flow.close()


def _do_steps(
    flow: WorkFlow[Any],
    now: Callable[[], float],
    resume: Callable[[Any], Callable[[], Any]],
    given: Any,
) -> Never:
    """Call the functions that a generator yields until it ends, or another error is raised.

    This is a separate function for the reason given for `_do_steps` in `caller`.
    """
    try:
        while True:
            came = resume(given)()
            resume, given = flow.send, (now(), came)
    finally:
        given = came = None  # so that an error's traceback doesn't refer to it
