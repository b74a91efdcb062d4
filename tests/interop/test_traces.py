"""Exchange trace contexts in headers with librdkafka, with a real broker."""

from __future__ import annotations

from opentelemetry import propagate, trace
from opentelemetry.trace import format_span_id
from tests.interop.other_client import Row, read_all, write_all
from tests.simulation.traced import Exported, attributes, identity, linked_to, parent, trace_of

from odradek import Consumer, Producer, TopicPartition
from odradek.monitoring import OpenTelemetryTraces
from odradek.testing import LocalCluster


def test_a_trace_is_propagated_through_both_clients(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=1)
    exported, carrier = Exported(), dict[str, str]()
    with exported.tracer.start_as_current_span("theirs") as theirs:
        propagate.inject(carrier)
    headers = tuple((name, text.encode()) for name, text in carrier.items())
    write_all(cluster.bootstrap_servers, topic, [Row(None, b"x", headers)], (0,))

    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    place = TopicPartition(topic, 0)
    with (
        Producer(servers) as producer,
        Consumer(
            servers, auto_offset_reset="earliest", group_id=topic, enable_auto_commit=False
        ) as consumer,
    ):
        traces = OpenTelemetryTraces(producer, consumer, tracer_provider=exported.provider)
        consumer.assign([place])
        (record,) = consumer.poll(30)
        with traces.process(record):
            producer.send(topic, b"y").result(30)
            consumer.commit()
    process, send = exported.one("process"), exported.one("send")
    assert linked_to(exported.one("poll")) == [theirs.get_span_context().span_id]
    assert parent(process) == theirs.get_span_context().span_id
    assert parent(send) == parent(exported.one("commit")) == identity(process)
    assert attributes(send)["messaging.kafka.offset"] == 1
    assert attributes(exported.one("commit"))["messaging.kafka.offset"] == 1

    (_, ours) = read_all(cluster.bootstrap_servers, topic, 1)[0]
    read = {name: (value or b"").decode() for name, value in ours.headers}
    found = trace.get_current_span(propagate.extract(read)).get_span_context()
    assert format_span_id(found.span_id) == format_span_id(identity(send))
    assert found.trace_id == trace_of(send) == theirs.get_span_context().trace_id
