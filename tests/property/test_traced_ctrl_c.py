"""R-HO-1 for traces: a Ctrl-C at any place of a traced call leaves no open span or context.

At most, a span that was just created is lost; it isn't open either.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from types import FrameType
from typing import Any

import pytest
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from tests.property.interrupting import OURS, Interruption
from tests.property.test_one_ctrl_c import CtrlC, in_step, looks
from tests.volume import PART

from odradek import KafkaError, TopicPartition
from odradek.monitoring import OpenTelemetryTraces
from odradek.testing.simulated import KafkaSimulation

WHERE = ("/clients/calls/", "/monitoring/")


class Open(SpanProcessor):
    """The spans that have begun and not ended."""

    def __init__(self) -> None:
        self.spans: dict[int, str] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.spans[span.context.span_id] = span.name

    def on_end(self, span: ReadableSpan) -> None:
        del self.spans[span.context.span_id]


class AmidTraces(CtrlC):
    """A Ctrl-C at the n-th place of functions that run in the caller or create spans."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename.removeprefix(OURS)
        if event == "opcode" and frame.f_lasti not in looks(frame.f_code):
            return self
        if name.startswith(WHERE) and not in_step(frame):
            return super(CtrlC, self).__call__(frame, event, argument)
        return self if name != frame.f_code.co_filename else None


def send(clients: tuple[Any, Any, Any]) -> None:
    clients[0].send("t", b"x")


def read(clients: tuple[Any, Any, Any]) -> None:
    _, consumer, traces = clients
    with traces.process(consumer.poll(10.0)[0]):
        consumer.commit({TopicPartition("t", 0): 1})


def left(number: int, action: Callable[[Any], None]) -> tuple[bool, Any]:
    """Interrupt an action at a place; return whether it ended before, and what is left open."""
    opened, ended = Open(), False
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(opened)
    with KafkaSimulation(seed=3) as simulation:
        simulation.create_topic("t", partitions=1)
        producer = simulation.producer()
        consumer = simulation.consumer(auto_offset_reset="earliest", group_id="g")
        consumer.assign([TopicPartition("t", 0)])
        traces = OpenTelemetryTraces(producer, consumer, tracer_provider=provider)
        producer.send("t", b"0").result()
        with AmidTraces(number) as ctrl_c:
            try:
                action((producer, consumer, traces))
                ended = True
            except Interruption:
                pass
        with suppress(KafkaError):
            producer.flush()
        gc.collect(0)
        what = (ctrl_c.where, dict(opened.spans), dict(get_current()))
        consumer.close()
    return ended, what if what[1] or what[2] else None


@pytest.mark.parametrize(("action", "most"), [(send, 1), (read, 6)])
def test_an_interrupted_call_leaves_no_span_open(action: Callable[[Any], None], most: int) -> None:
    number, lost, ended = 0, [], False
    while not ended:
        ended, what = copy_context().run(left, number, action)
        lost += [what] if what else []
        number += PART
    assert number > 20
    assert len(lost) <= most, lost
