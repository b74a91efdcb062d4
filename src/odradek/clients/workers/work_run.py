"""Run the loop of workers: read records, start them, commit, pause partitions; then leave.

In: decisions of the queue, results from a pool of threads or tasks. Out: generators for the next
steps: each yields a function, which its caller calls (and awaits), and is sent the time and the
function's result. Callers with threads and with an event loop only differ in how they wait. Must
not: read a clock, call the user's function itself, or wait without a limit.

If a thread or task of the user's function closes the consumer, no callback of the run is called: it
would wait for work that may wait for it. The run ends with `ClientClosedError`. For a run,
deserializers are removed from the consumer and called by the workers: a record that can't be
deserialized is still bytes when it becomes a dead letter, keys are compared as bytes, and a slow
registry delays one record.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import GEN_RUNNING, GEN_SUSPENDED, getgeneratorstate
from typing import Any, Protocol, TypeVar
from weakref import ref

from odradek.clients.caller_flow import run_always
from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.calls.consumer_calls import ConsumerCalls
from odradek.clients.consumer.fetching.delivery import Convert
from odradek.clients.consumer.group.subscribe_arguments import pattern_to_subscribe
from odradek.clients.consumer.partition_state import Place
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.traces import Traces
from odradek.clients.workers.dead_letters import said
from odradek.clients.workers.work_options import WorkOptions
from odradek.clients.workers.work_queue import WorkItem, WorkQueue
from odradek.common.arguments import checked_timeout, names
from odradek.common.errors import (
    AuthorizationError,
    CommitFailedError,
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.outage import number
from odradek.common.printable import cure
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import UNKNOWN_TOPIC

logger = logging.getLogger("odradek.workers")

T = TypeVar("T")

WorkFlow = Generator[Callable[[], Any], tuple[float, Any], T]
"""A generator that yields a function to call, and is sent the time and its result."""
Outcome = tuple[WorkItem, BaseException | None]

LONGEST_POLL = 1.0
"""Maximum number of seconds between two iterations of the loop."""
BUSY_POLL = 0.1
"""Minimum number of seconds between two polls while all workers are busy."""
RUNNING_CHECK_S = 0.1
"""Seconds between checks whether records are still being processed."""
MOMENT = 0.001
"""Minimum wait in seconds; times that are due earlier are delayed by less than this."""
LETTERS_TIMEOUT = 10.0
"""Maximum number of seconds to look up the dead letter topic when a run starts."""
END_TIMEOUT = 10.0
"""Timeout in seconds of the last commit, and also of leaving the group."""
SLOW = 60.0
"""Seconds of processing after which a record is logged."""
LOG_INTERVAL_S = 5.0
"""Seconds between two log lines about failures."""


class WorkerPool(Protocol):
    """Interface of the threads or tasks that process records. Only `done` waits."""

    @property
    def busy(self) -> Collection[WorkItem]:
        """Return the records whose processing has started but not finished."""

    @property
    def arrived(self) -> bool:
        """Return whether results have arrived."""

    def start(self, item: WorkItem) -> None:
        """Start to process a record, or to send its dead letter."""

    def taken(self) -> Any:
        """Return the list of results so far, or an awaitable of it."""

    def done(self, seconds: float) -> Any:
        """Return the list of results, or an awaitable; wait up to `seconds` for the first one."""

    def abandon(self, items: Collection[WorkItem], /) -> None:
        """Stop waiting for these records, and cancel those that can be cancelled."""

    def close(self) -> Any:
        """Start no more records, and end the threads or tasks."""

    def callback(
        self, flow: Callable[[list[TopicPartition]], WorkFlow[None]]
    ) -> Callable[[Any, list[TopicPartition]], Any]:
        """Return a rebalance callback that runs the generator `flow(partitions)`."""


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """Progress of workers in the current or last run, in records unless stated otherwise.

    - `in_work`: records being processed.
    - `waiting`: records that were read and aren't being processed, including those that wait for a
      retry.
    - `buffered_bytes`: size of both in bytes (limited by `buffer_bytes`).
    - `finished`: processed records, dead letters included.
    - `retried`: attempts after a record's first one.
    - `dead`: records that were written to the dead letter topic.
    - `lag`: offsets from the committed ones to the ends of the assigned partitions; None if one of
      them is unknown, or if no partition is assigned, as after the run.
    - `longest`: seconds since the beginning of the oldest attempt that is still running.
    """

    in_work: int
    waiting: int
    buffered_bytes: int
    finished: int
    retried: int
    dead: int
    lag: int | None
    longest: float


class WorkRun:
    """The runs of one `Workers` or `AsyncWorkers` object, one at a time."""

    def __init__(
        self,
        consumer: Any,
        calls: ConsumerCalls,
        options: WorkOptions,
        make_hands: Callable[[Convert | None, Callable[[], None], Traces | None], WorkerPool],
        producer: Any = None,
    ) -> None:
        """Set the clients. `producer` sends dead letters.

        `make_hands` creates a run's worker pool, from the function that deserializes records, a
        callback for each result, and the consumer's tracer.
        """
        self._consumer, self._calls, self._options = consumer, calls, options
        self._totals = calls.work_totals()
        self._producer = producer
        self._make_hands = make_hands
        self._flow: ref[WorkFlow[None]] | None = None
        self._stopping = self._asleep = self._committing = False
        self._ended_by: BaseException | None = None
        self._commit_at = self._speak_at = self._look_at = 0.0
        self._failures = 0
        self._slow: set[WorkItem] = set()
        self._begin_anew()

    def _begin_anew(self) -> None:
        config, rng = self._calls.config, self._calls.host.rng()
        self._queue = WorkQueue(self._options, (config["group.id"], config["client.id"]), rng)
        self._partitions, self._overfull = 0, False
        self._totals.begin(self._queue)

    # State for other threads

    def stop(self) -> None:
        """End the current run, or the next one."""
        self._stopping = True
        self._rouse()

    def progress(self, now: float) -> WorkProgress:
        """Return the progress, without a lock."""
        queue = self._queue
        subscription = self._calls.engine.subscription
        lags = subscription.committed_lags()
        known = 0 < len(subscription.partitions) <= len(lags)
        longest = queue.longest()
        counts = (
            queue.in_work,
            queue.waiting,
            queue.bytes,
            queue.finished,
            queue.retried,
            queue.dead,
        )
        return WorkProgress(
            *counts,
            sum(lags.values()) if known else None,
            0.0 if longest is None else max(0.0, now - longest),
        )

    def _rouse(self) -> None:
        """Wake the run's poll, because of a result or a reason to end; callable in any thread.

        Unlike `wakeup()`, this doesn't end a later poll, which may be another caller's.
        """
        if self._asleep:
            self._asleep = False
            self._consumer.wakeup()

    # One run

    def run(
        self, topics: Any, pattern: str | re.Pattern[str] | None, timeout: float | None
    ) -> WorkFlow[None]:
        """Subscribe, process records until `stop` or `timeout` idle seconds, and leave."""
        idle = None if timeout is None else checked_timeout(timeout)
        topics, pattern = names("topics", topics), pattern_to_subscribe(pattern)
        self._refuse_own_letters(topics, pattern)
        if under_way(self._flow):
            raise IllegalStateError("run() is already running")
        self._calls.check_free("run()")
        self._begin_anew()
        self._ended_by, self._committing = None, False
        flow = self._from_subscribe_on(topics, pattern, idle)
        self._flow = ref(flow)
        convert = self._calls.engine.delivery.leave_raw(partial(under_way, self._flow))
        self._hands = self._make_hands(convert, self._rouse, self._calls.engine.traces)
        try:
            yield from flow
        finally:
            self._stopping = False
        self._raise()

    def _raise(self) -> None:
        """Raise the error that has ended the run, if there is one."""
        error, self._ended_by = self._ended_by, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # avoid a reference cycle between the error and this frame

    def _refuse_own_letters(self, topics: list[str], pattern: str | re.Pattern[str] | None) -> None:
        letters = self._options.dead_letter_topic
        if letters is not None and (letters in topics or _matches(pattern, letters)):
            raise ConfigurationError(
                f"dead_letter_topic {letters!r} is also subscribed: dead letters would be "
                "processed again without end"
            )

    def _from_subscribe_on(self, topics: Any, pattern: Any, idle: float | None) -> WorkFlow[None]:
        yield from self._look_for_letters()
        hands = self._hands
        lost = hands.callback(self._lost)
        listeners = {"on_revoked": hands.callback(self._revoked), "on_lost": lost}
        self._remember_positions(True)
        yield partial(self._consumer.subscribe, topics, pattern, **listeners)
        rest = run_always(self._last_commit(), self._leave())
        yield from run_always(self._work(idle), run_always(self._drained(None), rest))

    def _look_for_letters(self) -> WorkFlow[None]:
        """Check that the topic of dead letters exists, before any record needs it.

        The request creates the topic if brokers create topics automatically.
        """
        producer, topic = self._producer, self._options.dead_letter_topic
        if producer is None or topic is None:
            return
        calls: ClientCalls[Any] = producer._calls  # noqa: SLF001 - a facade
        now = yield from self._settled(self._hands.taken)
        until = now + min(LETTERS_TIMEOUT, calls.config["max.block.ms"])
        while now < until and not self._stopping:
            with suppress(KafkaTimeoutError):  # check `stop`, and try again
                yield partial(producer.partitions_for, topic, min(LONGEST_POLL, until - now))
                return
            now = yield from self._settled(self._hands.taken)
        # Raise only if a broker says that the topic doesn't exist, not if none has answered.
        if not self._stopping and calls.engine.metadata.topic_errors.get(topic) in UNKNOWN_TOPIC:
            near = calls.engine.missing.near(topic)
            raise UnknownTopicOrPartitionError(
                f"dead_letter_topic {topic} doesn't exist{near}. "
                f"{cure(topic, calls.engine.updater.bootstrap)}"
            )

    def _work(self, idle: float | None) -> WorkFlow[None]:
        """Process records until there is a reason to end."""
        queue, consumer = self._queue, self._consumer
        most = self._calls.config["max.poll.records"]
        now = yield from self._settled(self._hands.taken)
        worked, polled, woken = now, -math.inf, False
        while not self._stopping and self._ended_by is None:
            self._share()
            self._begin(now)
            self._pause()
            yield from self._commit(now)
            self._speak_of_slow(now)
            if queue.waiting or queue.running:
                worked = now
            elif idle is not None and now >= worked + idle:
                return
            wait = 0.0 if woken else self._patience(now, worked, idle)
            if now < polled + BUSY_POLL and self._saturated:
                until = polled + BUSY_POLL - now
                until = max(min(wait, until), MOMENT)
                now = yield from self._settled(partial(self._hands.done, until))
                continue
            self._asleep, woken = wait > 0, False
            if self._hands.arrived or self._stopping:
                wait = 0.0
            try:
                now, records = yield partial(consumer.poll, wait, min(queue.room(), most))
                if queue.add(records, now):
                    # Commit a new partition's start: after a crash, a reset could skip records.
                    self._commit_at = now
            except WakeupError:
                woken = True
            finally:
                self._asleep = False
            polled = now
            now = yield from self._settled(self._hands.taken)

    @property
    def _saturated(self) -> bool:
        """Return whether all workers are busy and enough further records are buffered."""
        queue, most = self._queue, self._options.concurrency
        return len(queue.running) >= most and queue.waiting >= most

    def _share(self) -> None:
        """Divide the buffer between the assigned partitions."""
        assigned = len(self._calls.engine.subscription.partitions)
        if assigned != self._partitions:
            self._partitions = assigned
            self._queue.share(assigned)

    def _patience(self, now: float, worked: float, idle: float | None) -> float:
        """Return for how many seconds a poll may wait."""
        until = self._until_retry(now + LONGEST_POLL)
        if self._queue.moved and not self._committing:
            until = min(until, self._commit_at)
        if idle is not None:
            until = min(until, worked + idle)
        return max(until - now, MOMENT) if until > now else 0.0

    def _until_retry(self, until: float) -> float:
        """Return `until`, or the time of the next retry if that is earlier."""
        retry = self._queue.next_retry
        free = len(self._queue.running) < self._options.concurrency
        return until if retry is None or not free else min(until, retry)

    def _begin(self, now: float) -> None:
        while (item := self._queue.begin(now)) is not None:
            self._hands.start(item)

    def _settled(self, take: Callable[[], Any]) -> WorkFlow[float]:
        """Pass results to the queue, log failures, and return the time."""
        queue = self._queue
        now, came = yield take
        for item, error in came:
            letter = item.letter is not None
            queue.ended(item, error, now)
            if error is None or item.dropped:
                continue
            if not isinstance(error, Exception):
                self._ended_by = self._ended_by or error
            self._failures += 1
            if now >= self._speak_at:
                self._speak_of(item, error, letter=letter)
                self._speak_at, self._failures = now + LOG_INTERVAL_S, 0
        if self._ended_by is None:
            self._ended_by = queue.failure
        return now

    def _pause(self) -> None:
        """Pause partitions with a full share of the buffer, or all of them; resume others."""
        queue, engine = self._queue, self._calls.engine
        full, free = queue.turned()
        before, self._overfull = self._overfull, queue.overfull()
        if not (full or free or before or self._overfull):
            return
        with engine.lock:  # lost partitions are left out below
            states = engine.subscription.partitions
            if self._overfull:
                full, free = [tp for tp, state in states.items() if not state.paused], []
            elif before:
                free = [tp for tp in states if not queue.paused(tp)]
            for turned, paused in ((full, True), (free, False)):
                if turned:
                    there = [states[tp] for tp in turned if tp in states]
                    engine.subscription.hold(there, paused=paused)
        self._calls.host.wake()

    # Logging

    def _speak_of(self, item: WorkItem, error: BaseException, *, letter: bool) -> None:
        more = f" ({self._failures} attempts failed since the last such message)"
        text = "%s: work on the record at offset %d failed (attempt %d): %s%s"
        if letter:
            text = "%s: writing the dead letter of offset %d failed (attempt %d): %s%s"
        where = (item.tp, item.record.offset, item.attempts, said(error))
        logger.warning(text, *where, more if self._failures > 1 else "")

    def _speak_of_slow(self, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + LONGEST_POLL
        slow = {item for item in self._queue.running if now - item.began >= SLOW}
        for item in slow - self._slow:
            logger.warning(
                "%s: work on the record at offset %d has taken %d s; until it finishes, no later "
                "offset is committed",
                *(item.tp, item.record.offset, now - item.began),
            )
        self._slow = slow

    # Commits

    def _commit(self, now: float) -> WorkFlow[None]:
        """Commit finished records if the interval is over, without waiting for the result."""
        if now < self._commit_at or self._committing:
            return
        self._queue.through(self._position)
        self._commit_at = now + self._options.commit_interval
        offsets = self._queue.committable()
        if offsets:
            self._committing = True
            yield partial(self._consumer.commit_async, offsets, self._committed)

    def _position(self, tp: TopicPartition) -> Place | None:
        """Return the consumer's position: all records before it have been added to the queue."""
        subscription = self._calls.engine.subscription
        with suppress(IllegalStateError):  # the partition was lost
            offset, epoch = subscription.hand_over.settled(subscription.get(tp))
            return None if offset is None else (offset, epoch)
        return None

    def _committed(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None
    ) -> None:
        self._committing = False
        if error is None:
            self._queue.committed(offsets)
            return
        logger.warning("committing finished records failed: %s", error)
        if isinstance(error, AuthorizationError):
            self._ended_by = self._ended_by or error

    def _last_commit(self, partitions: Collection[TopicPartition] | None = None) -> WorkFlow[None]:
        """Commit finished records of these partitions (None: all), and wait for the result."""
        offsets: Mapping[TopicPartition, OffsetAndMetadata] = self._queue.committable(partitions)
        if not offsets:
            return
        try:
            yield partial(self._consumer.commit, offsets, END_TIMEOUT)
        except TopicRecreatedError as error:  # the deleted topic's records can't be processed again
            logger.warning("some offsets of finished records were not committed: %s", error)
        except KafkaError as error:
            text = "committing finished records failed, they will be processed again: %s"
            logger.warning(text, error)
            if partitions is None and not isinstance(error, CommitFailedError):
                self._ended_by = self._ended_by or error
        else:
            self._queue.committed(dict(offsets))

    # Revoked partitions, and the end

    def _in_work(self, partitions: Collection[TopicPartition] | None) -> list[WorkItem]:
        chosen = [item for item in list(self._hands.busy) if not item.dropped]
        return [item for item in chosen if partitions is None or item.tp in partitions]

    def _drained(self, partitions: Collection[TopicPartition] | None) -> WorkFlow[None]:
        """Start no more records of these partitions (None: all); wait for records in progress.

        The wait is limited by `drain_timeout`.
        """
        self._queue.hold(partitions)
        now = yield from self._settled(self._hands.taken)
        until = now + self._options.drain_timeout
        while (left := self._in_work(partitions)) and now < until:
            self._begin(now)  # start records of other partitions
            wait = min(self._until_retry(until) - now, RUNNING_CHECK_S)
            now = yield from self._settled(partial(self._hands.done, max(wait, MOMENT)))
        yield from self._settled(self._hands.taken)
        if left:
            records, item = number(len(left), "record"), left[0]
            where = (records, self._options.drain_timeout, item.tp, item.record.offset)
            text = (
                "still working on %s after %g s (first: %s, offset %d): other members "
                "will process them again"
            )
            logger.warning(text, *where)

    def _revoked(self, partitions: list[TopicPartition]) -> WorkFlow[None]:
        """Finish running records of revoked partitions, and commit finished ones."""
        yield from self._drained(partitions)
        yield from self._last_commit(partitions)
        self._drop(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> WorkFlow[None]:
        """Drop lost partitions, which have other owners already: a commit would be refused."""
        self._drop(partitions)
        yield from ()

    def _drop(self, partitions: Collection[TopicPartition] | None) -> None:
        left = self._in_work(partitions)
        self._queue.drop(partitions)
        self._hands.abandon(left)

    def _leave(self) -> WorkFlow[None]:
        """Leave the group; other members process the records that are still running."""
        self._drop(None)
        yield from run_always(self._unsubscribed(), self._closed())

    def _unsubscribed(self) -> WorkFlow[None]:
        try:
            yield partial(self._consumer.unsubscribe, END_TIMEOUT)
        # For example another caller has closed the consumer; later calls raise this error.
        except KafkaError as error:
            logger.info("leaving the group failed: %s", error)

    def _closed(self) -> WorkFlow[None]:
        self._remember_positions(False)
        yield self._hands.close

    def _remember_positions(self, on: bool) -> None:
        """Start or stop commits of the offsets that resets find (R-GR-6)."""
        engine = self._calls.engine
        with engine.lock:
            if engine.group is not None:
                engine.group.remember_positions(on)


def under_way(flow: ref[WorkFlow[None]] | None) -> bool:
    """Return whether a run is in progress, by its generator's state.

    A flag could be outdated after an exception such as a Ctrl-C.
    """
    there = None if flow is None else flow()
    return there is not None and getgeneratorstate(there) in (GEN_RUNNING, GEN_SUSPENDED)


def _matches(pattern: str | re.Pattern[str] | None, name: str) -> bool:
    try:
        return pattern is not None and re.fullmatch(pattern, name) is not None
    except (
        re.error,
        OverflowError,
        RecursionError,
    ):  # a pattern for brokers (RE2), or an invalid one, for which `subscribe` raises
        return False
