"""Traces in rare cases: subclasses, records that just fit the limit, unusual columns."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.trace import StatusCode
from tests.simulation.traced import Exported, attributes
from tests.simulation.traced import exported as exported
from tests.simulation.traced import simulation as simulation

from odradek import AsyncProducer, Producer, RecordTooLargeError
from odradek.monitoring import OpenTelemetryTraces
from odradek.serialization import StringSerializer
from odradek.testing import KafkaSimulation


@pytest.mark.parametrize("serialized", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_send_of_a_subclass_is_called_with_traces_and_serializers(
    simulation: KafkaSimulation, exported: Exported, *, serialized: bool, traced: bool
) -> None:
    """The program calls the overriding send(), also if the client has serializers or is traced."""

    class OfTenants(Producer[bytes, Any]):
        def send(self, *given: Any, tenant: str = "", **more: Any) -> Any:
            topic, value, key, headers = (*given, None, None, ())[:4]
            return super().send(topic, value, key, [*(headers or ()), ("tenant", b"t")], **more)

    servers = simulation.bootstrap_servers
    serializer = StringSerializer() if serialized else None
    value: Any = "x" if serialized else b"x"
    with OfTenants(bootstrap_servers=servers, value_serializer=serializer) as producer:
        if traced:
            OpenTelemetryTraces(producer, tracer_provider=exported.provider)
        producer.send("t", value, tenant="a").result()
        with pytest.raises(TypeError, match="no_such"):
            producer.send("t", value, no_such=1)
    [record] = simulation.records("t", 0)
    names = [name for name, _ in record[5]]
    assert record[4] == b"x"
    assert names == ["traceparent"] * traced + ["tenant"]


def test_a_trace_context_is_left_out_if_the_record_would_exceed_the_size_limit(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    producer = simulation.producer(max_request_size=20_000, batch_size=1000)
    OpenTelemetryTraces(producer, tracer_provider=exported.provider)
    with pytest.raises(RecordTooLargeError) as raised:
        producer.send("t", bytes(20_000))
    [size] = re.findall(r"record of up to (\d+) bytes", str(raised.value))
    producer.send("t", bytes(20_000 - (int(size) - 20_000))).result()
    [record] = simulation.records("t", 0)
    assert record[5] == ()
    assert exported.spans("send")[-1].status.status_code is StatusCode.UNSET


def test_a_record_without_space_for_its_trace_context_is_serialized_and_sent_once(
    simulation: KafkaSimulation, exported: Exported
) -> None:
    calls: list[str] = []

    def serializer(value: bytes) -> bytes:
        calls.append("serializer")
        return value

    class OfTenants(Producer):
        def send(self, *given: Any, **more: Any) -> Any:
            calls.append("send")
            topic, value, key, headers = given[:4]
            return super().send(topic, value, key, [*headers, ("tenant", b"t")], **more)

    async def main(config: dict[str, Any]) -> None:
        async with AsyncProducer(config, value_serializer=serializer) as producer:
            OpenTelemetryTraces(producer, tracer_provider=exported.provider)
            await producer.send_and_wait("t", bytes(110))

    config = {"bootstrap.servers": simulation.bootstrap_servers, "max.request.size": 200}
    with OfTenants(config, value_serializer=serializer) as producer:
        OpenTelemetryTraces(producer, tracer_provider=exported.provider)
        producer.send("t", bytes(100), None, ()).result()
        assert calls == ["serializer", "send"]
        producer.send("t", bytes(10), None, ()).result()
        calls.clear()
    simulation.run(main(config))
    assert calls == ["serializer"]
    names = [[name for name, _ in record[5]] for record in simulation.records("t", 0)]
    assert names == [["tenant"], ["traceparent", "tenant"], []]


@pytest.mark.parametrize("serializer", [None, bytes])
def test_asyncio_clients_leave_out_a_trace_context_that_would_exceed_the_size_limit(
    simulation: KafkaSimulation, exported: Exported, serializer: Any
) -> None:
    async def main() -> None:
        config = {"bootstrap.servers": simulation.bootstrap_servers, "max.request.size": 200}
        async with AsyncProducer(config, value_serializer=serializer) as producer:
            OpenTelemetryTraces(producer, tracer_provider=exported.provider)
            await producer.send_and_wait("t", bytes(110))
            await (await producer.send("t", bytes(110)))
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", bytes(300))

    simulation.run(main())
    assert [record[5] for record in simulation.records("t", 0)] == [(), ()]
    codes = [span.status.status_code for span in exported.spans("send")]
    assert codes == [StatusCode.UNSET] * 2 + [StatusCode.ERROR]


@pytest.mark.parametrize(
    ("names", "values", "told"),
    [
        (["topic", "topic"], [pa.array(["a"]), pa.array(["b"])], None),
        (["topic"], [pa.array([{"of": "a"}])], None),
        (["topic"], [pa.array([["a"]])], None),
        (["topic"], [pa.array([b"a"])], None),
        (["topic"], [pa.array(["a"]).dictionary_encode()], "a"),
        (
            ["headers", "headers"],
            [pa.array([[("a", b"b")]], pa.map_("string", "binary"))] * 2,
            None,
        ),
    ],
)
def test_tables_with_unusual_topic_columns_are_processed(
    simulation: KafkaSimulation, exported: Exported, names: list[str], values: Any, told: str | None
) -> None:
    traces = OpenTelemetryTraces(simulation.consumer(), tracer_provider=exported.provider)
    with traces.process(pa.Table.from_arrays(values, names=names)):
        pass
    assert attributes(exported.one("process")).get("messaging.destination.name") == told
