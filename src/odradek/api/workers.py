"""Workers: a plain function on the records of a consumer, several at a time, in order by key.

In: a consumer, a function, topics. Out: the loop around them, until it is stopped. Must not: decide
anything; `clients/workers` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.workers.work_options import (
    Ordering,
    WorkOptions,
    work_function,
    work_options,
)
from odradek.clients.workers.work_run import Hands, WorkProgress, WorkRun
from odradek.runtime.hosts.worker_threads import WorkerThreads, carried_out


class WorkersState:
    """What both kinds of workers can do without waiting; not made directly."""

    def __init__(
        self, consumer: Any, producer: Any, options: WorkOptions, hands: Callable[..., Hands]
    ) -> None:
        """`hands` is told the clock, what makes objects of records, and what to call."""
        self._of = consumer
        calls = consumer._calls  # noqa: SLF001 - what users make is this class
        self._now = calls.host.now
        self._run = WorkRun(consumer, calls, options, partial(hands, self._now), producer)

    def __repr__(self) -> str:
        # Where an option is refused a traceback may show it without a consumer.
        return f"<{type(self).__name__} of {vars(self).get('_of')}>"

    def stop(self) -> None:
        """End `run`: what is in work is finished, the rest is left; returns at once.

        For any thread or task, and for signal handlers; a `run` that hasn't begun yet ends at once.

        >>> before = signal.signal(signal.SIGTERM, lambda *_: workers.stop())
        """
        self._run.stop()

    def progress(self) -> WorkProgress:
        """How far this run is, or the last one was: counts, the lag, what takes long.

        Does no I/O, takes no lock and never waits; any thread may ask.

        >>> workers.progress().waiting
        0
        """
        return self._run.progress(self._now())


class Workers(WorkersState):
    """Calls a function with each record: several at a time, records of one key one after another.

    A record's offset is committed once it and all before it in its partition are finished, so a
    crash loses none: what was finished after a gap is done again (at least once). Where the
    function raises, the record is tried again with exponential backoff (KIP-580), and the later
    ones of its key wait; other keys go on. After `max_attempts` it goes to `dead_letter_topic`, or
    ends the run. For coroutine functions: `AsyncWorkers`.

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
        consumer: Consumer,
        work: Callable[[ConsumerRecord], object],
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
        """Check what is given; nothing is begun before `run`.

        `consumer` has a `group.id` and `enable.auto.commit=false`, and is used by nobody else while
        `run` runs. Its deserializers are called by the workers, with the work. `work` is called
        with a `ConsumerRecord`, in a thread of its own; what it returns is ignored.

        `concurrency`: records in work at a time, and so threads at most. `ordering`: "key" (records
        without a key have no order), "partition" or "unordered". `max_attempts`: how often a record
        is tried; `retry_on`: the errors after which it is, all others count as the last attempt.
        `retry_backoff`, `retry_backoff_max`: seconds between attempts, doubling from the one to the
        other, with 20 % jitter. `producer` and `dead_letter_topic`: where records go that nobody
        could work on, as they were read, with headers as Kafka Connect's dead letters have them; a
        record counts as finished once it is acknowledged there.

        `buffer_records`, `buffer_bytes`: read and not finished at a time, divided over the assigned
        partitions; one that has filled its part is paused. `commit_interval`: seconds between
        commits. `drain_timeout`: seconds that what is in work has for its end when its partition
        goes to another member, and at the end of `run`.

        Raises `ArgumentError` for what has a wrong type and `ConfigurationError` for what can't be
        used, or not together.
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
        """Subscribe, work on what comes, and leave the group at the end; gives nothing back.

        `topics` and `pattern` as `subscribe` has them. Runs until `stop()`, or until there was
        nothing to do for `timeout` seconds (None: for ever). Then, and where an exception ends it
        (Ctrl-C, too), what is in work is waited for (`drain_timeout`), what is finished is
        committed and the group is left, for which it takes 20 s more at most. What is still in work
        goes on in its thread, and nobody heeds it.

        Raises `WorkFailedError` for a record that can't be finished, at its beginning
        `UnknownTopicOrPartitionError` where the dead-letter topic isn't there and brokers don't
        make it within 10 s (`max.block.ms`, if that is less), and what calls of the
        consumer raise that nothing but a person mends: rights, a position that isn't in the log, a
        record that can't be decoded. `KeyboardInterrupt` and `SystemExit` of the function end
        it, too. `IllegalStateError` where it runs already.
        """
        carried_out(self._run.run(topics, pattern, timeout), self._now)
