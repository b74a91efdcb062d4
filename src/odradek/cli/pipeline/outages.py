"""Detect outages and recoveries of a pipeline's clusters from its clients' events.

In: the events that drivers, planners and tasks append to a folder for each cluster, and batches.
Out: a `ClusterOutage` from the time when no broker answered a client until a client has complete
metadata again, with the time of the first rows after it. Must not: access a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from odradek.cli.demo.timeline import Noticed

LOST = ("round_failed", "rebootstrap")
"""Kinds of events which mean that no broker at all answers a client."""


@dataclass(slots=True)
class ClusterOutage:
    """Outage of a cluster; times are in seconds since the epoch."""

    cluster: str
    begun: float
    why: str
    over: float | None = None
    flowing: float | None = None
    """Time at which the first batch with rows after the outage was finished."""

    @property
    def seconds(self) -> float | None:
        """Duration of the outage in seconds; None while it lasts."""
        return None if self.over is None else self.over - self.begun

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the outage's JSON line."""
        seconds = None if self.over is None else round(self.over - self.begun, 3)
        after = None
        if self.flowing is not None and self.over is not None:
            after = round(self.flowing - self.over, 3)
        return {
            "cluster": self.cluster,
            "begun": round(self.begun, 3),
            "why": self.why,
            "seconds": seconds,
            "rows_after_s": after,
        }


class Outages:
    """Detects outages of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._out: set[tuple[int | None, str]] = set()
        self.found: list[ClusterOutage] = []

    @property
    def current(self) -> ClusterOutage | None:
        """Current outage, or None."""
        last = self.found[-1] if self.found else None
        return last if last is not None and last.over is None else None

    def notice(self, events: Iterable[Noticed]) -> list[ClusterOutage]:
        """Process events, oldest first; return the outages that began or ended with them."""
        changed: list[ClusterOutage] = []
        for event in events:
            who = (event.pid, event.client)
            if event.kind in LOST:
                if self.current is None and who not in self._out:
                    why = event.fields.get("why") or "no broker answers"
                    self.found.append(ClusterOutage(self._cluster, event.time, str(why)))
                    changed.append(self.found[-1])
                self._out.add(who)
            elif event.kind == "closed":
                self._out.discard(who)
            elif event.kind == "metadata" and event.fields.get("leaderless") == 0:
                current = self.current
                # Only metadata of a client that has noticed the outage ends it: another client may
                # receive the response to an older request.
                if current is not None and who in self._out:
                    current.over = event.time
                    changed.append(current)
                self._out.discard(who)
        return changed

    def landed(self, at: float) -> ClusterOutage | None:
        """Record a batch with rows; return the outage if the batch is the first after it."""
        last = self.found[-1] if self.found else None
        if last is None or last.over is None or last.flowing is not None:
            return None
        last.flowing = max(at, last.over)
        return last
