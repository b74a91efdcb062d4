"""Append records to open batches without a lock, a wait or a thread switch: `send`.

In: records one by one. Out: futures, sync or asyncio. If a record has to wait, `ProducerCalls`
returns a generator, and the producer runs it. Must not: cost more Python calls per record than
necessary; therefore all producer classes inherit this `send` unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import ref

from odradek.clients.caller_flow import shorten
from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.producer.batch import RecordMetadata
from odradek.clients.producer.partitioner import TopicLane
from odradek.clients.producer.record_accumulator import SentRecord
from odradek.clients.producer.record_arguments import (
    NO_HEADERS,
    NO_TIME,
    HeadersInput,
    explained,
)
from odradek.common.arguments import function, partition_number, record_headers
from odradek.common.errors import ClientClosedError, KafkaError
from odradek.common.types import K_contra, V_contra
from odradek.record import OpenBatches

if TYPE_CHECKING:
    from odradek.clients.traces import Traces

DeliveryCallback = Callable[[BaseException | None, RecordMetadata], None]
"""Callback `on_delivery(error, metadata)`; with an error, the offset in `metadata` is -1."""


F = TypeVar("F")
S = TypeVar("S", bound=Callable[..., object])


def of_producers(send: S) -> S:
    """Let Python's errors, as for a wrong argument, name the public method `Producer.send`."""
    send.__qualname__ = "Producer.send"
    return send


class RecordSending(Generic[F, K_contra, V_contra]):
    """Base class of producers: the method `send`; not instantiated directly."""

    _taken_by = "send"
    """Name of the method that serializers and traces replace."""

    def _set_up_sending(
        self,
        calls: ProducerCalls,
        future: Callable[..., F],
        report_to: Callable[[F, DeliveryCallback], Any],
        **instead: Callable[..., object] | None,
    ) -> None:
        """Copy to this object what `send` reads for each record, which saves look-ups.

        `future` creates a record's future, `report_to` passes its result to the callback.
        `instead` contains functions that replace methods of this producer if it has serializers: a
        branch in `send` would make producers without serializers 10 % slower (500 to 560 ns), and a
        separate class would be visible in `type(producer)` and to the program's subclasses.
        """
        instead = {name: one for name, one in instead.items() if one is not None}
        vars(self).update(instead)
        self._serializes = bool(instead)
        self._trace_calls = calls.traced_by
        self._future = future
        self._report_to = report_to
        self._lanes = calls.lanes
        self._lane = calls.lane
        self._metadata = calls.engine.metadata
        self._wall_clock = calls.host.wall_clock
        # With `here=False`, each record is appended with a lock and a check of its size.
        free = calls.process if calls.lock_free else SimpleNamespace(here=False)
        open_batches = OpenBatches(self._lanes, self._metadata, free, self._wall_clock, future)
        self._put_at_once = open_batches.send
        self._report_at_once = open_batches.report

    def _traced_by(self, make: Callable[[ClientCalls[Any]], Traces]) -> None:
        """Pass each record through the object that `make` creates (`OpenTelemetryTraces`).

        It replaces the former `send`, and doesn't keep this producer alive.
        """
        traces, name = self._trace_calls(make), self._taken_by
        send = vars(self).get(name) or partial(_of, ref(self), getattr(type(self), name))
        vars(self)[name] = traces.sending(send, self._report_to)
        self._report_to = partial(_report_in_context, self._report_to)

    def _append(
        self, topic: str, lane: TopicLane | None, record: SentRecord, partition: int | None
    ) -> F:
        """Carry out `ProducerCalls.append`."""
        raise NotImplementedError

    @of_producers
    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> F:
        """Buffer one record for sending; returns at once unless `buffer.memory` is full.

        `partition`: None lets the option `partitioner` choose; by default by the key (Java's
        murmur2), or for records without a key the sticky partitioner (KIP-480, KIP-794).
        `timestamp_ms`: milliseconds since the epoch; None for the current time.

        The call only blocks while `buffer.memory` is full, for at most `max.block.ms`; callers get
        free memory in the order of their calls. If the topic or `partition` isn't known yet (it may
        just have been created), the call doesn't wait: the record is buffered for up to
        `max.block.ms`, or `bootstrap.timeout.ms` if no broker was ever reached. So
        `send(…).result(5)` takes at most five seconds. Only with a custom `partitioner` function
        does the call wait for the topic's metadata, too.

        To get the result, use the future, or pass `on_delivery(error, metadata)`, or neither. The
        callback is called on the producer's I/O thread as soon as the record is acknowledged or has
        failed, without polling: `error` is None, or the error, with an offset of -1. It must return
        quickly and must not wait for this producer. An exception that it raises is only logged;
        `SystemExit` and `KeyboardInterrupt` are raised from the program's next call of this
        producer. Errors that `send` itself raises aren't passed to the callback. Records of a
        partition are reported in order, with one exception: if a batch is retried although the
        broker had written it, later records may be reported before it.

        Raises `RecordTooLargeError` (`max.request.size`), `BufferExhaustedError`,
        `InvalidTopicExceptionError` for an invalid topic name, `PartitionerError` if a custom
        `partitioner` function failed (nothing is sent), and `ClientClosedError`. All other errors
        are those of the future: `KafkaTimeoutError` if the topic's metadata didn't arrive or the
        partition didn't exist by then, with all attempts; `TopicAuthorizationError`;
        and errors of sending.
        """
        # A wrong type is explained where it fails, so right ones aren't checked (R-IN-1). Only
        # values that would pass unnoticed are checked here. The headers are read only once.
        if on_delivery is not None:
            function("on_delivery", on_delivery)
        if headers is not NO_HEADERS and type(headers) is not tuple:
            headers = tuple(headers) if type(headers) is list else record_headers(headers)
        if partition is not None and type(partition) is not int:
            partition = partition_number("partition", partition)
        try:
            found = self._put_at_once(self, topic, key, value, headers, timestamp_ms, partition)
            waits = found is None or type(found) is int
            if waits:  # no open batch has space; `found` is the chosen partition, or None
                lane = self._lanes.get(topic)
                if lane is None or lane.snapshot is not self._metadata.snapshot:
                    lane = self._lane(topic)
        except KafkaError:
            raise
        except (TypeError, ValueError, BufferError) as error:
            at = NO_TIME if timestamp_ms is None else timestamp_ms
            raise explained(error, topic, value, key, headers, at) from None
        if waits:
            at = int(self._wall_clock() * 1000) if timestamp_ms is None else timestamp_ms
            record: Any = key, value, headers, at
            try:
                found = self._append(topic, lane, record, found)
            except KafkaError as error:
                shorten(error)
                raise
        if on_delivery is not None:
            self._report_to(found, on_delivery)
        return found  # type: ignore[no-any-return]  # it is what `_set_up_sending` was told


def alive(of: ref[Any]) -> Any:
    """Return the producer, or raise if it was freed, as in `Producer(…).send(…)`."""
    producer = of()
    if producer is None:
        raise ClientClosedError(
            "this producer was garbage-collected: keep it in a variable, or use `with`"
        )
    return producer


def _of(of: ref[Any], send: Callable[..., Any], *record: Any, **more: Any) -> Any:
    return send(alive(of), *record, **more)


def _report_in_context(
    report_to: Callable[[F, DeliveryCallback], Any], future: F, on_delivery: DeliveryCallback
) -> Any:
    """Run a callback in the context of its `send`, in whichever thread calls it."""
    from inspect import iscoroutinefunction  # most producers don't need it

    run: Callable[..., None] = copy_context().run
    refused = not callable(on_delivery) or iscoroutinefunction(on_delivery)
    return report_to(future, on_delivery if refused else partial(run, on_delivery))
