"""Run a consumer's calls in its caller: assignments, positions and reads.

In: assignments, positions, timeouts. Out: generators that run in the caller: they wait for records,
run callbacks that are due, and decode records. Must not: return records; the caller that runs a
generator does so (`handed_over`), as its last action before the user has them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.clients.caller_flow import DUE, CallerFlow
from odradek.clients.calls.group_calls import GroupCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.delivery import ARROW_ROWS
from odradek.clients.consumer.partition_arguments import (
    ends,
    one_partition,
    place,
    places,
    some_or_all,
    some_partitions,
)
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.consumer.subscription_state import (
    COMMITTED,
    Selection,
    Selector,
    SubscriptionState,
)
from odradek.common.arguments import (
    IN_SECONDS,
    deprecated_milliseconds,
    flag,
    looks_like_milliseconds,
    names,
    text,
    whole_number,
)
from odradek.common.config import Config
from odradek.common.errors import (
    AuthorizationError,
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
    first_use,
)
from odradek.common.types import TopicPartition
from odradek.network.flow import START
from odradek.network.host import Host

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.clients.workers.work_totals import WorkTotals
    from odradek.record.columns import Layout

logger = logging.getLogger("odradek.consumer")

T = TypeVar("T")
Take = Callable[[float], T]
"""Function of the current time that returns buffered records in the caller's format."""

IDLE_AFTER_STEP_S = 0.001
"""Seconds for which no further step of the engine runs while records are buffered.

Checking the sockets for each record would take as long as returning it. A caller that returns
within this time gets buffered records before the next fetch is created.
"""


class Reader(Protocol):
    """Interface of the object through which another thread or task wakes a waiting read."""

    woken: bool
    """Whether the current or the next call must return without records."""

    def wake(self) -> None:
        """Set `woken`, and end iterations before their next record."""


class ConsumerCalls(GroupCalls):
    """Calls of a consumer."""

    def __init__(
        self,
        kind: str,
        config: Config,
        host: Host,
        build: Callable[[Host], ConsumerEngine],
        reader: Reader,
        arrow_rows: int = ARROW_ROWS,
    ) -> None:
        """Set `arrow_rows`, the number of rows at which decoding an Arrow batch stops."""
        super().__init__(kind, config, host, build)
        self._arrow_rows = arrow_rows
        self._whole_rows: tuple[bool, str, Callable[[float], pa.RecordBatch | None]] | None = None
        """Last function that returns Arrow batches of all columns, and its arguments."""
        self._reader = reader
        self._seconds_noted = False
        self._left_at = -math.inf
        """Time when the last call returned to the caller."""

    def carry_over(self, old: ConsumerEngine, new: ConsumerEngine) -> None:
        """Copy the user's assignment, positions and pauses to a new engine."""
        new.take_over(old.subscription)
        new.delivery.take_over(old.delivery)

    def work_totals(self) -> WorkTotals:
        """Return the totals to which all `Workers` objects of this consumer add, in succession."""
        with first_use():
            from odradek.clients.workers.work_totals import WorkTotals

        self.work = self.work or WorkTotals()
        return self.work

    # Reading

    def callback(self) -> str | None:
        """Return the name of the user's callback that is running; None without one."""
        return None if self.engine.group is None else self.engine.group.callbacks.running

    def poll(
        self, timeout: float, max_records: int | None = None, timeout_ms: float | None = None
    ) -> CallerFlow[list[ConsumerRecord[Any, Any]] | None]:
        """Return at most `max_records` next records; return none after `timeout` seconds."""
        if timeout_ms is not None:
            timeout = deprecated_milliseconds(timeout_ms)
        elif type(timeout) is int:  # the caller may have meant milliseconds
            self._note_seconds(timeout)
        most: int = self.config["max.poll.records"]
        if max_records is not None:
            most = whole_number("max_records", max_records, 1)
        return self._read(timeout, lambda now: self.engine.delivery.records(most, now))

    def runs(
        self, timeout: float, most: int, *, more: bool = False
    ) -> CallerFlow[list[list[ConsumerRecord[Any, Any]]] | None]:
        """Return records as `poll` does, in lists of consecutive records of one partition.

        With `more`, the caller hasn't processed its last records yet: they aren't committed, and
        the wait ends without a record once a rebalance waits for the caller.
        """
        return self._read(timeout, lambda now: self.engine.delivery.runs(most, now), more=more)

    def iterated(
        self, timeout: float | None
    ) -> CallerFlow[Iterator[ConsumerRecord[Any, Any]] | None]:
        """Return the next records for a loop over the consumer; each one moves the position."""
        return self._unless_unreached(self.iterated_as(timeout, lambda records: records))

    def _unless_unreached(self, read: CallerFlow[T | None]) -> CallerFlow[T | None]:
        """Raise at the end of a loop over the consumer if no broker has ever answered.

        Otherwise a topic that can't be read would look empty. A slow first connection is no error.
        """
        found = yield from read
        engine = self.engine
        if found is None and not engine.reached and engine.updater.rounds_failed:
            raise engine.unavailable("records", engine.now, "the timeout of the iterator")
        return found

    def iterated_as(
        self, timeout: float | None, made: Callable[[list[ConsumerRecord]], list[T]]
    ) -> CallerFlow[Iterator[T] | None]:
        """Return the next records for a loop; the function `made` converts them, many at a time."""
        seconds = math.inf if timeout is None else timeout
        return self._read(seconds, lambda now: self.engine.delivery.iterated(now, made))

    def there(self, timeout: float, of: Selector) -> CallerFlow[bool | None]:
        """Wait until these partitions have records or errors, which remain buffered."""
        return self._read(timeout, lambda _: True, of)

    def taken(self, take: Take[T], now: float, of: Selection) -> T | None:
        """Return the result of `take` for buffered records.

        `of` names the partitions that the caller reads, whose earlier records it has processed.
        Returns None while a callback of the group is pending or running: a call that waits,
        perhaps another task's call of `there`, has to run it first.
        """
        self.check_open()
        engine, group = self.engine, self.engine.group
        engine.delivery.take_back()
        if group is not None:
            if group.calls or group.callbacks.waiting:
                return None
            waits = group.polling
            if group.entered(now, of):
                self.host.wake()
            if group.ownership.unannounced:  # the caller must know its partitions first
                with engine.lock:
                    group.ownership.announce_all(group.identity())
        try:
            return take(now)
        finally:
            if group is not None and not waits:
                group.left(now)
            if engine.fetcher.waiting.made_room():
                self.host.wake()

    def poll_arrow(
        self, timeout: float, columns: Any, include_headers: Any, layout: Any
    ) -> CallerFlow[pa.RecordBatch | None]:
        """Return the next Arrow batch; None after `timeout` seconds."""
        if type(timeout) is int:
            self._note_seconds(timeout)
        return self._read(timeout, self._arrow(columns, include_headers, layout))

    def batches(
        self, timeout: float | None, columns: Any, include_headers: Any, layout: Any
    ) -> Callable[[], CallerFlow[pa.RecordBatch | None]]:
        """Return the function that a loop over Arrow batches calls repeatedly."""
        seconds = math.inf if timeout is None else timeout
        take = self._arrow(columns, include_headers, layout)
        return lambda: self._unless_unreached(self._read(seconds, take))

    def wakeup(self) -> None:
        """Wake a call that waits for records, or else the next one."""
        if not self.closed:
            self._reader.wake()
            self.engine.rouse()
            self.host.wake()

    def _arrow(
        self, columns: Any, include_headers: Any, layout: Any
    ) -> Callable[[float], pa.RecordBatch | None]:
        """Check the arguments; return a function for the next Arrow batch."""
        kept = self._whole_rows
        if kept and columns is None and include_headers is kept[0] and layout is kept[1]:
            return kept[2]  # usual if poll_arrow() is called in a loop
        chosen = None if columns is None else names("columns", columns, "columns' names")
        with_headers = flag("include_headers", include_headers)
        kind: Layout = text("layout", layout)  # type: ignore[assignment]  # looked at below
        wanted = self.engine.delivery.arrow_columns(chosen, with_headers, kind)
        enough = self._arrow_rows

        def take(now: float) -> pa.RecordBatch | None:
            return self.engine.delivery.arrow(wanted, enough, now)

        if columns is None:
            self._whole_rows = (with_headers, layout, take)
        return take

    def _note_seconds(self, timeout: Any) -> None:
        """Warn once if a timeout in seconds was probably meant in milliseconds."""
        if not self._seconds_noted and looks_like_milliseconds(timeout):
            self._seconds_noted = True
            logger.warning(IN_SECONDS, timeout, timeout, timeout)

    def _read(
        self, timeout: float, take: Take[T], of: Selector | None = None, *, more: bool = False
    ) -> CallerFlow[T | None]:
        """Return the result of `take` for the next records; wait for some up to `timeout` seconds.

        `of` returns the partitions that the caller reads; records of others don't end the wait.
        `more`: the caller hasn't processed its last records, so no rebalance may happen yet.
        """
        self.check_open()
        self.check_uninterrupted("poll()")
        flow, traces = self._reading(self.seconds(timeout), take, of, more), self.engine.traces
        return flow if traces is None else traces.received(flow, self.engine.delivery.note_into)

    def _call_back(self, group: ConsumerGroup, now: float, more: bool) -> CallerFlow[bool]:
        """Run the group's pending callbacks; return whether the caller may get records now."""
        wake = self.host.wake
        if not more:
            yield from group.run_callbacks(now, wake)
            return True
        yield from group.tell_of_commits(wake)
        return not group.needs_poll

    def _check_wait(self, error: KafkaError, now: float) -> None:
        """Raise the error of a wait for records; ignore a timeout while a broker is reachable."""
        if isinstance(error, KafkaTimeoutError):
            if self.engine.unavailable_until() <= now:
                raise error
        elif self.closing:  # another caller closes the consumer
            raise ClientClosedError(f"this {self.kind} is closed") from None
        else:
            raise error

    def _reading(
        self, seconds: float, take: Take[T], of: Selector | None, more: bool
    ) -> CallerFlow[T | None]:
        """Wait for records; a fetch of only markers or aborted transactions isn't enough."""
        engine, host, reader = self.engine, self.host, self._reader
        delivery, group = engine.delivery, engine.group
        now = yield START
        deadline = now + seconds
        if not host.on_its_own:  # a caller that came back fast will probably do so again
            engine.fetcher.readers_first = now - self._left_at < IDLE_AFTER_STEP_S
        try:
            delivery.take_back()
            due = now - engine.now >= IDLE_AFTER_STEP_S
            if group is not None and group.entered(now, () if more else of and of()):
                host.wake()
                due = True
            if ready := delivery.ready(None if of is None else of()):
                if engine.fetcher.waiting.made_room():
                    host.wake()
                    due = True
                if due:
                    now = yield DUE  # send the next fetch before the caller processes these records
            while True:
                if reader.woken:
                    reader.woken = False
                    raise WakeupError("wakeup() was called")
                if group is not None and group.calls:
                    if not (yield from self._call_back(group, now, more)):
                        found = None
                        break
                    now = yield START
                    ready = delivery.ready(None if of is None else of())
                if not ready:
                    if self.closed or host.torn:
                        self.check_open()
                    try:
                        wanted = partial(engine.data, of=of)
                        came = yield from self.by(max(now, deadline), wanted, "records")
                    except (KafkaTimeoutError, IllegalStateError, ClientClosedError) as error:
                        self._check_wait(error, (yield START))
                        came = False
                    now = yield START
                    if not came:
                        found = None
                        break
                    if group is not None and group.calls:
                        continue
                if group is not None and group.ownership.unannounced:
                    group.announce_all()  # before the first record of a new assignment is returned
                found = take(now)
                if group is not None:
                    now = yield START
                if found:
                    break
                # Only markers or aborted transactions: note them as processed.
                if group is not None and group.entered(now, () if more else of and of()):
                    host.wake()
                ready = delivery.ready(None if of is None else of())
        except BaseException as error:
            delivery.take_back()
            if isinstance(error, AuthorizationError):
                error.of(engine.network.user)
            if group is not None:
                left = isinstance(error, GeneratorExit)  # a closed generator can't ask for the time
                group.left(max(now, engine.now) if left else (yield START))
            raise
        if group is not None:
            group.left(now, brought=found is not None)
        self._left_at = now
        return found

    # Assignments and positions

    def assign(self, partitions: Any, until: Mapping[TopicPartition, Any] | None) -> None:
        """Read these partitions from now on, and no others."""
        self.check_free("assign()")
        starts = places(partitions) if isinstance(partitions, Mapping) else None
        chosen = some_partitions(partitions) if starts is None else list(starts)
        self.engine.assign(chosen, ends(until), starts)
        self.host.wake()

    def seek(self, partition: TopicPartition, offset: Any) -> None:
        """Continue to read a partition at an offset."""
        self.check_free("seek()")
        chosen, where = one_partition(partition), place("offset", offset)

        def seek(subscription: SubscriptionState) -> None:
            subscription.check_seek(chosen, where[0])
            subscription.seek(chosen, *where)

        self._change(seek)
        self.engine.hear({chosen: where})

    def reset(self, partitions: Collection[TopicPartition] | None, to: str, what: str) -> None:
        """Move positions to the start or the end of the log; the offset is looked up later."""
        self.check_free(what)
        chosen = some_or_all(partitions)
        self._change(lambda subscription: subscription.request_reset(chosen, to))

    def seek_to_committed(
        self, partitions: Collection[TopicPartition] | None, timeout: float | None
    ) -> CallerFlow[None]:
        """Seek to the group's committed offsets, and wait until they are known."""
        self.check_free("seek_to_committed()")
        self.group("seek_to_committed()")
        chosen = some_or_all(partitions)
        self._change(lambda subscription: subscription.request_reset(chosen, COMMITTED))
        return self.call(lambda d: self.engine.positions(chosen, d), timeout, "committed positions")

    def position(self, partition: TopicPartition, timeout: float | None) -> CallerFlow[int]:
        """Return the offset of the next record; wait for it if necessary."""
        chosen = one_partition(partition)
        what = f"the position of {chosen}"
        return self.call(lambda d: self.engine.position(chosen, d), timeout, what)

    def pause(self, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        """Pause or resume partitions; callable anywhere, also in a callback or a signal handler."""
        self.check_open()
        announced = self.engine.subscription.announced
        self.hold([announced(partition) for partition in partitions], paused=paused)

    def hold(self, states: list[PartitionState], *, paused: bool) -> None:
        """Pause or resume partitions for the client itself, even before they are announced."""
        engine = self.engine
        if self.host.interrupted:  # a signal handler mustn't change a state that is being changed
            engine.post(lambda _: engine.subscription.hold(states, paused=paused))
            self.host.wake()
            return
        self._change(lambda subscription: subscription.hold(states, paused=paused))

    def _change(self, change: Callable[[SubscriptionState], None]) -> None:
        """Change what is read, then wake the reader that waits in another thread or task (R-HO-6).

        The step that follows notifies the reader: the fetcher sees that the subscription changed.
        """
        with self.engine.lock:
            change(self.engine.subscription)
        self.host.wake()
