"""Export metrics to Prometheus: as a text for an endpoint of the program, or with a collector.

In: clients or snapshots, or families from elsewhere (of groups' lag, by the command line). Out:
families with type, help and labels. Averages without a value are left out. The text needs no
library; `PrometheusCollector` is for `prometheus_client`'s registry. Must not: serve anything, or
keep a client alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.clients.metrics.metric import Kind, Metrics
from odradek.common.errors import ArgumentError
from odradek.common.extras import require_extra
from odradek.monitoring.names import Measured, MeasuredClients, told_apart, words

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_TEXT = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class PrometheusSeries(NamedTuple):
    """One time series of a metric family: labels and a number."""

    labels: Mapping[str, str]
    value: float


class PrometheusFamily(NamedTuple):
    """Metric family: all series with one name."""

    name: str
    kind: Kind
    help: str
    """Description of the metric, with its unit."""
    series: list[PrometheusSeries]


def _families(snapshots: Iterable[tuple[Metrics, str]]) -> list[PrometheusFamily]:
    found: dict[str, PrometheusFamily] = {}
    for snapshot, client_id in snapshots:
        for metric in snapshot.all:
            if math.isnan(metric.value):
                continue
            name = "_".join(words(metric)).replace("-", "_")
            labels = {tag.replace("-", "_"): value for tag, value in metric.tags.items()}
            labels["client_id"] = client_id
            family = found.get(name)
            if family is None:
                unit, text = metric.unit, metric.description
                text = f"{text} Unit: {unit}." if unit else text
                family = found[name] = PrometheusFamily(name, metric.kind, text, [])
            family.series.append(PrometheusSeries(labels, metric.value))
    return list(found.values())


def text_of(families: Iterable[PrometheusFamily]) -> str:
    """Return families in Prometheus' text format (0.0.4)."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help.translate(_TEXT)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.series:
            inside = ",".join(f'{name}="{text.translate(_LABEL)}"' for name, text in labels.items())
            braces = f"{{{inside}}}" if inside else ""
            lines.append(f"{family.name}{braces} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def prometheus_text(*clients: Measured | Metrics) -> str:
    """Return the metrics of clients, or of snapshots, in Prometheus' text format (0.0.4).

    Serve it as `text/plain; version=0.0.4; charset=utf-8`. Names are Java's with `_`, after
    `kafka_` and the group: `kafka_consumer_fetch_manager_partition_records_lag`; Odradek's own
    begin with `odradek_`. If two clients have the same `client.id`, the second is named `…-2`.
    Raises `ArgumentError` for arguments that are neither clients nor snapshots.
    """
    return text_of(_families(told_apart(_snapshots(clients))))


def _snapshots(clients: Iterable[Measured | Metrics]) -> Iterator[Metrics]:
    for client in clients:
        if isinstance(client, Metrics):
            yield client
        else:
            yield from (found for found, _ in MeasuredClients([client]).snapshots())


class PrometheusCollector:
    """Export clients' metrics to `prometheus_client` (the extra `prometheus`).

        REGISTRY.register(PrometheusCollector(producer, consumer))

    Each scrape reads the metrics of the clients; clients that were garbage-collected are left out.
    Names and labels are those of `prometheus_text`. Raises `ArgumentError` for arguments that
    aren't clients, and `MissingExtraError` if the extra isn't installed.
    """

    def __init__(self, *clients: Measured) -> None:
        if not clients:
            raise ArgumentError("pass at least one client whose metrics should be collected")
        self._clients = MeasuredClients(clients)
        require_extra("prometheus_client.core")

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metric families, as `prometheus_client` requests them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family in _families(self._clients.snapshots()):
            names = list(family.series[0].labels)
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            made = kind(family.name, family.help, labels=names)
            for labels, value in family.series:
                made.add_metric(list(labels.values()), value)
            yield made

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing, so that registration doesn't read metrics."""
        return []
