"""The spans of traced clients, read from OpenTelemetry's SDK in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from odradek.testing import KafkaSimulation


class Exported:
    """A tracer provider of one test, and the spans that have ended."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))

    @property
    def tracer(self) -> Tracer:
        """Tracer for the program's own spans."""
        return self.provider.get_tracer("program")

    def spans(self, operation: str = "") -> list[ReadableSpan]:
        """Return the spans of an operation, or all, in the order in which they ended."""
        found = self._memory.get_finished_spans()
        return [
            span
            for span in found
            if not operation or attributes(span).get("messaging.operation.name") == operation
        ]

    def one(self, operation: str) -> ReadableSpan:
        """Return the only span of an operation."""
        (span,) = self.spans(operation)
        return span

    def named(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        (span,) = (span for span in self.spans() if span.name == name)
        return span


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """Return the attributes of a span, without None."""
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    """Return the id of the span's parent."""
    return None if span.parent is None else span.parent.span_id


def identity(span: ReadableSpan) -> int:
    """Return the id of the span."""
    assert span.context is not None
    found: int = span.context.span_id
    return found


def trace_of(span: ReadableSpan) -> int:
    """Return the id of the span's trace."""
    assert span.context is not None
    found: int = span.context.trace_id
    return found


def linked_to(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that the span is linked to."""
    return [link.context.span_id for link in span.links]


@pytest.fixture
def simulation(kafka_simulation: KafkaSimulation) -> KafkaSimulation:
    kafka_simulation.create_topic("t", partitions=1)
    return kafka_simulation


@pytest.fixture
def exported() -> Exported:
    return Exported()
