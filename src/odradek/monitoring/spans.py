"""Create the spans of one client by the conventions for messaging (1.44).

In: calls of the client's callers (`clients/traces`). Out: spans of a tracer, contexts in headers. A
span without child spans is created when its operation is over, with the time of its beginning: so
nothing can leave it open, neither Ctrl-C nor a fork. Only a record's span is created before,
because its context is sent with the record; the outcome ends it in any case. Times are those of the
client's clock, so that a simulation has its own. Must not: change what a call returns or raises,
also if a sampler, a processor or a propagator of the program fails (it runs in the client's own
steps), or keep the client alive. This module imports OpenTelemetry: it is only imported if the
program uses traces.

`send` takes one record, so its span is the creation context, and there is no `create` span. At most
128 records of a call become links, as many as the SDK keeps per span, and headers of more than 8
KiB aren't searched for links. `send_arrow` writes no context into rows: it would add 70 bytes to
rows that may have 20. Keys aren't attributes, because they often are personal data. At most 10,000
records of a producer have an open span, since `buffer.memory` holds 300,000 small records in an
outage.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import partial
from itertools import product
from types import CoroutineType
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY as SUPPRESSED
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.calls.record_sending import of_producers
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.clients.producer.delivery import RowsDelivery
from odradek.clients.producer.record_arguments import NO_HEADERS, HeadersInput
from odradek.clients.traces import Runs
from odradek.common.arguments import function, record_headers, refusal
from odradek.common.errors import (
    BrokerError,
    ClientClosedError,
    KafkaError,
    WakeupError,
)
from odradek.common.errors.records import SchemaNotAtHandError
from odradek.common.types import TopicPartition
from odradek.monitoring.contexts import (
    FORGIVEN,
    MOST_BYTES,
    MOST_LINKS,
    NO_CONTEXT,
    OFFSET,
    PARTITION,
    TOPIC,
    ReadRecord,
    all_of,
    arrow_records,
    extracted,
    injected,
    linked,
    sent_in,
    valid,
)

T = TypeVar("T")
Y = TypeVar("Y")

SYSTEM, CLIENT, CLUSTER = "messaging.system", "messaging.client.id", "messaging.kafka.cluster.id"
NAME, TYPE = "messaging.operation.name", "messaging.operation.type"
GROUP, COUNT = "messaging.consumer.group.name", "messaging.batch.message_count"
SIZE, TOMBSTONE = "messaging.message.body.size", "messaging.kafka.message.tombstone"
ERROR = "error.type"
MOST_OPEN = 10_000
"""Maximum number of open spans of a producer's records, of some kilobytes each.

Spans of further records end with `send`: in an outage, very many records may be pending.
"""
NO_FAILURES = (WakeupError, SchemaNotAtHandError)
"""Exceptions of a poll that aren't recorded as errors."""


def failed(span: Span, error: BaseException) -> None:
    """Record an error in a span, by Kafka's name of the error or by its class."""
    name = error.name if isinstance(error, BrokerError) else type(error).__qualname__
    span.set_attribute(ERROR, name)
    with FORGIVEN:  # str() of a program's error may raise
        span.set_status(Status(StatusCode.ERROR, str(error)))


def named(attributes: Mapping[str, Any]) -> str:
    """Return the name of a span with these attributes."""
    topic = attributes.get(TOPIC)
    operation: str = attributes[NAME]
    return operation if topic is None else f"{operation} {topic}"


def common(all_: Iterable[T]) -> T | None:
    """Return the value that all items are equal to; None if they differ."""
    found = set(all_)
    return found.pop() if len(found) == 1 else None


def of_places(places: Collection[tuple[str | None, int | None]]) -> dict[str, Any]:
    """Return the topic and the partition as attributes, each if it is equal for all records."""
    found: dict[str, Any] = {}
    topic = common(topic for topic, _ in places)
    if topic is not None:
        found[TOPIC] = topic
        partition = common(partition for _, partition in places)
        if partition is not None:
            found[PARTITION] = str(partition)
    return found


class SentRecordSpan:
    """Span of one record, from its `send` to its outcome."""

    __slots__ = ("_span", "_traces")

    def __init__(self, traces: ClientSpans) -> None:
        self._span: Span | None = None
        """Span, or None before its start, after its end, or if the record isn't sampled."""
        self._traces = traces

    def begin(
        self,
        tracer: Tracer,
        attributes: dict[str, Any],
        headers: tuple[tuple[str, Any], ...],
        context: Context,
    ) -> tuple[tuple[str, Any], ...]:
        """Begin a record's span and return the headers with its context; existing ones are kept."""
        name, at, theirs = named(attributes), self._traces.now(), sent_in(headers)
        with FORGIVEN:
            if theirs is not None:
                kind, links = SpanKind.CLIENT, [Link(theirs)]
                self._span = tracer.start_span(name, context, kind, attributes, links, at)
                return headers
            kind = SpanKind.PRODUCER
            self._span = tracer.start_span(name, context, kind, attributes, start_time=at)
            return injected(headers, trace.set_span_in_context(self._span, context))
        return headers

    def ended(self, error: BaseException | None, metadata: Any) -> None:
        """End the span with the record's outcome, as passed to `on_delivery`."""
        span, self._span = self._span, None
        if span is None:
            return
        self._traces.open.discard(self)
        with FORGIVEN:
            if error is None:
                found = {PARTITION: str(metadata.partition), **self._traces.of_cluster()}
                if metadata.offset >= 0:
                    found[OFFSET] = metadata.offset
                span.set_attributes(found)
            else:
                failed(span, error)
            span.end(self._traces.now())

    def failed(self, error: BaseException) -> None:
        """End the span with the exception that `send` raised."""
        self.ended(error, None)

    def sent(self, to: Any, report: Callable[[Any, Any], object]) -> None:
        """Let `report` register a callback on `to` (the future of `send`) that ends the span."""
        span = self._span
        if span is None or not span.is_recording():
            return
        if len(self._traces.open) < MOST_OPEN:
            self._traces.open.add(self)
            report(to, self.ended)
        else:
            with FORGIVEN:
                span.end(self._traces.now())


class ClientSpans:
    """Creates the spans of one client."""

    def __init__(self, tracer: Tracer, calls: ClientCalls[Any]) -> None:
        self._tracer = tracer
        self._calls = calls
        self._clock = calls.host.wall_clock
        self.client = {CLIENT: calls.config["client.id"]}
        """Attributes of all spans."""
        self.open: set[SentRecordSpan] = set()
        """Open spans, of sent records whose outcome isn't known yet."""
        self.reads = calls.writes is None
        if self.reads and calls.config["group.id"] is not None:
            self.client[GROUP] = calls.config["group.id"]
        self._send = self.about("send", "send")
        self._process = self.about("process", "process")

    def now(self) -> int:
        """Return the time in nanoseconds since the epoch."""
        return int(self._clock() * 1e9)

    def about(self, name: str, kind: str) -> dict[str, Any]:
        """Return the span attributes of an operation."""
        return {SYSTEM: "kafka", NAME: name, TYPE: kind, **self.client}

    def of_cluster(self) -> dict[str, Any]:
        found = self._calls.engine.metadata.cluster_id
        return {CLUSTER: found} if found else {}

    # Sending

    def sending(
        self, send: Callable[..., Any], report: Callable[[Any, Any], object]
    ) -> Callable[..., Any]:
        """Return a traced replacement of a sync producer's `send`, or of an asyncio one's."""

        @of_producers
        def traced(
            topic: str,
            value: Any = None,
            key: Any = None,
            headers: HeadersInput = NO_HEADERS,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            on_delivery: Any = None,
            **more: Any,
        ) -> Any:
            if on_delivery is not None:
                function("on_delivery", on_delivery)
            if type(topic) is not str or (context := get_current()).get(SUPPRESSED):
                told = () if on_delivery is None else (on_delivery,)
                return send(topic, value, key, headers, partition, timestamp_ms, *told, **more)
            span = SentRecordSpan(self)
            try:
                attributes = self._of_record(topic, value, partition)
                given = headers if headers is NO_HEADERS else record_headers(headers)
                carrying = span.begin(self._tracer, attributes, given, context)
                found = send(topic, value, key, carrying, partition, timestamp_ms, **more)
                if type(found) is CoroutineType:
                    return self._once_sent(found, span, report)
                span.sent(found, report)
            except BaseException as error:
                span.failed(error)
                raise
            if on_delivery is not None:
                report(found, partial(copy_context().run, on_delivery))
            return found

        return traced

    async def _once_sent(
        self, sent: Any, span: SentRecordSpan, report: Callable[[Any, Any], object]
    ) -> Any:
        try:
            found = await sent
            span.sent(found, report)
        except BaseException as error:
            span.failed(error)
            raise
        return found

    def _of_record(self, topic: str, value: Any, partition: int | None) -> dict[str, Any]:
        attributes = {**self._send, TOPIC: topic}
        if partition is not None:
            attributes[PARTITION] = str(partition)
        if value is None:
            attributes[TOMBSTONE] = True
        elif type(value) is bytes:
            attributes[SIZE] = len(value)
        return attributes

    def sent_rows(
        self, topic: str, data: Any, headers: str | None, delivery: RowsDelivery
    ) -> Callable[[BaseException], object]:
        """Create one span for all rows of a call when they are done; return a function for errors.

        The span has links to the rows' contexts, unless the data is a stream.
        """
        begun, context, errors = self.now(), get_current(), list[BaseException]()
        links: list[Link] = []
        if hasattr(data, "slice"):
            links = linked(arrow_records(data, headers), {})
        elif isinstance(data, list):
            links = linked((ReadRecord(None, None, None, one) for one in data), {})

        def ended(_: object) -> None:
            attributes = {**self._send, TOPIC: topic, COUNT: delivery.rows}
            error = errors[0] if errors else delivery.error
            self._whole(SpanKind.CLIENT, attributes, begun, context, error, lambda: links)

        delivery.done.when_done(ended)
        return errors.append

    # Reading

    def received(
        self, flow: Generator[Y, float, T], note_into: Callable[[Runs | None], None]
    ) -> Generator[Y, float, T]:
        """Create a span for a call that returns records, or that fails."""
        begun, context = self.now(), get_current()
        runs: Runs = []
        note_into(runs)
        try:
            found = yield from flow
        except KafkaError as error:
            if not isinstance(error, NO_FAILURES):
                self._received([], begun, context, error)
            raise
        finally:
            note_into(None)
        if runs:
            self._received(runs, begun, context)
        return found

    def _received(
        self, runs: Runs, begun: int, context: Context, error: BaseException | None = None
    ) -> None:
        attributes = self.about("poll", "receive")
        attributes |= of_places([partition for partition, _ in runs])
        if error is None:
            attributes[COUNT] = sum(columns.count for _, columns in runs)
        self._whole(
            SpanKind.CLIENT,
            attributes,
            begun,
            context,
            error,
            lambda: linked(_rows(runs), attributes),
        )

    # Committing

    def settled(
        self,
        flow: Generator[Y, float, T],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: str,
        *,
        operation: str = "commit",
        asked: bool = True,
    ) -> Generator[Y, float, T]:
        """Create a span for a commit; an automatic commit (not `asked`) begins a new trace."""
        context = get_current() if asked else Context()
        return self._settled(flow, offsets, {GROUP: group}, operation, context, self.now())

    def _settled(
        self,
        flow: Generator[Y, float, T],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        of_group: dict[str, Any],
        operation: str,
        context: Context,
        begun: int,
    ) -> Generator[Y, float, T]:
        error: BaseException | None = None
        try:
            found = yield from flow
            if isinstance(found, Mapping):
                offsets = found
        except GeneratorExit:
            error = ClientClosedError("the client was closed before this operation was done")
            raise
        except BaseException as failure:
            error = failure
            raise
        finally:
            if offsets or error is not None:
                attributes = self.about(operation, "settle") | of_group | of_places(list(offsets))
                if len(offsets) == 1:
                    attributes[OFFSET] = next(iter(offsets.values())).offset
                self._whole(SpanKind.CLIENT, attributes, begun, context, error)
            del error  # its traceback refers to this frame, so there would be a reference cycle
        return found

    def _whole(
        self,
        kind: SpanKind,
        attributes: dict[str, Any],
        begun: int,
        context: Context,
        error: BaseException | None = None,
        links: Callable[[], list[Link]] = list,
    ) -> None:
        """Create the span of a finished operation, with its begin and end times."""
        if context.get(SUPPRESSED):
            return
        name = named(attributes)
        attributes |= self.of_cluster()
        given, over = links(), self.now()
        with FORGIVEN:
            span = self._tracer.start_span(name, context, kind, attributes, given, begun)
            try:
                if error is not None:
                    failed(span, error)
            finally:
                span.end(over)

    # Workers

    def working(self, record: ConsumerRecord) -> AbstractContextManager[Span]:
        """Return the span of a worker's attempt, in the trace in which the record was sent."""
        return processing(self._tracer, self._process, self.now, record, alone=True)

    @contextmanager
    def burying(self, record: ConsumerRecord) -> Iterator[None]:
        """Make the record's trace current, so that its dead letter is sent in this trace."""
        token = attach(extracted(record.headers, unspanned(get_current())))
        try:
            yield
        finally:
            detach(token)


def unspanned(context: Context) -> Context:
    """Return the trace context without its current span."""
    return trace.set_span_in_context(trace.INVALID_SPAN, context) if valid(context) else context


def _rows(runs: Runs) -> Iterator[ReadRecord]:
    """Yield those of the first `MOST_LINKS` returned records that have headers."""
    left = MOST_LINKS
    for partition, columns in runs:
        first, count, headers = columns.start, min(columns.count, left), columns.headers
        left -= count
        if headers is None:
            continue
        for row in range(first, first + count):
            if 0 < headers.offsets[row + 1] - headers.offsets[row] <= MOST_BYTES:
                yield ReadRecord(*partition, columns.offsets[row], headers.lists(row, row + 1)[0])


# Processing


def of_work(clients: Sequence[ClientSpans]) -> tuple[dict[str, Any], Callable[[], int | None]]:
    """Return the common attributes of spans on these clients' records, and their clock."""
    readers = [client for client in clients if client.reads]
    told = {name: common(client.client.get(name) for client in readers) for name in (CLIENT, GROUP)}
    attributes = {SYSTEM: "kafka", NAME: "process", TYPE: "process", **told}
    now: Callable[[], int | None] = readers[0].now if readers else lambda: None
    return {name: value for name, value in attributes.items() if value is not None}, now


def of_batch(records: Any) -> tuple[dict[str, Any], Iterable[ReadRecord]]:
    """Return the attributes of a list of records or an Arrow batch, and its records.

    Raises `ArgumentError`.
    """
    if isinstance(records, Sequence) and all(isinstance(r, ConsumerRecord) for r in records):
        places = of_places({(record.topic, record.partition) for record in records})
        return {**places, COUNT: len(records)}, map(_sent, records)
    if hasattr(records, "schema") and hasattr(records, "num_rows"):
        topics, partitions = (all_of(records, name) for name in ("topic", "partition"))
        places = of_places(set(product(topics, partitions)))
        rows = arrow_records(records, "headers", ("topic", "partition", "offset"))
        return {**places, COUNT: records.num_rows}, rows
    wanted = "a record, a list of records, or an Arrow RecordBatch or Table"
    raise refusal("records", wanted, records)


def _sent(record: ConsumerRecord) -> ReadRecord:
    return ReadRecord(record.topic, record.partition, record.offset, record.headers)


@contextmanager
def processing(
    tracer: Tracer,
    of: dict[str, Any],
    now: Callable[[], int | None],
    records: Any,
    *,
    alone: bool = False,
) -> Iterator[Span]:
    """Create the span of a program's work on records and make it the current one.

    The span has links to the contexts in which the records were sent. The span of a single record
    is a child of its context, unless another span is current. With `alone` (workers), the current
    span is ignored, because it belongs to the program that runs the workers.
    """
    around = get_current()
    context = base = unspanned(around) if alone else around
    if around.get(SUPPRESSED):
        yield trace.INVALID_SPAN
        return
    if isinstance(records, ConsumerRecord):
        topic, partition, offset, headers = _sent(records)
        attributes = {**of, TOPIC: topic, PARTITION: str(partition), OFFSET: offset}
        sent = extracted(headers, NO_CONTEXT)
        theirs, current = valid(sent), trace.get_current_span(base)
        links = [] if theirs is None else [Link(theirs)]
        context = extracted(headers, base) if base else sent
        if theirs is not None and current.get_span_context().is_valid:
            context = trace.set_span_in_context(current, context)
    else:
        batch, rows = of_batch(records)
        attributes = {**of, **batch}
        links = linked(rows, attributes)
    kind, name = SpanKind.CONSUMER, named(attributes)
    begun, span, token = now(), None, None
    try:
        with FORGIVEN:
            span = tracer.start_span(name, context, kind, attributes, links, begun)
        if span is not None:
            token = attach(trace.set_span_in_context(span, context))
        yield trace.INVALID_SPAN if span is None else span
    except BaseException as error:
        if span is not None and not isinstance(error, GeneratorExit):
            failed(span, error)
        if span is not None and isinstance(error, Exception):
            with FORGIVEN:
                span.record_exception(error)
        raise
    finally:
        over = None
        try:
            if token is not None:
                detach(token)
            elif get_current() is not around:  # Ctrl-C came between `attach` and its assignment
                attach(around)
            over = now()
        finally:
            if span is not None:
                with FORGIVEN:
                    span.end(over)
