"""Keep the coordinators of one producer, which Spark's tasks use with many transactional ids.

In: groups and transactional ids. Out: their coordinators, found once, or in advance with one
request for several. Must not: keep more than a limit, or raise for those found in advance.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.clients.any_broker import Brokers
from odradek.clients.coordinator import Coordinator, CoordinatorKind, FindCall
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Flow

MOST_KEPT = 1000
IN_ADVANCE_S = 1.0
"""Timeout of the request for several: after it, each call finds its own, and reports errors."""


class KeptCoordinators:
    """Coordinators by kind and key; the least recently used are forgotten."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._kept: dict[tuple[CoordinatorKind, str], Coordinator] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, kind: CoordinatorKind, key: str) -> Coordinator:
        """Return the coordinator of a key, which may have to be found yet."""
        kept = self._kept
        found = kept.pop((kind, key), None) or Coordinator(self._brokers, kind, key)
        kept[kind, key] = found
        if len(kept) > MOST_KEPT:
            del kept[next(iter(kept))]
        return found

    def find(self, kind: CoordinatorKind, keys: Iterable[str]) -> Flow[None]:
        """Find those that aren't known; calls that need them wait for the response."""
        now = yield START
        those = [one for one in (self.get(kind, key) for key in keys) if one.begin_find(now)]
        found: dict[str, int | KafkaError] = {}
        try:
            if those:
                finder = FindCall(self._brokers, kind, now + IN_ADVANCE_S)
                found = yield from finder.locate_each(one.key for one in those)
        except KafkaError:
            pass
        finally:
            for one in those:
                broker = found.get(one.key)
                one.end_find(broker if isinstance(broker, int) else None)
