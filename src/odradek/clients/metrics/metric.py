"""Define the result of `client.metrics()`: metrics by name, group and tags.

In: values read at one moment. Out: a frozen mapping, with look-ups by name and tags, plain data for
JSON, and one line for a log. Must not: know a client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

Kind = Literal["counter", "gauge"]
LINE = 12
"""Maximum number of metrics in a log line."""


class MetricName(NamedTuple):
    """The identity of a metric, as in Kafka's Java clients."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...]
    """Pairs of tag and value, in the order of Java's names."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its value and meaning."""

    name: str
    """Java's name if Java has the metric: `records-lag-max`."""
    group: str
    """Java's group: `consumer-fetch-manager-metrics`; `odradek-metrics` for metrics that Java
    lacks."""
    tags: Mapping[str, str]
    """`client-id`, and for some metrics `topic`, `partition`, `node-id` or `address`."""
    value: float
    """Counts are ints; NaN (`math.isnan`) if nothing was measured, as in Java."""
    unit: str
    """`ms`, `s` or `bytes`; empty for counts."""
    description: str
    kind: Kind
    """A `counter` only grows, from 0 when the client is created; a `gauge` is a current value."""

    @property
    def key(self) -> MetricName:
        """The key of this metric in `Metrics`."""
        return MetricName(self.name, self.group, tuple(self.tags.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the metric with its tags, which are read-only in the copy as well."""
        plain = (self.name, self.group, dict(self.tags), self.value)
        return _metric, (*plain, self.unit, self.description, self.kind)

    def __str__(self) -> str:
        tags = ",".join(f"{tag}={value}" for tag, value in self.tags.items())
        return f"{self.group}:{self.name}{{{tags}}} {self.value:g}"


def _metric(
    name: str, group: str, tags: dict[str, str], value: float, unit: str, text: str, kind: Kind
) -> Metric:
    return Metric(name, group, MappingProxyType(tags), value, unit, text, kind)


class Metrics(Mapping[MetricName, float]):
    """All metrics of a client at one moment; read-only.

    A mapping from `MetricName` to the value. `value("records-lag", topic="t", partition=0)` returns
    one number, `find(group="producer-topic-metrics")` all metrics that match, and `str()` one line
    for a log.
    """

    __slots__ = ("_by_name", "all", "at", "client", "client_id")

    def __init__(self, client: str, client_id: str, at: float, found: tuple[Metric, ...]) -> None:
        self.client = client
        """The client's class, by name."""
        self.client_id = client_id
        self.at = at
        """Seconds since the epoch."""
        self.all = found
        """All metrics as `Metric` objects, with unit and description."""
        self._by_name = {metric.key: metric.value for metric in found}

    def __getitem__(self, name: MetricName) -> float:
        try:
            return self._by_name[name]
        except KeyError:
            if isinstance(name, str):
                raise KeyError(
                    f"keys are MetricNames; to look up a metric by its name, call value({name!r})"
                ) from None
            raise

    def __iter__(self) -> Iterator[MetricName]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_by_name"):
            raise AttributeError("a metrics snapshot is read-only")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Metrics, (self.client, self.client_id, self.at, self.all)

    def find(
        self, name: str | None = None, group: str | None = None, **tags: object
    ) -> tuple[Metric, ...]:
        """Return all metrics with this name, group and tags (`node_id` for `node-id`).

        A metric may have more tags than these. Empty if none matches.
        """
        wanted = {tag.replace("_", "-"): str(value) for tag, value in tags.items()}
        return tuple(
            metric
            for metric in self.all
            if (name is None or metric.name == name)
            and (group is None or metric.group == group)
            and wanted.items() <= metric.tags.items()
        )

    def value(self, name: str, group: str | None = None, **tags: object) -> float:
        """Return the value of one metric: of those that match, the one with the fewest tags.

        So `value("record-send-total")` is the client's, `value("record-send-total", topic="t")` the
        topic's. Raises `KeyError` if none matches, or several that differ in their tags.
        """
        fitting = sorted(self.find(name, group, **tags), key=lambda metric: len(metric.tags))
        if not fitting:
            raise KeyError(self._lacking(name))
        if len(fitting) > 1 and len(fitting[1].tags) == len(fitting[0].tags):
            raise KeyError(f"several metrics match {name}: {fitting[0]}, {fitting[1]}")
        return fitting[0].value

    def _lacking(self, name: str) -> str:
        """Return why no metric matches: its name is unknown, or only the group or the tags are."""
        others = self.find(name)
        if others:
            return f"no metric {name} with this group and these tags, only {others[0]}"
        names = sorted({metric.name for metric in self.all})
        near = get_close_matches(str(name), names, 3) or [n for n in names if str(name) in n][:3]
        like = f" (did you mean {' or '.join(near)}?)" if near else ""
        return f"this {self.client} has no metric {name} now{like}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON; None instead of NaN."""
        return {
            "client": self.client,
            "client_id": self.client_id,
            "at": self.at,
            "metrics": [
                {
                    "name": metric.name,
                    "group": metric.group,
                    "tags": dict(metric.tags),
                    "value": None if math.isnan(metric.value) else metric.value,
                    "unit": metric.unit,
                }
                for metric in self.all
            ],
        }

    def __str__(self) -> str:
        own = [m for m in self.all if list(m.tags) == ["client-id"] and m.value]
        shown = [m for m in own if m.name in TOLD and not math.isnan(m.value)]
        values = " ".join(f"{m.name}={m.value:.10g}" for m in shown[:LINE])
        return f"{self.client} {self.client_id}: {values or 'no values yet'}"

    def __repr__(self) -> str:
        return f"<Metrics of {self.client} {self.client_id}: {len(self)}>"


TOLD = frozenset(
    (
        *(
            "record-send-total",
            "record-error-total",
            "record-retry-total",
            "buffer-available-bytes",
        ),
        *("records-consumed-total", "records-lag-max", "assigned-partitions", "rebalance-total"),
        *("request-total", "request-latency-avg", "connection-count", "dial-failed-total"),
        *("retry-total", "rebootstrap-total", "outage-seconds"),
    )
)
"""Names of metrics that a log line contains unless they are 0."""
