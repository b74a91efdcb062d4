"""Collect the values of one client's metrics for a snapshot.

In: values by name, group and tags. Out: metrics with their description in the catalogue. Must not:
round anything, or accept a name that the catalogue doesn't have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import MappingProxyType

from odradek.clients.metrics.catalogue import MEANINGS
from odradek.clients.metrics.metric import Metric
from odradek.common.sampled import Sampled, average, largest

MS = 1000.0


class MetricValues:
    """The metrics of one client."""

    def __init__(self, client_id: str, now: float) -> None:
        self.now = now
        self._client_id = client_id
        self._found: list[Metric] = []

    def add(self, group: str, name: str, value: float, **tags: str) -> None:
        """Add a value; the keyword `node_id` is the tag `node-id`."""
        unit, kind, text = MEANINGS[name]
        named = {tag.replace("_", "-"): given for tag, given in tags.items()}
        all_tags = MappingProxyType({"client-id": self._client_id, **named})
        self._found.append(Metric(name, group, all_tags, value, unit, text, kind))

    def add_sampled(
        self, group: str, name: str, measured: Iterable[Sampled], factor: float = MS, **tags: str
    ) -> None:
        """Add average and maximum of recent measurements."""
        seen = list(measured)
        self.add(group, f"{name}-avg", factor * average(seen, self.now), **tags)
        self.add(group, f"{name}-max", factor * largest(seen, self.now), **tags)

    def add_throttled(self, group: str, name: str, measured: Sampled, answers: int) -> None:
        """Add the average and longest throttle time of responses; 0 without throttling.

        The average is NaN without responses.
        """
        longest = largest([measured], self.now)
        whole = sum(total for _, total, _ in measured.lately(self.now))
        self.add(group, f"{name}-avg", ratio(whole, answers))
        self.add(group, f"{name}-max", 0.0 if math.isnan(longest) else longest)

    def all(self) -> tuple[Metric, ...]:
        """Return all values, in the order in which they were added."""
        return tuple(self._found)


def ratio(whole: float, count: int) -> float:
    """Return an average; NaN if nothing was measured."""
    return whole / count if count else math.nan
