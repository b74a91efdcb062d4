"""Test trace headers, including headers of other clients, and spans of interrupted calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from tests.simulation.traced import Exported, attributes
from tests.time_limits import HANG_S

from odradek import TopicPartition
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.traces import Runs
from odradek.monitoring.contexts import MOST_BYTES, extracted, injected, sent_in
from odradek.monitoring.spans import ClientSpans

GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPAN = 0xB7AD6B7169203331


def spans_of(exported: Exported) -> ClientSpans:
    config = {"client.id": "c", "group.id": "g"}
    engine = SimpleNamespace(metadata=SimpleNamespace(cluster_id=None))
    host = SimpleNamespace(wall_clock=lambda: 5.0)
    calls = SimpleNamespace(config=config, engine=engine, host=host, writes=None)
    return ClientSpans(exported.tracer, cast("Any", calls))


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([("traceparent", GOOD)], SPAN),
        ([("TraceParent", GOOD)], SPAN),
        ([("traceparent", b"x"), ("traceparent", GOOD)], SPAN),
        ([("traceparent", GOOD), ("tracestate", b"a=1,b=2")], SPAN),
        ([("traceparent", GOOD), ("tracestate", b"\xff=,,;" * 100)], SPAN),
        ([("traceparent", GOOD), ("baggage", b"\xff" * 9000)], SPAN),
        ([("traceparent", GOOD), ("traceparent", b"x")], None),
        ([("traceparent", GOOD + b"\xff")], None),
        ([("traceparent", None)], None),
        ([("traceparent", b"")], None),
        ([("traceparent", bytes(MOST_BYTES + 1))], None),
        ([("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")], None),
        ([("traceparent", b"ff" + GOOD[2:])], None),
        ([("", b"")], None),
        ([], None),
        (None, None),
    ],
)
def test_trace_contexts_of_other_clients_are_read_and_invalid_ones_ignored(
    headers: Any, found: int | None
) -> None:
    context = sent_in(headers)
    assert (None if context is None else context.span_id) == found


def test_a_failing_propagator_does_not_lose_a_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(TextMapPropagator):
        fields: ClassVar[set[str]] = {"x"}

        def inject(self, *_: Any, **__: Any) -> None:
            raise ValueError("never again")

        def extract(self, *_: Any, **__: Any) -> Context:
            raise ValueError("never seen such a thing")

    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Broken())
    try:
        given = Context()
        assert extracted([("x", b"y")], given) is given
        assert injected((("x", b"y"),), given) == (("x", b"y"),)
    finally:
        propagate.set_global_textmap(before)
    assert "never seen such a thing" in caplog.text
    assert "never again" in caplog.text


def test_existing_headers_of_a_record_are_kept() -> None:
    known = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
    context = trace.set_span_in_context(NonRecordingSpan(known), Context())
    ours = ("traceparent", b"00-%032x-%016x-01" % (1, 2))
    given = (("a", b"1"),)
    assert injected(given, context) == (("a", b"1"), ours)
    assert given == (("a", b"1"),)
    assert injected((("TRACEPARENT", b"theirs"),), context) == (("TRACEPARENT", b"theirs"),)
    assert injected((), Context()) == ()


def yields_once(noted: list[Any]) -> Generator[str, float, str]:
    yield "wait"
    noted.append("end")
    return "records"


@pytest.mark.parametrize("how", [KeyboardInterrupt, GeneratorExit, None])
def test_an_interrupted_read_leaves_no_span_open(how: type[BaseException] | None) -> None:
    exported, notes, noted = Exported(), list[Runs | None](), list[Any]()
    read = spans_of(exported).received(yields_once(noted), notes.append)
    assert next(read) == "wait"
    if how is None:
        read.close()
    else:
        with pytest.raises(how):
            read.throw(how())
    assert (notes[0], notes[-1], noted) == ([], None, [])
    assert exported.spans() == []


@pytest.mark.parametrize(
    ("how", "name"), [(KeyboardInterrupt, "KeyboardInterrupt"), (None, "ClientClosedError")]
)
def test_an_interrupted_commit_ends_its_span(how: type[BaseException] | None, name: str) -> None:
    exported = Exported()
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(3)}
    commit = spans_of(exported).settled(yields_once([]), offsets, "g")
    next(commit)
    if how is None:
        commit.close()
    else:
        with pytest.raises(how):
            commit.throw(how())
    assert attributes(exported.one("commit"))["error.type"] == name


def test_an_interrupted_send_ends_its_span() -> None:
    exported = Exported()

    def send(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spans_of(exported).sending(send, lambda *_: None)("t", b"x")
    assert attributes(exported.one("send"))["error.type"] == "KeyboardInterrupt"


def test_a_spans_status_is_the_first_outcome_of_the_send() -> None:
    exported, told = Exported(), list[Any]()
    spans_of(exported).sending(lambda *_: None, lambda _, call: told.append(call))("t", b"x")
    metadata = SimpleNamespace(partition=1, offset=-1)
    told[0](None, metadata)
    told[0](ValueError(), metadata)
    span = exported.one("send")
    assert span.status.is_unset
    assert "messaging.kafka.offset" not in attributes(span)


@pytest.mark.slow
def test_without_tracing_opentelemetry_is_not_imported() -> None:
    program = """
import contextlib, os, sys
import odradek
producer = odradek.Producer(bootstrap_servers="127.0.0.1:1", client_id="x")
consumer = odradek.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
producer.send("t", b"x")
with contextlib.suppress(odradek.KafkaError):
    consumer.poll(0)
odradek.monitoring.OpenTelemetryTraces, odradek.monitoring.OpenTelemetryMetrics
found = [name for name in sys.modules if name.startswith("opentelemetry")]
sys.stdout.write(repr(found))
sys.stdout.flush()
os._exit(len(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
