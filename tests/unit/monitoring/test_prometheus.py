"""Test Prometheus' text format and collector with the parser of prometheus_client."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from odradek import Admin
from odradek.clients.metrics.metric_values import MetricValues
from odradek.common.errors import ArgumentError, ClientForkedError
from odradek.monitoring import Metrics, PrometheusCollector, prometheus_text


def snapshot(client_id: str = "c", sent: int = 7, topic: str = "t") -> Metrics:
    found = MetricValues(client_id, 0.0)
    found.add("producer-metrics", "record-send-total", sent)
    found.add("producer-topic-metrics", "record-send-total", sent, topic=topic)
    found.add("producer-metrics", "metadata-age", 1.25)
    found.add_sampled("producer-metrics", "request-latency", [])
    found.add("odradek-metrics", "dial-total", 3)
    tags = {"topic": topic, "partition": "0"}
    found.add("consumer-fetch-manager-metrics", "records-lag", 4, **tags)
    found.add("consumer-fetch-manager-metrics", "records-consumed-total", 5, topic=topic)
    found.add("consumer-fetch-manager-metrics", "records-consumed-total", 5)
    return Metrics("Producer", client_id, 1.0, found.all())


class Client:
    """A fake client that returns fixed metrics and counts the calls."""

    def __init__(self, client_id: str = "c", sent: int = 7, topic: str = "t") -> None:
        self.found = snapshot(client_id, sent, topic)
        self.asked = 0

    def metrics(self) -> Metrics:
        self.asked += 1
        return self.found


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation.endswith(".") for family in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}
    assert len(found) == len(samples), "a series is repeated"
    return found


def test_the_text_of_metrics_can_be_parsed_by_prometheus_client() -> None:
    found = read(prometheus_text(snapshot()))
    assert found == {
        ("kafka_producer_record_send_total", (("client_id", "c"),)): 7,
        ("kafka_producer_topic_record_send_total", (("client_id", "c"), ("topic", "t"))): 7,
        ("kafka_producer_metadata_age", (("client_id", "c"),)): 1.25,
        ("odradek_dial_total", (("client_id", "c"),)): 3,
        (
            "kafka_consumer_fetch_manager_partition_records_lag",
            (("client_id", "c"), ("partition", "0"), ("topic", "t")),
        ): 4,
        ("kafka_consumer_fetch_manager_records_consumed_total", (("client_id", "c"),)): 5,
        (
            "kafka_consumer_fetch_manager_topic_records_consumed_total",
            (("client_id", "c"), ("topic", "t")),
        ): 5,
    }


def test_the_text_contains_units_and_types() -> None:
    text = prometheus_text(snapshot())
    assert "# TYPE kafka_producer_record_send_total counter\n" in text
    assert "# TYPE kafka_producer_metadata_age gauge\n" in text
    assert "# HELP kafka_producer_metadata_age Age of the metadata in use. Unit: s.\n" in text
    assert text.endswith("\n")


def test_metrics_without_a_measured_value_are_left_out() -> None:
    assert "latency" not in prometheus_text(snapshot())
    assert "nan" not in prometheus_text(snapshot()).lower()
    assert prometheus_text() == ""


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", 'a\\"\nb', "ä{}=,"])
def test_any_client_id_is_escaped(text: str) -> None:
    found = read(prometheus_text(snapshot(text)))
    assert ("odradek_dial_total", (("client_id", text),)) in found


def test_clients_with_the_same_id_get_distinct_labels() -> None:
    found = read(prometheus_text(snapshot(), snapshot(sent=9), snapshot("other", 1)))
    by_client = {
        dict(labels)["client_id"]: value
        for (name, labels), value in found.items()
        if name == "kafka_producer_record_send_total"
    }
    assert by_client == {"c": 7, "c-2": 9, "other": 1}


def test_the_collector_returns_the_same_series_as_the_text() -> None:
    one, other = Client(), Client(sent=9, topic="u")
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(one, other))
    assert one.asked == 0, "no scrape has happened yet"
    assert read(generate_latest(registry).decode()) == read(prometheus_text(one, other))


def test_a_garbage_collected_client_is_no_longer_in_the_text() -> None:
    one, other = Client("a"), Client("b")
    collector = PrometheusCollector(one, other)
    del one
    gc.collect()
    series = [sample.labels["client_id"] for f in collector.collect() for sample in f.samples]
    assert set(series) == {"b"}


def test_a_forked_child_leaves_out_its_parents_clients() -> None:
    class Forked(Client):
        def metrics(self) -> Metrics:
            raise ClientForkedError("of another process")

    child, forked = Client("child"), Forked("parent")
    assert prometheus_text(forked, child) == prometheus_text(child)


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin(bootstrap_servers="127.0.0.1:1", client_id="me") as made:
        yield made


def test_a_real_client_can_be_scraped_even_after_close(admin: Admin) -> None:
    before = read(prometheus_text(admin))
    assert before["kafka_admin_client_request_total", (("client_id", "me"),)] == 0
    admin.close()
    assert read(prometheus_text(admin)) == before


@pytest.mark.parametrize("bad", [None, "c", Metrics, snapshot])
def test_an_argument_that_is_not_a_client_is_rejected(bad: object) -> None:
    with pytest.raises(ArgumentError, match="clients must be Kafka clients"):
        prometheus_text(bad)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="clients must be Kafka clients"):
        PrometheusCollector(bad)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="pass at least one client"):
        PrometheusCollector()


def test_labels_are_unique_for_any_client_ids() -> None:
    found = read(prometheus_text(*(snapshot(name) for name in ("o", "o-2", "o", "o", "o-2"))))
    ids = {dict(labels)["client_id"] for _, labels in found}
    assert ids == {"o", "o-2", "o-3", "o-4", "o-2-2"}


def test_a_client_keeps_its_label_after_another_client_is_gone() -> None:
    """If another client got the label, its counters would look like a reset or a jump."""
    first, second = Client("o", 1), Client("o", 100)
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(first, second))

    def sent() -> dict[str, float]:
        found = read(generate_latest(registry).decode())
        name = "kafka_producer_record_send_total"
        return {
            dict(labels)["client_id"]: value for (n, labels), value in found.items() if n == name
        }

    assert sent() == {"o": 1, "o-2": 100}
    del first
    gc.collect()
    assert sent() == {"o-2": 100}
