"""Metrics as Prometheus reads them: a text for an endpoint of one's own, or a collector.

In: clients or snapshots. Out: families with type, help and labels. Averages of nothing are left
out. The text needs no library; `PrometheusCollector` is for `prometheus_client`'s registry. Must
not: serve anything, or keep a client alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from odradek.clients.metrics.metric import Metric, Metrics
from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.common.imports import loaded
from odradek.monitoring.names import Measured, MeasuredClients, told_apart, words

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_TEXT = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class _Series(NamedTuple):
    labels: dict[str, str]
    value: float


class _Family(NamedTuple):
    """All that has one name."""

    name: str
    first: Metric
    series: list[_Series]

    @property
    def help(self) -> str:
        """What it means, and its unit."""
        unit, text = self.first.unit, self.first.description
        return f"{text} Unit: {unit}." if unit else text


def _families(snapshots: Iterable[tuple[Metrics, str]]) -> list[_Family]:
    found: dict[str, _Family] = {}
    for snapshot, client_id in snapshots:
        for metric in snapshot.all:
            if math.isnan(metric.value):
                continue
            name = "_".join(words(metric)).replace("-", "_")
            labels = {tag.replace("-", "_"): value for tag, value in metric.tags.items()}
            labels["client_id"] = client_id
            family = found.setdefault(name, _Family(name, metric, []))
            family.series.append(_Series(labels, metric.value))
    return list(found.values())


def prometheus_text(*clients: Measured | Metrics) -> str:
    """The metrics of clients, or of snapshots, in Prometheus' text format (0.0.4).

    To be served as `text/plain; version=0.0.4; charset=utf-8`. Names are Java's with `_`, after
    `kafka_` and the group: `kafka_consumer_fetch_manager_partition_records_lag`; ours begin with
    `odradek_`. Of clients with the same `client.id` the second is called `…-2`. Raises
    `ArgumentError` for what is neither.
    """
    lines: list[str] = []
    for family in _families(told_apart(_snapshots(clients))):
        lines.append(f"# HELP {family.name} {family.help.translate(_TEXT)}")
        lines.append(f"# TYPE {family.name} {family.first.kind}")
        for labels, value in family.series:
            inside = ",".join(f'{name}="{text.translate(_LABEL)}"' for name, text in labels.items())
            lines.append(f"{family.name}{{{inside}}} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _snapshots(clients: Iterable[Measured | Metrics]) -> Iterator[Metrics]:
    for client in clients:
        if isinstance(client, Metrics):
            yield client
        else:
            yield from (found for found, _ in MeasuredClients([client]).snapshots())


class PrometheusCollector:
    """A collector of clients' metrics, for `prometheus_client` (the extra `prometheus`).

        REGISTRY.register(PrometheusCollector(producer, consumer))

    Each scrape asks the clients; one that nobody holds any more is forgotten. Names and labels are
    those of `prometheus_text`. Raises `ArgumentError` for what is no client, and
    `ConfigurationError` where the extra isn't installed.
    """

    def __init__(self, *clients: Measured) -> None:
        if not clients:
            raise ArgumentError("a collector needs a client whose metrics it collects")
        self._clients = MeasuredClients(clients)
        try:
            loaded("prometheus_client.core")
        except ImportError as error:
            text = "prometheus_client isn't installed: pip install 'odradek[prometheus]'"
            raise ConfigurationError(text) from error

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """One family after the other, as `prometheus_client` asks for them."""
        loaded("prometheus_client.core")
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family in _families(self._clients.snapshots()):
            names = list(family.series[0].labels)
            kind = CounterMetricFamily if family.first.kind == "counter" else GaugeMetricFamily
            made = kind(family.name, family.help, labels=names)
            for labels, value in family.series:
                made.add_metric(list(labels.values()), value)
            yield made

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: what there is shows at the first scrape, so no client is asked before."""
        return []
