"""Trace clients with OpenTelemetry's spans: records that are sent, read, processed and committed.

In: clients, a tracer provider; records that a program processes. Out: spans by the semantic
conventions for messaging, contexts in records' headers (`spans`, `contexts`). Must not: import
OpenTelemetry before the program uses traces, or keep a client alive.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ArgumentError, IllegalStateError
from odradek.common.extras import require_extra
from odradek.network.handshake import SOFTWARE_VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from opentelemetry.trace import Span, TracerProvider

    from odradek.clients.calls.client_calls import ClientCalls
    from odradek.clients.consumer.records import ConsumerRecord
    from odradek.monitoring.spans import ClientSpans

SCOPE = "odradek"
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class OpenTelemetryTraces:
    """Trace what clients send, read and commit as OpenTelemetry spans (the extra `opentelemetry`).

        traces = OpenTelemetryTraces(producer, consumer)    # with the global tracer provider
        for record in consumer:
            with traces.process(record):
                producer.send("seen", record.value)         # a child span of the `process` span

    Clients are traced until they are closed. Each `send` is a span that ends with the record's
    result. The global propagator writes the span's context to the record's headers (W3C's
    `traceparent` by default); an existing context in the headers isn't changed. Callbacks of `send`
    run in the context of this span. Each call that returns records is a span with links to the
    contexts of these records, at most 128. Each commit is a span, including automatic commits and
    offsets in transactions. `send_arrow` and `poll_arrow` are one span for each call, and headers
    of rows aren't changed. Each attempt of workers is a separate `process` span. Names and
    attributes follow the semantic conventions 1.44.

    Producers and consumers, sync or asyncio, can be passed once each.

    If an argument is wrong, no client is traced. Raises `ArgumentError` for an argument that is
    neither a producer nor a consumer, `IllegalStateError` for a client that is already traced,
    `ClientClosedError`, and `MissingExtraError` if the extra isn't installed.
    """

    def __init__(self, *clients: Any, tracer_provider: TracerProvider | None = None) -> None:
        for client in clients:
            if not hasattr(client, "_traced_by") or isinstance(client, type):
                raise ArgumentError(f"clients must be producers and consumers, not {client!r}")
        if not clients:
            raise ArgumentError("pass at least one client that should be traced")
        require_extra("opentelemetry.trace", "opentelemetry.propagate")
        from opentelemetry.trace import get_tracer

        from odradek.monitoring.spans import of_work

        self._tracer = get_tracer(SCOPE, SOFTWARE_VERSION, tracer_provider, SCHEMA)
        self._made: list[ClientSpans] = []
        if len({id(client) for client in clients}) < len(clients):
            raise IllegalStateError("clients contains the same client twice")
        for client in clients:
            client._calls.check_untraced()  # noqa: SLF001 - so all of them are, or none
        for client in clients:
            client._traced_by(self._spans)  # noqa: SLF001 - what users call is this class
        self._work = of_work(self._made)

    def _spans(self, calls: ClientCalls[Any]) -> ClientSpans:
        from odradek.monitoring.spans import ClientSpans

        made = ClientSpans(self._tracer, calls)
        self._made.append(made)
        return made

    def process(
        self,
        records: ConsumerRecord[Any, Any]
        | list[ConsumerRecord[Any, Any]]
        | tuple[ConsumerRecord[Any, Any], ...]
        | pa.RecordBatch
        | pa.Table,
    ) -> AbstractContextManager[Span]:
        """Open a span for the program's work on a record, a list of records, or an Arrow batch.

        Inside of the `with` block it is the current span, in a coroutine too, so that `commit`,
        `send` and other spans belong to it. It is linked to the contexts in which the records were
        sent (at most 128; for a batch, only if it has the column `headers`). The span of a single
        record is a child of that context, unless another span is current. An error that leaves the
        block is recorded and raised. Raises `ArgumentError` if the argument contains no records.
        """
        from odradek.monitoring.spans import processing

        return processing(self._tracer, *self._work, records)
