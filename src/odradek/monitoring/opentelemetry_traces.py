"""Traces as OpenTelemetry's spans: of what producers send, and consumers read and commit.

In: clients, a tracer provider; records that a program works on. Out: spans by the semantic
conventions for messaging, contexts in records' headers (`spans`, `contexts`). Must not: import
OpenTelemetry before somebody asks for traces, or keep a client alive.
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
    """Spans of what clients send, read and commit (the extra `opentelemetry`).

        traces = OpenTelemetryTraces(producer, consumer)    # of the global tracer provider
        for record in consumer:
            with traces.process(record):
                producer.send("seen", record.value)         # its span is inside of that one

    From here on, for as long as these clients live, each `send` is a span until its record has its
    outcome, and its context goes along in the record's headers, written by the global propagator
    (W3C's `traceparent`, unless the program has set another); headers that have a context already
    stay as they are. Each call that hands out records is a span with links to what these were sent
    in, at most 128; so is each commit, automatic ones and offsets in transactions too. `send_arrow`
    and `poll_arrow` are one span for each call, and rows' headers aren't touched. Callbacks of
    `send` run in its context. Each attempt of workers is a `process` span by itself. Names and
    attributes are those of the semantic conventions 1.44.
    Producers and consumers, sync or asyncio, may be given once each; a client keeps its traces.

    What is raised leaves all of them untraced: `ArgumentError` for what is neither,
    `IllegalStateError` for one that is traced already, `ClientClosedError`, and
    `MissingExtraError` where the extra isn't installed.
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
        records: ConsumerRecord
        | list[ConsumerRecord]
        | tuple[ConsumerRecord, ...]
        | pa.RecordBatch
        | pa.Table,
    ) -> AbstractContextManager[Span]:
        """A `with` block's span: the program's work on a record, a list of them, or an Arrow batch.

        It is the current span inside of the block, in a coroutine too, so what is done there, also
        `commit` and `send`, belongs to it. It is linked to the contexts that the records were sent
        in (of a list or a batch at most 128, of a batch where it has its column `headers`), and a
        single record's is that context's child where no other span is current. What the block
        raises is noted, and comes out. Raises `ArgumentError` for what is no records.
        """
        from odradek.monitoring.spans import processing

        return processing(self._tracer, *self._work, records)
