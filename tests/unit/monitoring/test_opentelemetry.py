"""Test OpenTelemetry's instruments with the reader of its SDK."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.attributes import messaging_attributes as attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics as conventions
from tests.unit.monitoring.test_prometheus import Client

from odradek import Admin
from odradek.clients.metrics.catalogue import SCOPES
from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.monitoring import OpenTelemetryMetrics
from odradek.monitoring.opentelemetry import CONVENTIONS


def read(reader: InMemoryMetricReader) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "odradek"
    return {
        metric.name: {
            tuple(sorted((point.attributes or {}).items())): point.value  # type: ignore[union-attr]
            for point in metric.data.data_points
        }
        for metric in scope.metrics
    }


def new_provider() -> tuple[InMemoryMetricReader, MeterProvider]:
    reader = InMemoryMetricReader()
    return reader, MeterProvider(metric_readers=[reader])


def test_instruments_export_the_values_of_the_clients_metrics() -> None:
    reader, provider = new_provider()
    client, other = Client(), Client(sent=9)
    OpenTelemetryMetrics(client, other, meter_provider=provider)
    found = read(reader)
    one, two = (("client-id", "c"),), (("client-id", "c-2"),)
    assert found["kafka.producer.record_send_total"] == {one: 7, two: 9}
    assert found["odradek.dial_total"] == {one: 3, two: 3}
    lag = found["kafka.consumer_fetch_manager.partition.records_lag"]
    assert set(lag.values()) == {4}
    assert "kafka.producer.request_latency_avg" not in found, "no request was measured"


def test_messages_are_counted_as_the_semantic_conventions_of_opentelemetry_require() -> None:
    reader, provider = new_provider()
    client = Client()
    OpenTelemetryMetrics(client, meter_provider=provider)
    found = read(reader)
    (sent,) = found[conventions.MESSAGING_CLIENT_SENT_MESSAGES].items()
    assert (dict(sent[0]), sent[1]) == (
        {
            attributes.MESSAGING_SYSTEM: attributes.MessagingSystemValues.KAFKA.value,
            attributes.MESSAGING_OPERATION_NAME: "send",
            attributes.MESSAGING_DESTINATION_NAME: "t",
            attributes.MESSAGING_CLIENT_ID: "c",
        },
        7,
    )
    (consumed,) = found[conventions.MESSAGING_CLIENT_CONSUMED_MESSAGES].items()
    assert (dict(consumed[0])[attributes.MESSAGING_OPERATION_NAME], consumed[1]) == ("poll", 5)
    assert {c.name for c in CONVENTIONS} <= {str(value) for value in vars(conventions).values()}


def test_each_export_reads_each_client_once() -> None:
    reader, provider = new_provider()
    client = Client()
    OpenTelemetryMetrics(client, meter_provider=provider)
    for exports in (1, 2, 3):
        read(reader)
        assert client.asked == exports
    client.found = Client(sent=8).found
    assert read(reader)["kafka.producer.record_send_total"] == {(("client-id", "c"),): 8}


def test_every_metric_has_an_instrument() -> None:
    made: list[tuple[str, str]] = []

    class Meter:
        def create_observable_counter(self, name: str, **_: Any) -> None:
            made.append((name, "counter"))

        def create_observable_gauge(self, name: str, **_: Any) -> None:
            made.append((name, "gauge"))

    client = Client()
    metrics = OpenTelemetryMetrics(client, meter_provider=MeterProvider())
    metrics._make(Meter())
    assert len({name for name, _ in made}) == len(made)
    assert len(made) == sum(len(scope.names) for scope in SCOPES) + len(CONVENTIONS)
    counters = {name for name, kind in made if kind == "counter"}
    assert {name for name, _ in made if name.endswith(("_total", ".messages"))} == counters


def test_a_garbage_collected_client_is_no_longer_exported() -> None:
    reader, provider = new_provider()
    client = Client()
    OpenTelemetryMetrics(client, meter_provider=provider)
    del client
    gc.collect()
    assert read(reader) == {}


def test_metrics_of_a_real_client_can_be_exported() -> None:
    reader, provider = new_provider()
    with Admin(bootstrap_servers="127.0.0.1:1", client_id="me") as admin:
        OpenTelemetryMetrics(admin, meter_provider=provider)
        found = read(reader)
    assert found["kafka.admin_client.connection_count"] == {(("client-id", "me"),): 0}


def test_the_error_for_a_missing_opentelemetry_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    client = Client()
    with pytest.raises(ConfigurationError, match=r"odradek\[opentelemetry\]"):
        OpenTelemetryMetrics(client)


def test_an_argument_that_is_not_a_client_is_rejected() -> None:
    with pytest.raises(ArgumentError, match="pass at least one client"):
        OpenTelemetryMetrics()
    with pytest.raises(ArgumentError, match="clients must be Kafka clients"):
        OpenTelemetryMetrics("c")  # type: ignore[arg-type]
