"""Workers: call a plain function with a consumer's records, concurrently, in order by key.

In: a consumer, a function, topics. Out: a loop that passes each record to the function until the
run is stopped. Must not: decide anything; `clients/workers` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.workers.work_options import (
    Ordering,
    WorkOptions,
    work_function,
    work_options,
)
from odradek.clients.workers.work_run import WorkerPool, WorkProgress, WorkRun
from odradek.runtime.hosts.worker_threads import WorkerThreads, carried_out

K = TypeVar("K")
V = TypeVar("V")


class WorkersState:
    """Base class of both kinds of workers: the methods that never block."""

    def __init__(
        self, consumer: Any, producer: Any, options: WorkOptions, hands: Callable[..., WorkerPool]
    ) -> None:
        """Create the run; `hands` creates its pool of threads or tasks."""
        self._of = consumer
        calls = consumer._calls  # noqa: SLF001 - a user's consumer is of this package
        self._now = calls.host.now
        self._run = WorkRun(consumer, calls, options, partial(hands, self._now), producer)

    def __repr__(self) -> str:
        # A traceback for a rejected option may show this object before `_of` is set.
        return f"<{type(self).__name__} of {vars(self).get('_of')}>"

    def stop(self) -> None:
        """End `run` once the records being processed are finished; returns at once.

        May be called from any thread or task, and from signal handlers. A `run` that hasn't started
        yet ends at once.

        >>> before = signal.signal(signal.SIGTERM, lambda *_: workers.stop())
        """
        self._run.stop()

    def progress(self) -> WorkProgress:
        """Return the progress of the current or last run: counts, the lag, the slowest records.

        Does no I/O, takes no lock and never blocks; any thread may call it.

        >>> workers.progress().waiting
        0
        """
        return self._run.progress(self._now())


class Workers(WorkersState):
    """Calls a function with each record, concurrently; records of a key are processed in order.

    An offset is committed once its record and all earlier ones of the partition are finished. So a
    crash loses no record, but records after an unfinished one are processed again (at least once).
    If the function raises, the record is retried with exponential backoff (KIP-580), while later
    records of its key wait and other keys continue. After `max_attempts` the record is sent to
    `dead_letter_topic`, or else ends the run. For coroutine functions use `AsyncWorkers`.

    >>> group = {"group.id": "board", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    >>> consumer = Consumer({**config, **group})
    >>> with consumer, Producer(config) as producer:
    ...     workers = Workers(
    ...         consumer, work, producer=producer, dead_letter_topic="arrivals-failed"
    ...     )
    ...     workers.run("arrivals", timeout=5.0)
    >>> workers.progress().finished
    2
    """

    def __init__(
        self,
        consumer: Consumer[K, V],
        work: Callable[[ConsumerRecord[K, V]], object],
        *,
        concurrency: int = 16,
        ordering: Ordering = "key",
        max_attempts: int = 10,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        retry_backoff: float = 0.1,
        retry_backoff_max: float = 10.0,
        producer: Producer | None = None,
        dead_letter_topic: str | None = None,
        buffer_records: int = 10_000,
        buffer_bytes: int = 64 * 1024 * 1024,
        commit_interval: float = 1.0,
        drain_timeout: float = 20.0,
    ) -> None:
        """Check the arguments; nothing starts before `run`.

        `consumer`: needs a `group.id` and `enable.auto.commit=false`, and must not be used
        elsewhere during `run`. Its deserializers run in the workers.
        `work`: called with a `ConsumerRecord`, in a thread; its result is ignored.
        `concurrency`: the number of records processed at a time, and so the maximum number of
        threads.
        `ordering`: "key" (records without a key have no order), "partition" or "unordered".
        `max_attempts`: how often a record is tried.
        `retry_on`: errors that are retried; any other error is final.
        `retry_backoff`, `retry_backoff_max`: seconds between attempts, doubling from the first to
        the second value, with 20 % jitter.
        `producer`, `dead_letter_topic`: where failed records are sent, unchanged, with the headers
        of Kafka Connect's dead letter queue. A record is finished once it is acknowledged there.
        `buffer_records`, `buffer_bytes`: limits for records that were read and aren't finished,
        divided among the assigned partitions; a partition that reaches its share is paused.
        `commit_interval`: seconds between commits.
        `drain_timeout`: seconds for records being processed to finish, when their partition is
        revoked and at the end of `run`.

        Raises `ArgumentError` for a wrong type and `ConfigurationError` for an invalid value or
        combination.
        """
        options = work_options(dict(locals()), Consumer, Producer)
        hands = partial(WorkerThreads, work_function(work, awaited=False), producer)
        super().__init__(consumer, producer, options, hands)

    def run(
        self,
        topics: Collection[str] | str = (),
        pattern: str | re.Pattern[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Subscribe, process records until the run ends, and leave the group.

        `topics`, `pattern`: as for `subscribe`.
        `timeout`: ends the run after this many seconds without work; None: never.

        The run also ends by `stop()`, an exception, or Ctrl-C. At its end it waits up to
        `drain_timeout` for records being processed, commits the finished ones and leaves the group,
        which takes at most another 20 s. Records that aren't finished by then continue in their
        threads, and their results are ignored.

        Raises `WorkFailedError` for a record that can't be finished. At its start it raises
        `UnknownTopicOrPartitionError` if the dead letter topic doesn't exist and brokers don't
        create it within 10 s (or `max.block.ms`, if that is shorter). It raises errors of the
        consumer that need intervention: missing ACLs, a position that isn't in the log, a record
        that can't be decoded. A `KeyboardInterrupt` or `SystemExit` that the function raises ends
        the run and is raised again. Raises `IllegalStateError` if it is already running.
        """
        carried_out(self._run.run(topics, pattern, timeout), self._now)
