"""Spans of asyncio clients: each task has its own context variables."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from tests.simulation.traced import Exported, attributes, identity, linked_to, parent, trace_of
from tests.simulation.traced import exported as exported
from tests.simulation.traced import simulation as simulation

from odradek import ArgumentError, AsyncConsumer, AsyncProducer, KafkaTimeoutError, TopicPartition
from odradek.monitoring import OpenTelemetryTraces
from odradek.simulation.world.host import SimulatedHost
from odradek.testing import KafkaSimulation


def producer_of(simulation: KafkaSimulation, exported: Exported, **options: Any) -> AsyncProducer:
    producer = AsyncProducer(bootstrap_servers=simulation.bootstrap_servers, **options)
    OpenTelemetryTraces(producer, tracer_provider=exported.provider)
    return producer


async def test_a_thousand_concurrent_senders_have_their_own_spans(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    """Each span's parent is its task's span; callbacks run in the context of their task."""
    asked: dict[int, int] = {}
    told: dict[int, int] = {}

    async def one(producer: AsyncProducer, n: int) -> None:
        def on_delivery(*_: object) -> None:
            told[n] = trace.get_current_span().get_span_context().span_id

        with exported.tracer.start_as_current_span(f"request {n}") as span:
            asked[n] = span.get_span_context().span_id
            await asyncio.sleep(0.01 * (n % 7))
            delivery = await producer.send("t", b"%d" % n, on_delivery=on_delivery)
            assert trace.get_current_span() is span
            await delivery
            assert trace.get_current_span() is span

    async with producer_of(simulation, exported) as producer:
        await asyncio.gather(*(one(producer, n) for n in range(1000)))
    sent = {attributes(span)["messaging.kafka.offset"]: span for span in exported.spans("send")}
    assert len(sent) == 1000
    for offset, value in enumerate(simulation.values("t")):
        assert parent(sent[offset]) == asked[int(value or b"")]
    assert told == asked


async def test_spans_in_a_loop_body_belong_to_its_record(  # opentelemetry-python-contrib#3465
    simulation: KafkaSimulation, exported: Exported
) -> None:
    async with (
        producer_of(simulation, exported) as producer,
        AsyncConsumer(
            bootstrap_servers=simulation.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
    ):
        traces = OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
        for _ in range(3):
            await producer.send_and_wait("t", b"x")
        consumer.assign([TopicPartition("t", 0)])
        bodies = []
        async for record in consumer.records(timeout=5.0):
            with traces.process(record) as span:
                await asyncio.sleep(0.1)
                assert trace.get_current_span() is span
                bodies.append(span.get_span_context())
                if len(bodies) == 3:
                    break
        assert not trace.get_current_span().get_span_context().is_valid
    sent, processed = exported.spans("send"), exported.spans("process")
    assert [parent(span) for span in processed] == [identity(span) for span in sent]
    assert [trace_of(span) for span in sent] == [found.trace_id for found in bodies]
    assert linked_to(exported.spans("poll")[0])[:1] == [identity(sent[0])]


async def test_cancelling_a_send_ends_its_span_but_cancelling_a_wait_does_not(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    options = {"buffer_memory": 40_000, "batch_size": 10_000, "linger_ms": 100}
    async with producer_of(simulation, exported, **options) as producer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await producer.send_and_wait("t", b"x")
        assert exported.spans("send") == []
        await producer.flush()
        assert attributes(exported.one("send"))["messaging.kafka.offset"] == 0
        for broker in (1, 2, 3):
            simulation.crash(broker)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await producer.send("t", bytes(8000))
        cancelled = exported.spans("send")[1]
        assert attributes(cancelled)["error.type"] == "CancelledError"
        with suppress(KafkaTimeoutError):
            await producer.close(0)
    assert {attributes(span)["error.type"] for span in exported.spans("send")[2:]} == {
        "ClientClosedError"
    }


async def test_a_poll_that_is_cancelled_creates_no_span(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    async with AsyncConsumer(bootstrap_servers=simulation.bootstrap_servers) as consumer:
        OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await consumer.poll(10.0)
        assert await consumer.poll(0.5) == []
    assert exported.spans() == []


async def test_automatic_commits_belong_to_no_task(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    """Event loops run a client's timers in the context in which they were set."""
    async with (
        producer_of(simulation, exported) as producer,
        AsyncConsumer(
            bootstrap_servers=simulation.bootstrap_servers,
            auto_offset_reset="earliest",
            group_id="g",
            auto_commit_interval_ms=200,
        ) as consumer,
    ):
        OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
        with exported.tracer.start_as_current_span("task") as span:
            await producer.send_and_wait("t", b"x")
            await consumer.subscribe(["t"])
            assert await consumer.poll(10.0)
            await consumer.poll(1.0)
            assert parent(exported.one("poll")) == span.get_span_context().span_id
        assert parent(exported.one("commit")) is None
        await consumer.commit({TopicPartition("t", 0): 1})
    assert len(exported.spans("commit")) == 2


async def test_a_send_that_yields_to_the_loop_has_one_span_and_is_serialized_once(
    simulation: KafkaSimulation, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.create_topic("other", partitions=1)

    def text(value: str) -> bytes:
        return value.encode()

    async with producer_of(simulation, exported, value_serializer=text) as producer:
        await producer.send_and_wait("t", "first")  # type: ignore[arg-type]
        late = [True]
        once = property(lambda _: bool(late) and late.pop())
        monkeypatch.setattr(SimulatedHost, "overdue", once)
        await producer.send_and_wait("other", "x")  # type: ignore[arg-type]
        monkeypatch.undo()
        assert late == []
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        await producer.send_and_wait("other", "y")  # type: ignore[arg-type]
        detach(token)
    assert simulation.values("other") == [b"x", b"y"]
    assert [span.name for span in exported.spans()] == ["send t", "send other"]


async def test_callbacks_that_are_coroutines_are_refused(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    async def on_delivery(*_: object) -> None:
        """Do nothing: the client wouldn't await the coroutine."""

    async with producer_of(simulation, exported) as producer:
        with pytest.raises(ArgumentError, match="async def"):
            await producer.send("t", b"x", on_delivery=on_delivery)  # type: ignore[arg-type]
