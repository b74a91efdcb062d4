"""Compare our metrics with Java's: names, groups, tags, and values for the same work.

Java's clients and ours run one after the other with the same simulated brokers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.group_members import end_program, java_program
from tests.time_limits import HANG_S

from odradek import Admin, Consumer, Producer
from odradek.clients.metrics.catalogue import OURS, SCOPES
from odradek.monitoring import Metric
from odradek.testing import FakeCluster

RECORDS = 20
Key = tuple[str, str, frozenset[tuple[str, str]]]
"""Group, name and tags of a metric."""
ONLY_OURS = {
    *(f"{kind}-metrics {name}" for kind in ("consumer", "admin-client") for name in (
        *("requests-in-flight", "request-latency-avg", "request-latency-max", "metadata-age"),)),
    *(f"{kind}-node-metrics {name}" for kind in ("producer", "consumer", "admin-client")
      for name in ("connection-count", "requests-in-flight")),
}  # fmt: skip
"""Metrics of Odradek that Java has only for other clients, or for all nodes together."""
SAME_VALUES = (
    *("record-send-total", "record-retry-total", "record-error-total", "byte-total"),
    *("batch-size-avg", "batch-size-max", "records-per-request-avg", "batch-split-total"),
    *("produce-throttle-time-max", "buffer-total-bytes", "buffer-available-bytes"),
    *("waiting-threads", "records-consumed-total", "records-lag", "records-lag-max"),
    *("fetch-throttle-time-max", "commit-total", "rebalance-total", "assigned-partitions"),
    *("failed-authentication-total", "successful-authentication-total"),
)
IN_BOUNDS = {
    "request-latency-avg": 60_000.0,
    "record-queue-time-avg": 10_000.0,
    "fetch-latency-avg": 60_000.0,
    "commit-latency-avg": 10_000.0,
    "rebalance-latency-avg": 60_000.0,
    "metadata-age": 60.0,
    "last-poll-seconds-ago": 60.0,
}
"""Upper limits of metrics of time, in the unit of each metric."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[FakeCluster]:
    with FakeCluster(1, topics=["java", "odradek"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def javas(brokers: FakeCluster) -> dict[Key, float]:
    words = brokers.bootstrap_servers, "java", str(RECORDS), "java-group", "0"
    process = java_program(Path(__file__).with_name("MetricNames.java"), *words)
    try:
        said, _ = process.communicate(timeout=HANG_S)
        assert process.returncode == 0
    finally:
        end_program(process)
    found = {}
    for line in said.splitlines():
        group, name, tags, value = line.split("\t")
        if group.endswith("-metrics"):
            pairs = [tuple(tag.split("=", 1)) for tag in tags.split(",")]
            try:
                found[group, name, frozenset(pairs)] = float(value)
            except ValueError:  # a version, or a group's state as text
                continue
    return found  # type: ignore[return-value]  # each pair has two


@pytest.fixture(scope="module")
def ours(brokers: FakeCluster) -> list[Metric]:
    """Run the same work as MetricNames.java and return our metrics."""
    config = {"bootstrap.servers": brokers.bootstrap_servers, "client.id": "me"}
    found: list[Metric] = []
    with Producer(config, linger_ms=5) as producer:
        for _ in range(RECORDS):
            producer.send("odradek", bytes(100), partition=0).result(60)
        found += producer.metrics().all
    reading = {"group.id": "ours", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({**config, **reading}) as consumer:
        consumer.subscribe(["odradek"])
        read = 0
        while read < RECORDS:
            read += len(consumer.poll(1.0))
        consumer.commit()
        consumer.poll(0.6)
        found += consumer.metrics().all
    with Admin(config) as admin:
        admin.list_topics()
        found += admin.metrics().all
    return found


def key(metric: Metric) -> Key:
    """Return the key of Java's metric: without the tag for the address, and with Java's topic."""
    tags = {tag: value for tag, value in metric.tags.items() if tag != "address"}
    if "topic" in tags:
        tags["topic"] = "java"
    return metric.group, metric.name, frozenset(tags.items())


def test_every_metric_has_javas_name_group_and_tags(
    javas: dict[Key, float],
) -> None:
    theirs = {(group, name, frozenset(tag for tag, _ in tags)) for group, name, tags in javas}
    unknown = {
        f"{scope.group} {name}"
        for scope in SCOPES
        for name in scope.names
        if scope.group != OURS
        and (scope.group, name, frozenset({"client-id", *scope.tags} - {"address"})) not in theirs
    }
    assert unknown == ONLY_OURS


def test_metrics_have_javas_values_for_the_same_work(
    javas: dict[Key, float], ours: list[Metric]
) -> None:
    compared = set()
    for metric in ours:
        if metric.name in SAME_VALUES and metric.group != OURS:
            assert metric.value == javas[key(metric)], metric
            compared.add(metric.name)
    assert compared == set(SAME_VALUES)


def test_time_metrics_have_javas_units(javas: dict[Key, float], ours: list[Metric]) -> None:
    for name, most in IN_BOUNDS.items():
        values = [m.value for m in ours if m.name == name and not math.isnan(m.value)]
        values += [v for (_, n, _), v in javas.items() if n == name and not math.isnan(v)]
        assert len(values) > 1, name
        assert 0 <= min(values) <= max(values) < most, name
