"""Spans of workers: attempts and dead letters belong to the trace of their record."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.simulation.traced import Exported, attributes, identity, linked_to, parent, trace_of
from tests.simulation.traced import exported as exported
from tests.simulation.traced import simulation as simulation
from tests.time_limits import HANG_S

from odradek import (
    AsyncConsumer,
    AsyncProducer,
    AsyncWorkers,
    Consumer,
    ConsumerRecord,
    Producer,
    Workers,
)
from odradek.monitoring import OpenTelemetryTraces
from odradek.testing import FakeCluster, KafkaSimulation

GROUP: dict[str, Any] = {
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
LETTERS = {"dead_letter_topic": "dead", "retry_backoff": 0.0}


def check(exported: Exported) -> None:
    """Check the spans of two records: the first one failed twice, the second has no context."""
    sent, letter = [span for span in exported.spans("send") if attributes(span)]
    assert (sent.name, letter.name) == ("send t", "send dead")
    worked = {
        offset: [s for s in exported.spans("process") if attributes(s)[OFFSET] == offset]
        for offset in (0, 1)
    }
    assert [len(spans) for spans in worked.values()] == [2, 1]
    for span in worked[0]:
        assert (span.name, span.kind) == ("process t", SpanKind.CONSUMER)
        assert (parent(span), trace_of(span)) == (identity(sent), trace_of(sent))
        assert linked_to(span) == [identity(sent)]
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "ValueError"
        assert attributes(span)["messaging.consumer.group.name"] == "g"
    assert (parent(letter), trace_of(letter)) == (identity(sent), trace_of(sent))
    [other] = worked[1]
    assert (parent(other), linked_to(other)) == (None, [])
    assert other.status.status_code is StatusCode.UNSET
    assert exported.named("inner").parent is not None
    assert parent(exported.named("inner")) == identity(other)


OFFSET = "messaging.kafka.offset"


async def test_async_workers_create_spans(simulation: KafkaSimulation, exported: Exported) -> None:
    simulation.create_topic("dead", partitions=1)
    servers = {"bootstrap.servers": simulation.bootstrap_servers}
    deserializer: Any = lambda value: value.decode()  # noqa: E731 - it is called inside

    async def work(record: ConsumerRecord) -> None:
        if record.offset == 0:
            raise ValueError("no")
        with exported.tracer.start_as_current_span("inner"):
            workers.stop()

    async with (
        AsyncProducer(servers) as producer,
        AsyncConsumer({**servers, **GROUP}, value_deserializer=deserializer) as consumer,
    ):
        OpenTelemetryTraces(consumer, producer, tracer_provider=exported.provider)
        await producer.send_and_wait("t", b"x", partition=0)
        simulation.produce("t", [b"y"], partition=0)
        given: dict[str, Any] = {**LETTERS, "max_attempts": 2, "producer": producer}
        workers = AsyncWorkers(consumer, work, ordering="partition", **given)
        with exported.tracer.start_as_current_span("service"):
            await workers.run("t")
    check(exported)


def test_workers_in_threads_create_spans(exported: Exported) -> None:
    def work(record: ConsumerRecord) -> None:
        if record.offset == 0:
            raise ValueError("no")
        with exported.tracer.start_as_current_span("inner"):
            workers.stop()

    with FakeCluster(1, topics={"t": 1, "dead": 1}) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        with (
            Producer(servers) as plain,
            Producer(servers) as producer,
            Consumer({**servers, **GROUP}) as consumer,
        ):
            OpenTelemetryTraces(consumer, producer, tracer_provider=exported.provider)
            producer.send("t", b"x").result()
            plain.send("t", b"y").result()
            given: dict[str, Any] = {**LETTERS, "max_attempts": 2, "producer": producer}
            workers = Workers(consumer, work, ordering="partition", **given)
            with exported.tracer.start_as_current_span("service"):
                workers.run("t")
    check(exported)


@pytest.mark.parametrize("traced", [False, True])
async def test_untraced_workers_create_no_span_and_keep_baggage(
    simulation: KafkaSimulation, exported: Exported, *, traced: bool
) -> None:
    seen: list[object] = []

    async def work(record: ConsumerRecord) -> None:
        seen.extend((trace.get_current_span().get_span_context().is_valid, *baggage.get_all()))
        workers.stop()

    simulation.produce("t", [b"x"], partition=0, headers=[("baggage", b"user=alice")])
    servers = {"bootstrap.servers": simulation.bootstrap_servers}
    async with AsyncConsumer({**servers, **GROUP}) as consumer:
        if traced:
            OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
        workers = AsyncWorkers(consumer, work)
        await workers.run("t")
    assert seen == ([True, "user"] if traced else [False])
    assert len(exported.spans("process")) == traced


def test_the_snippet_about_workers_sets_up_a_provider() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    found = re.search(r"<!-- tracer provider -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    with FakeCluster(1, topics={"flights": 1}) as cluster:
        program = found[1].replace("localhost:9092", cluster.bootstrap_servers)
        work = "odradek.Workers(consumer, print).run("
        assert work in program
        # stop() is called while the last record is processed, on a slow machine after seconds.
        ends = "(w := odradek.Workers(consumer, lambda r: (print(r), w.stop()))).run("
        program = program.replace(work, ends).replace("timeout=5.0", "timeout=60.0")
        run = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_S,
        )
    traces = dict(
        re.findall(r'"name": "(\w+ flights)",\s+"context": {\s+"trace_id": "(\w+)"', run.stdout)
    )
    assert "value=b'flight 1'" in run.stdout
    assert traces["send flights"] == traces["process flights"]
