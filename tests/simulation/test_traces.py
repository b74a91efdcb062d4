"""Spans of sync clients in virtual time: their existence, attributes and parents.

Gaps of OpenTelemetry's own instrumentations of confluent-kafka and aiokafka, from issues of
opentelemetry-python-contrib, have a test each here or in `test_traces_async`.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import ref

import pyarrow as pa
import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.semconv._incubating.attributes import messaging_attributes as convention
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode
from tests.simulation.traced import Exported, attributes, identity, linked_to, parent, trace_of
from tests.simulation.traced import exported as exported
from tests.simulation.traced import simulation as simulation

import odradek
from odradek import (
    Admin,
    ArgumentError,
    ClientClosedError,
    ConfigurationError,
    Consumer,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    Producer,
    RecordTooLargeError,
    TopicPartition,
)
from odradek.common.errors import BrokerError
from odradek.monitoring import OpenTelemetryMetrics, OpenTelemetryTraces
from odradek.serialization import StringSerializer
from odradek.testing import KafkaSimulation

THEIRS = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
THEIR_SPAN = 0xB7AD6B7169203331


def producer_of(simulation: KafkaSimulation, exported: Exported, **options: Any) -> Producer:
    producer = simulation.producer(**options)
    OpenTelemetryTraces(producer, tracer_provider=exported.provider)
    return producer


def consumer_of(
    simulation: KafkaSimulation, exported: Exported, **options: Any
) -> tuple[Consumer, OpenTelemetryTraces]:
    """Return a consumer that reads the topic from its beginning."""
    consumer = simulation.consumer(auto_offset_reset="earliest", **options)
    traces = OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
    if "group_id" in options:
        consumer.subscribe(["t"])
    else:
        consumer.assign([TopicPartition("t", 0)])
    return consumer, traces


def test_a_record_has_spans_from_its_send_to_its_commit(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, client_id="p")
    consumer, traces = consumer_of(
        simulation, exported, client_id="c", group_id="g", enable_auto_commit=False
    )
    with exported.tracer.start_as_current_span("request"):
        producer.send("t", b"abc").result()
    (record,) = consumer.poll(10)
    with traces.process(record):
        consumer.commit()
    send, poll = exported.one("send"), exported.one("poll")
    process, commit = exported.one("process"), exported.one("commit")
    names = [(span.name, span.kind) for span in (send, poll, process, commit)]
    assert names == [
        ("send t", SpanKind.PRODUCER),
        ("poll t", SpanKind.CLIENT),
        ("process t", SpanKind.CONSUMER),
        ("commit t", SpanKind.CLIENT),
    ]
    assert parent(send) == identity(exported.named("request"))
    assert parent(poll) is None
    assert parent(process) == identity(send)
    assert parent(commit) == identity(process)
    assert linked_to(send) == linked_to(commit) == []
    assert linked_to(poll) == linked_to(process) == [identity(send)]
    assert {span.status.status_code for span in exported.spans()} == {StatusCode.UNSET}
    for span in (send, poll, process, commit):
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
    assert send.end_time is not None
    assert send.end_time / 1e9 <= consumer._host.wall_clock(), "times are the clients' own"


def test_span_attributes_follow_the_conventions(  # gap 3 of opentelemetry-python-contrib#1962
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, client_id="p")
    consumer, traces = consumer_of(
        simulation, exported, client_id="c", group_id="g", enable_auto_commit=False
    )
    producer.send("t", b"abc", partition=0).result()
    producer.send("t", None, b"key").result()
    records = consumer.poll(10)
    with traces.process(records[0]):
        consumer.commit(records[0])
    place = {
        convention.MESSAGING_SYSTEM: convention.MessagingSystemValues.KAFKA.value,
        convention.MESSAGING_DESTINATION_NAME: "t",
        convention.MESSAGING_DESTINATION_PARTITION_ID: "0",
    }
    cluster = {convention.MESSAGING_KAFKA_CLUSTER_ID: simulation.cluster.cluster_id}
    reader = {convention.MESSAGING_CLIENT_ID: "c", convention.MESSAGING_CONSUMER_GROUP_NAME: "g"}
    kinds = convention.MessagingOperationTypeValues
    first, second = (attributes(span) for span in exported.spans("send"))
    assert first == {
        **place,
        **cluster,
        convention.MESSAGING_CLIENT_ID: "p",
        convention.MESSAGING_OPERATION_NAME: "send",
        convention.MESSAGING_OPERATION_TYPE: kinds.SEND.value,
        convention.MESSAGING_MESSAGE_BODY_SIZE: 3,
        convention.MESSAGING_KAFKA_OFFSET: 0,
    }
    assert second[convention.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] is True
    assert second[convention.MESSAGING_KAFKA_OFFSET] == 1
    assert b"key" not in second.values(), "no keys and no values: they are the program's"
    assert attributes(exported.one("poll")) == {
        **place,
        **cluster,
        **reader,
        convention.MESSAGING_OPERATION_NAME: "poll",
        convention.MESSAGING_OPERATION_TYPE: kinds.RECEIVE.value,
        convention.MESSAGING_BATCH_MESSAGE_COUNT: 2,
    }
    assert attributes(exported.one("process")) == {
        **place,
        **reader,
        convention.MESSAGING_OPERATION_NAME: "process",
        convention.MESSAGING_OPERATION_TYPE: kinds.PROCESS.value,
        convention.MESSAGING_KAFKA_OFFSET: 0,
    }
    assert attributes(exported.one("commit")) == {
        **place,
        **cluster,
        **reader,
        convention.MESSAGING_OPERATION_NAME: "commit",
        convention.MESSAGING_OPERATION_TYPE: kinds.SETTLE.value,
        convention.MESSAGING_KAFKA_OFFSET: 1,
    }
    scope = exported.one("poll").instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.schema_url) == ("odradek", Schemas.V1_44_0.value)


def test_suppressed_instrumentation_creates_no_span(  # gap 1 of opentelemetry-python-contrib#1962
    simulation: KafkaSimulation, exported: Exported
) -> None:
    """An exporter that writes to Kafka would create spans for each export."""
    producer = producer_of(simulation, exported)
    consumer, traces = consumer_of(simulation, exported, group_id="g")
    token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        producer.send("t", b"x").result()
        producer.send_arrow("t", pa.table({"value": [b"y"]})).result()
        (record,) = consumer.poll(10, 1)
        with traces.process(record):
            consumer.commit(record)
    finally:
        detach(token)
    assert record.headers == ()
    assert exported.spans() == []
    producer.send("t", b"z").result()
    assert len(exported.spans()) == 1


def test_a_traced_client_is_the_same_object(  # gap 2 of opentelemetry-python-contrib#1962
    simulation: KafkaSimulation, exported: Exported
) -> None:
    """The client isn't wrapped by a proxy that lacks methods."""
    before = simulation.producer(transactional_id="x")
    methods = {name for name in dir(before) if not name.startswith("_")}
    OpenTelemetryTraces(before, tracer_provider=exported.provider)
    assert type(before) is Producer
    assert {name for name in dir(before) if not name.startswith("_")} == methods
    before.init_transactions()
    with before.transaction():
        before.send("t", b"x")
    assert before.flush() == 0
    assert before.health().ok


def test_traced_clients_have_metrics(  # gap 4 of opentelemetry-python-contrib#1962
    simulation: KafkaSimulation, exported: Exported
) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    producer = producer_of(simulation, exported)
    OpenTelemetryMetrics(producer, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    producer.send("t", b"x").result()
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    (sent,) = (m for m in metrics if m.name == "messaging.client.sent.messages")
    assert [point.value for point in sent.data.data_points] == [1]  # type: ignore[union-attr]


def test_spans_of_processing_belong_to_the_trace_of_the_record(  # opentelemetry-python-contrib#3026
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    consumer, traces = consumer_of(simulation, exported)
    token = attach(baggage.set_baggage("tenant", "7"))
    producer.send("t", b"x").result()
    detach(token)
    for record in consumer.records(timeout=5):
        with traces.process(record) as span:
            assert trace.get_current_span() is span
            assert baggage.get_baggage("tenant") == "7"
            with exported.tracer.start_as_current_span("work"):
                producer.send("t2", record.value)
        assert not trace.get_current_span().get_span_context().is_valid
        assert baggage.get_baggage("tenant") is None
    producer.flush()
    first, second = exported.spans("send")
    work = exported.named("work")
    assert trace_of(first) == trace_of(work) == trace_of(second)
    assert (parent(work), parent(second)) == (identity(exported.one("process")), identity(work))


def test_a_poll_without_records_creates_no_span(  # opentelemetry-python-contrib#3590
    simulation: KafkaSimulation, exported: Exported
) -> None:
    consumer, _ = consumer_of(simulation, exported)
    assert consumer.poll(1.0) == []
    assert consumer.poll_arrow(1.0) is None
    assert list(consumer.records(timeout=1.0)) == []
    assert exported.spans() == []


def test_a_processing_span_inside_another_span_links_to_the_record(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    consumer, traces = consumer_of(simulation, exported)
    producer.send("t", b"x").result()
    (record,) = consumer.poll(10)
    with exported.tracer.start_as_current_span("job"), traces.process(record):
        pass
    process = exported.one("process")
    assert parent(process) == identity(exported.named("job"))
    assert linked_to(process) == [identity(exported.one("send"))]


@pytest.mark.parametrize(
    "given",
    [
        lambda: [("a", b"1")],
        lambda: (("a", b"1"),),
        lambda: {"a": b"1"},
        lambda: iter([("a", b"1")]),
    ],
)
def test_trace_headers_are_added_without_changing_the_given_headers(
    simulation: KafkaSimulation, exported: Exported, given: Callable[[], Any]
) -> None:
    producer = producer_of(simulation, exported)
    headers = given()
    producer.send("t", b"x", headers=headers)
    producer.send("t", b"y", headers=None)
    producer.flush()
    if not isinstance(headers, Iterator):
        assert headers == given()
    one, other = (row[5] for row in simulation.records("t", 0))
    assert (one[0], one[1][0], other[0][0], len(other)) == (
        ("a", b"1"),
        "traceparent",
        "traceparent",
        1,
    )
    assert other[0][1].split(b"-")[2].decode() == f"{identity(exported.spans('send')[1]):016x}"


def test_a_trace_context_set_by_the_program_is_kept(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    producer.send("t", b"x", headers=[THEIRS]).result()
    broken = ("Traceparent", b"nonsense \xff")
    producer.send("t", b"x", headers=[broken]).result()
    first, second = exported.spans("send")
    assert (first.kind, linked_to(first)) == (SpanKind.CLIENT, [THEIR_SPAN])
    assert (second.kind, linked_to(second)) == (SpanKind.PRODUCER, [])
    assert [row[5] for row in simulation.records("t", 0)] == [(THEIRS,), (broken,)]


def test_the_span_of_a_failed_delivery_has_the_error(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(
        simulation, exported, delivery_timeout_ms=3000, request_timeout_ms=1000, linger_ms=0
    )
    producer.send("t", b"x").result()
    for broker in (1, 2, 3):
        simulation.crash(broker)
    told: list[Any] = []
    future = producer.send("t", b"x", on_delivery=lambda *outcome: told.append(outcome))
    error = future.exception(20)
    span = exported.spans("send")[1]
    assert told[0][0] is error
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == str(error)
    assert attributes(span)["error.type"] == type(error).__name__
    assert "messaging.kafka.offset" not in attributes(span)


def test_the_error_type_of_a_broker_error_is_kafkas_name(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    consumer = simulation.consumer(auto_offset_reset="none")
    OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
    consumer.assign({TopicPartition("t", 0): 99})
    with pytest.raises(BrokerError) as raised:
        consumer.poll(10)
    span = exported.one("poll")
    assert (span.name, span.status.status_code) == ("poll", StatusCode.ERROR)
    assert attributes(span)["error.type"] == raised.value.name == "OFFSET_OUT_OF_RANGE"


def test_the_number_of_open_spans_is_limited(
    simulation: KafkaSimulation, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.monitoring.spans.MOST_OPEN", 2)
    producer = producer_of(simulation, exported, linger_ms=100)
    for _ in range(5):
        producer.send("t", b"x")
    assert len(exported.spans("send")) == 3
    producer.flush()
    producer.send("t", b"x").result()
    offsets = [attributes(span).get("messaging.kafka.offset") for span in exported.spans("send")]
    assert offsets == [None, None, None, 0, 1, 5]
    assert {len(row[5]) for row in simulation.records("t", 0)} == {1}


def test_the_span_of_a_send_that_raises_has_the_error(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, max_request_size=20_000, batch_size=1000)
    with pytest.raises(RecordTooLargeError):
        producer.send("t", bytes(30_000))
    assert attributes(exported.one("send"))["error.type"] == "RecordTooLargeError"
    wrong: Any
    for wrong in ({"topic": None}, {"headers": 5}, {"on_delivery": 5}):
        with pytest.raises(ArgumentError):
            producer.send(**{"topic": "t", "value": b"x", **wrong})
    assert len(exported.spans()) == 1, "what isn't as it must be was never sent"


def test_close_ends_the_spans_of_unfinished_records(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, linger_ms=60_000)
    producer.send("t", b"x")
    producer.send("unknown", b"x")
    assert exported.spans() == []
    with suppress(KafkaTimeoutError):
        producer.close(0)
    with pytest.raises(ClientClosedError):
        producer.send("t", b"y")
    assert [attributes(span)["error.type"] for span in exported.spans("send")] == [
        ClientClosedError.__name__
    ] * 3


def test_callbacks_run_in_the_context_of_their_send(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, linger_ms=100)
    seen: list[trace.Span] = []
    spans = []
    for n in range(3):
        with exported.tracer.start_as_current_span(f"request {n}") as span:
            producer.send("t", b"x", on_delivery=lambda *_: seen.append(trace.get_current_span()))
            spans.append(span)
    producer.flush()
    assert seen == spans


def test_a_polled_batch_has_one_span_with_a_limited_number_of_links(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, linger_ms=100)
    for n in range(200):
        producer.send("t", b"%d" % n)
    producer.flush()
    consumer, traces = consumer_of(simulation, exported)
    records = consumer.poll(10)
    assert len(records) == 200
    with traces.process(records):
        pass
    sent = [identity(span) for span in exported.spans("send")]
    for operation in ("poll", "process"):
        span = exported.one(operation)
        assert linked_to(span) == sent[:128]
        assert attributes(span)["messaging.batch.message_count"] == 200
        assert dict(span.links[5].attributes or {})["messaging.kafka.offset"] == 5
    assert parent(exported.one("process")) is None


def test_attributes_of_a_batch_are_set_if_all_records_share_them(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    simulation.create_topic("wide", partitions=2)
    producer = producer_of(simulation, exported)
    for partition in (0, 1):
        producer.send("wide", b"x", partition=partition)
    producer.send("t", b"x")
    producer.flush()
    consumer = simulation.consumer(auto_offset_reset="earliest")
    traces = OpenTelemetryTraces(consumer, tracer_provider=exported.provider)
    parts = [TopicPartition("wide", 0), TopicPartition("wide", 1), TopicPartition("t", 0)]
    consumer.assign(parts)
    records: list[Any] = []
    while len(records) < 3:
        records += consumer.poll(10)
    with traces.process([r for r in records if r.topic == "wide"]):
        pass
    with traces.process(records):
        pass
    one, other = exported.spans("process")
    assert (one.name, other.name) == ("process wide", "process")
    assert "messaging.destination.partition.id" not in attributes(one)
    places = {tuple(sorted((link.attributes or {}).items())) for link in other.links}
    assert len(places) == 3


def test_send_arrow_creates_a_span_per_call(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    consumer, traces = consumer_of(simulation, exported)
    rows = 1000
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[THEIRS]] * rows, kind)
    table = pa.table({"value": [b"x"] * rows, "headers": headers})
    producer.send_arrow("t", table).result()
    batch = consumer.poll_arrow(10, include_headers=True)
    assert batch is not None
    with traces.process(batch):
        pass
    assert len(exported.spans()) == 3, "and none for a row"
    for operation in ("send", "poll", "process"):
        span = exported.one(operation)
        assert linked_to(span) == [THEIR_SPAN], operation
        assert attributes(span)["messaging.batch.message_count"] == rows
        assert span.name == f"{operation} t"
    assert exported.one("send").kind is SpanKind.CLIENT
    assert {len(row[5]) for row in simulation.records("t", 0)} == {1}


def test_send_many_creates_a_span_per_call(simulation: KafkaSimulation, exported: Exported) -> None:
    producer = producer_of(simulation, exported)
    name, context = THEIRS
    headers: list[Any] = [[(name, context)], None, {name: context}] + [None] * 297
    producer.send_many("t", [b"x"] * 300, headers=headers).result()
    producer.send_many("t", [b"x"] * 2).result()
    with pytest.raises(KafkaError):
        producer.send_many("t", [b"x"], partitions=[7])
    with pytest.raises(KafkaError):
        producer.send_many("t", ["x"])  # type: ignore[list-item]
    first, second, refused = exported.spans("send")
    assert linked_to(first) == [THEIR_SPAN]
    assert [linked_to(second), linked_to(refused)] == [[], []]
    assert first.kind is second.kind is SpanKind.CLIENT
    counts = [attributes(span)["messaging.batch.message_count"] for span in (first, second)]
    assert counts == [300, 2]
    assert attributes(refused)["error.type"]


def test_arrow_batches_without_headers_have_no_links(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    consumer, traces = consumer_of(simulation, exported)
    producer.send("t", b"x").result()
    for columns in (None, ["value"]):
        consumer.seek_to_beginning()
        batch = consumer.poll_arrow(10, columns=columns)
        assert batch is not None
        with traces.process(batch):
            pass
    names = [span.name for span in exported.spans("poll") + exported.spans("process")]
    assert names == ["poll t", "poll t", "process t", "process"]
    assert [linked_to(span) for span in exported.spans("poll")] == [[], []]


def test_spans_of_failed_rows_have_the_error(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, linger_ms=60_000)
    sent = producer.send_arrow("t", pa.table({"value": [b"x"]}))
    wrong = pa.table({"value": [b"x"], "partition": [7]})
    with pytest.raises(KafkaError) as raised:
        producer.send_arrow("t", wrong)
    with suppress(KafkaTimeoutError):
        producer.close(0)
    assert isinstance(sent.exception(), ClientClosedError)
    names = [attributes(span)["error.type"] for span in exported.spans("send")]
    assert names == [type(raised.value).__name__, "ClientClosedError"]


def test_a_loop_over_records_creates_a_span_per_batch(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, linger_ms=100)
    for _ in range(5):
        producer.send("t", b"x")
    producer.flush()
    consumer, _ = consumer_of(simulation, exported)
    loop = consumer.records(timeout=5)
    next(loop)
    poll = exported.one("poll")
    assert attributes(poll)["messaging.batch.message_count"] == 5
    assert linked_to(poll) == [identity(span) for span in exported.spans("send")]
    assert len(list(loop)) == 4
    assert len(exported.spans("poll")) == 1


def test_commit_async_creates_a_span_that_ends_with_the_commit(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    producer.send("t", b"x").result()
    consumer, traces = consumer_of(simulation, exported, group_id="g", enable_auto_commit=False)
    (record,) = consumer.poll(10)
    told: list[Any] = []
    with traces.process(record):
        consumer.commit_async(callback=lambda *outcome: told.append(outcome))
    while not told:
        consumer.poll(1.0)
    assert parent(exported.one("commit")) == identity(exported.one("process"))
    consumer.commit({TopicPartition("t", 0): 1})
    assert len(exported.spans("commit")) == 2


def test_automatic_commits_have_separate_traces(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    producer.send("t", b"x").result()
    consumer, _ = consumer_of(simulation, exported, group_id="g", auto_commit_interval_ms=500)
    with exported.tracer.start_as_current_span("loop"):
        assert consumer.poll(10)
        consumer.poll(2.0)
        producer.send("t", b"x").result()
        assert consumer.poll(10)
        consumer.close()
    commits = exported.spans("commit")
    assert [parent(span) for span in commits] == [None, None]
    assert [attributes(span)["messaging.kafka.offset"] for span in commits] == [1, 2]
    assert {attributes(span)["messaging.consumer.group.name"] for span in commits} == {"g"}


def test_a_failed_commit_creates_a_span_and_an_empty_one_does_not(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    consumer, _ = consumer_of(simulation, exported, group_id="g", enable_auto_commit=False)
    consumer.unsubscribe()
    assert consumer.commit() == {}
    assert exported.spans() == []
    for broker in (1, 2, 3):
        simulation.crash(broker)
    with pytest.raises(KafkaError) as raised:
        consumer.commit({TopicPartition("t", 0): 1}, timeout=3)
    span = exported.one("commit")
    assert attributes(span)["error.type"] == type(raised.value).__name__
    assert span.name == "commit t"


def test_send_offsets_to_transaction_creates_a_span(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported, transactional_id="x")
    producer.init_transactions()
    with exported.tracer.start_as_current_span("work"), producer.transaction():
        producer.send("t", b"x")
        producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    span = exported.one("send_offsets")
    assert parent(span) == identity(exported.named("work"))
    assert attributes(span)["messaging.operation.type"] == "settle"
    assert attributes(span)["messaging.consumer.group.name"] == "g"
    assert attributes(span)["messaging.kafka.offset"] == 5
    assert len(exported.spans("send")) == 1


def test_the_span_of_failed_processing_has_the_error(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    producer.send("t", b"x").result()
    consumer, traces = consumer_of(simulation, exported)
    (record,) = consumer.poll(10)
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), traces.process(record):
            raise error
    first, second = exported.spans("process")
    assert attributes(first)["error.type"] == "ValueError"
    assert [event.name for event in first.events] == ["exception"]
    assert attributes(second)["error.type"] == "KeyboardInterrupt"
    assert not trace.get_current_span().get_span_context().is_valid
    with pytest.raises(ArgumentError, match="records must be a record"), traces.process(b"x"):
        pass


def test_serializers_run_inside_of_a_span(simulation: KafkaSimulation, exported: Exported) -> None:
    producer = Producer(
        bootstrap_servers=simulation.bootstrap_servers, value_serializer=StringSerializer()
    )
    OpenTelemetryTraces(producer, tracer_provider=exported.provider)
    producer.send("t", "text", headers={"a": b"b"}).result()
    with pytest.raises(KafkaError):
        producer.send("t", 5)  # type: ignore[arg-type]
    (row,) = simulation.records("t", 0)
    assert (row[4], [name for name, _ in row[5]]) == (b"text", ["a", "traceparent"])
    assert attributes(exported.spans("send")[1])["error.type"] == "SerializationError"
    producer.close()


def test_traces_do_not_prevent_the_garbage_collection_of_clients(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = Producer(bootstrap_servers=simulation.bootstrap_servers)
    traces = OpenTelemetryTraces(producer, tracer_provider=exported.provider)
    send, known = producer.send, ref(producer)
    producer.close()
    gc.disable()
    try:
        del producer
        assert known() is None
    finally:
        gc.enable()
    with pytest.raises(ClientClosedError, match="this producer was garbage-collected"):
        send("t", b"x")
    assert traces


def test_only_untraced_producers_and_consumers_are_accepted(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = producer_of(simulation, exported)
    with pytest.raises(IllegalStateError, match="already traced"):
        OpenTelemetryTraces(producer)
    with pytest.raises(ArgumentError, match="at least one client"):
        OpenTelemetryTraces()
    for wrong in ("c", Producer, simulation.admin(), Admin):
        with pytest.raises(ArgumentError, match="producers and consumers"):
            OpenTelemetryTraces(wrong)
    producer.close()
    another = simulation.producer()
    with pytest.raises(ClientClosedError):
        OpenTelemetryTraces(another, producer)
    with pytest.raises(IllegalStateError, match="twice"):
        OpenTelemetryTraces(another, another)
    assert OpenTelemetryTraces(another), "it was left as it was"


class FailingProcessor(SpanProcessor):
    """A span processor that fails when a span begins or ends."""

    def __init__(self, at: str) -> None:
        self._at = at
        self.failed = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._fail("start")

    def on_end(self, span: Any) -> None:
        self._fail("end")

    def _fail(self, at: str) -> None:
        if at == self._at:
            self.failed += 1
            raise LookupError(f"a processor fails at a span's {at}")


@pytest.mark.parametrize("at", ["start", "end"])
def test_errors_in_opentelemetry_fail_no_call(
    simulation: KafkaSimulation, exported: Exported, at: str
) -> None:
    """Errors in OpenTelemetry fail neither calls of the program nor steps of the engine."""
    processor = FailingProcessor(at)
    exported.provider.add_span_processor(processor)
    producer = producer_of(simulation, exported)
    consumer, traces = consumer_of(simulation, exported, group_id="g", auto_commit_interval_ms=1000)
    producer.send("t", b"x").result(5)
    producer.send_arrow("t", pa.table({"value": [b"y"]})).result(5)
    (first, second) = consumer.poll(10)
    with traces.process(first) as span:
        assert span.is_recording() == (at == "end")
    consumer.commit(first)
    consumer.poll(5)
    place = TopicPartition("t", 0)
    (committed,) = consumer.committed([place]).values()
    assert committed is not None
    assert committed.offset == second.offset + 1, "by itself"
    producer.send("t", b"z").result(5)
    assert processor.failed == 7


def test_the_error_of_an_invalid_argument_names_the_function(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    send: Any = producer_of(simulation, exported).send
    with pytest.raises(TypeError, match=r"^Producer\.send\(\) got an unexpected"):
        send("t", b"x", bogus=1)


def test_an_error_without_a_message_is_recorded_by_its_class(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise LookupError("no words")

    producer_of(simulation, exported).send("t", b"x").result()
    consumer, traces = consumer_of(simulation, exported)
    (record,) = consumer.poll(10)
    with pytest.raises(WordlessError), traces.process(record):
        raise WordlessError
    assert attributes(exported.one("process"))["error.type"].endswith("WordlessError")


def test_the_error_without_opentelemetry_names_the_package_to_install(
    simulation: KafkaSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    producer = simulation.producer()
    with pytest.raises(ConfigurationError, match=r"odradek\[opentelemetry\]"):
        OpenTelemetryTraces(producer)
    producer.send("t", b"x").result()


def test_the_snippet_in_monitoring_md_runs(simulation: KafkaSimulation, exported: Exported) -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    found = re.search(r"<!-- traces -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    simulation.create_topic("seen", partitions=1)
    producer = simulation.producer()
    consumer = simulation.consumer(auto_offset_reset="earliest", group_id="g")
    consumer.subscribe(["t"])
    simulation.produce("t", [b"x"])
    snippet = found[1].replace("(producer, consumer)", "(producer, consumer, tracer_provider=own)")
    exec(  # noqa: S102 - it is the page's
        snippet,
        {"odradek": odradek, "producer": producer, "consumer": consumer, "own": exported.provider},
    )
    producer.flush()
    inside = {parent(exported.one("send")), parent(exported.one("commit"))}
    assert inside == {identity(exported.one("process"))}


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([5]),
        pa.array(["text"]),
        pa.array([[b"x"]]),
        pa.array([[None, {"key": None, "value": b"x"}]]),
        pa.array([[("traceparent", THEIRS[1].decode())]], pa.map_(pa.string(), pa.string())),
        pa.array([[(b"traceparent", THEIRS[1])]], pa.map_(pa.binary(), pa.binary())),
    ],
)
def test_columns_of_another_type_are_not_read_as_headers(
    simulation: KafkaSimulation, exported: Exported, headers: Any
) -> None:
    producer = producer_of(simulation, exported)
    table = pa.table({"value": [b"x"], "headers": headers})
    with suppress(KafkaError):
        producer.send_arrow("t", table, value="value", headers=None).result()
    traces = OpenTelemetryTraces(simulation.consumer(), tracer_provider=exported.provider)
    with traces.process(table):
        pass
    meant = pa.types.is_map(headers.type)
    assert linked_to(exported.one("process")) == [THEIR_SPAN] * meant
    assert linked_to(exported.one("send")) == []
