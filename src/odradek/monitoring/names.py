"""Name metrics for other systems, with labels of their clients.

In: metrics of snapshots. Out: the words of a name, and labels that distinguish clients. A metric of
a topic or a partition has another name than the client's own metric, because a sum over one name
would count twice. Must not: know any exporter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count
from typing import Protocol
from weakref import ref

from odradek.clients.metrics.catalogue import OURS
from odradek.clients.metrics.metric import Metric, Metrics
from odradek.common.errors import ArgumentError, ClientForkedError

_SUFFIX = "-metrics"
_NODE, _TOPIC, _PARTITION = "node", "topic", "partition"


class Measured(Protocol):
    """A client of any kind."""

    def metrics(self) -> Metrics:
        """Return a snapshot of the client's metrics."""


def words(metric: Metric) -> tuple[str, ...]:
    """Return the words of a metric's name: `kafka`, its group, its scope, its own name."""
    group = metric.group.removesuffix(_SUFFIX)
    of = ""
    if _PARTITION in metric.tags:
        of = _PARTITION
    elif _TOPIC in metric.tags:
        of = _TOPIC
    parts = ["odradek"] if metric.group == OURS else ["kafka", group]
    if of and of not in group:
        parts.append(of)
    return (*parts, metric.name)


class MeasuredClients:
    """Clients whose metrics are exported together; one that is garbage-collected is dropped."""

    def __init__(self, clients: Sequence[Measured]) -> None:
        for client in clients:
            if not callable(getattr(client, "metrics", None)):
                raise ArgumentError(
                    f"clients must be Kafka clients of this package, not {client!r}"
                )
        self._clients = [ref(client) for client in clients]
        self._names: dict[int, str] = {}
        """Names by index, which never change: otherwise a series could move to another client."""

    def snapshots(self) -> list[tuple[Metrics, str]]:
        """Return a snapshot of each existing client, in order, with a unique client id.

        Clients of a parent process are left out.
        """
        found = []
        for place, held in enumerate(self._clients):
            client = held()
            if client is not None:
                try:
                    one = client.metrics()
                except ClientForkedError:
                    continue
                if place not in self._names:
                    self._names[place] = _own(one.client_id, self._names.values())
                found.append((one, self._names[place]))
        return found


def told_apart(snapshots: Iterable[Metrics]) -> list[tuple[Metrics, str]]:
    """Return snapshots with unique client ids: the second `odradek` becomes `odradek-2`."""
    found: list[tuple[Metrics, str]] = []
    for one in snapshots:
        found.append((one, _own(one.client_id, [name for _, name in found])))
    return found


def _own(client_id: str, taken: Collection[str]) -> str:
    """Return the id, or the first free one of `…-2`, `…-3`."""
    numbered = (f"{client_id}-{n}" for n in count(2))
    return next(name for name in chain((client_id,), numbered) if name not in taken)
