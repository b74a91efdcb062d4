"""What is known and what is wanted: the snapshot, the topics in use, the refreshes asked for.

In: wishes of the clients, answers from `metadata_updater`. Out: the snapshot, the signal `changed`.
R-MD-4: any number of callers ask for refreshes here; the updater sends one request at a time, and
whoever asks after it was sent shares exactly one next request. Must not: send anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Rng
from odradek.metadata.cluster import Broker, Cluster, updated, with_leader
from odradek.network.flow import Signal
from odradek.protocol.messages.metadata import MetadataResponse


class Metadata:
    """The state of one client's metadata."""

    def __init__(self, *, max_age: float, retry: ExponentialBackoff, rng: Rng) -> None:
        self.snapshot: Cluster | None = None
        self.cluster_id: str | None = None
        """Remembered outside the snapshot, so that a rebootstrap can check it (R-RB-5)."""
        self.topics: dict[str, None] = {}
        """Topics in use; refreshes ask for these and no others (R-MD-7)."""
        self.topic_errors: dict[str, int] = {}
        self.changed = Signal()
        self.wanted = Signal()
        self.why = "start"
        self.refreshed_at: float | None = None
        self.allowed_at = -math.inf
        self.in_flight_topics: frozenset[str] | None = None
        self._max_age = max_age
        self._retry = retry
        self._rng = rng
        self._epochs: dict[tuple[str, int], tuple[bytes, int]] = {}
        self._asked = 0
        self._sent = 0
        self._done = 0
        self._equivalent = 0
        self._new_topics: dict[str, None] = {}
        self._crowd = False

    # Wishes

    def request(self, why: str) -> None:
        """Ask for a refresh; many asks become one request."""
        if self._asked <= self._sent:
            self._asked = self._sent + 1
            self.why = why
            self.wanted.notify()

    def want(self, topics: Iterable[str]) -> None:
        """Add topics in use. New ones are fetched at once (MD-09); one that was asked for before
        and isn't there is asked for again with the spacing of all refreshes.
        """
        for name in topics:
            known = name in self.topics
            self.topics[name] = None
            if self.snapshot is not None and name in self.snapshot.topics:
                continue
            if self.in_flight_topics is not None and name in self.in_flight_topics:
                continue  # joins the running request
            if name in self._new_topics:
                continue
            if known:
                self.request(f"topic {name} isn't known")
            else:
                self._new_topics[name] = None
                self.wanted.notify()

    def forget_topics(self, topics: Iterable[str]) -> None:
        """These are no longer in use."""
        for name in topics:
            self.topics.pop(name, None)
            self._new_topics.pop(name, None)

    # Timing

    @property
    def requested(self) -> bool:
        """A refresh was asked for and isn't satisfied."""
        return self._asked > self._done

    def due_at(self) -> float:
        """When the next refresh may and should be made."""
        if self._new_topics and self.snapshot is not None:
            # MD-09: at once. But where the last refresh brought several, a crowd is asking, and the
            # usual spacing gathers those who come a moment later in one request (R-MD-4).
            return self.allowed_at if self._crowd else -math.inf
        if self.snapshot is None or self.requested:
            return self.allowed_at
        return max(self.allowed_at, (self.refreshed_at or 0.0) + self._max_age)

    def next_topics(self, *, full: bool = False) -> tuple[list[str], bool]:
        """The topics to ask for now, and whether that is only the new ones."""
        partial = bool(self._new_topics) and not self.requested and self.snapshot is not None
        partial = partial and not full
        return (list(self._new_topics) if partial else list(self.topics)), partial

    # Answers

    def sent(self, topics: Iterable[str]) -> int:
        """A request for these topics went out: it satisfies all who asked so far.

        Returns its serial, which `apply` gets back with the answer.
        """
        self.in_flight_topics = frozenset(topics)
        for name in topics:
            self._new_topics.pop(name, None)
        self._sent = self._asked = max(self._asked, self._sent)
        return self._sent

    def failed(self, *, late: bool = False) -> None:
        """The request came to nothing: what it should have brought is still wanted.

        One that is only `late` brings it after all, if its answer is the first to come (R-RB-9).
        """
        for name in self.in_flight_topics or ():
            if self.snapshot is None or name not in self.snapshot.topics:
                self._new_topics[name] = None
        self.in_flight_topics = None
        self._equivalent = 0
        if self._asked <= self._sent and not late:
            self._asked = self._sent + 1

    def apply(
        self,
        response: MetadataResponse,
        asked: Iterable[str],
        now: float,
        *,
        partial: bool,
        fresh: bool,
        serial: int,
    ) -> Cluster:
        """Take in a good answer. `fresh` drops the old snapshot (rebootstrap)."""
        old = None if fresh else self.snapshot
        names = list(asked)
        self._crowd = partial and len(names) > 1
        snapshot = updated(old, response, names, self._epochs, now)
        if not snapshot.cluster_id:  # R-RB-5: said nothing, so what is known stays known
            snapshot = replace(snapshot, cluster_id=self.cluster_id)
        self.in_flight_topics = None
        self._done = max(self._done, serial)
        for name in names:  # also those that a silent request was to bring, and now has (R-RB-9)
            self._new_topics.pop(name, None)
        for item in response.topics:
            if item.name is None:
                continue
            if item.error_code:
                self.topic_errors[item.name] = item.error_code
            else:
                self.topic_errors.pop(item.name, None)
        same = old is not None and replace(snapshot, updated_at=old.updated_at) == old
        self._equivalent = self._equivalent + 1 if same else 0
        # B 1.3: never closer than the base, further apart while answers bring nothing new.
        # Drawn once per answer (R-BO-3).
        self.allowed_at = now + self._retry.delay(max(0, self._equivalent - 1), self._rng)
        self.snapshot = snapshot
        if snapshot.cluster_id:
            self.cluster_id = snapshot.cluster_id
        if not partial:
            self.refreshed_at = now
        self.changed.notify()
        return snapshot

    def hint(self, topic: str, partition: int, leader: int, epoch: int, b: list[Broker]) -> bool:
        """Apply a leader hint (KIP-951); say whether it brought anything new."""
        if self.snapshot is None:
            return False
        after = with_leader(self.snapshot, topic, partition, leader, epoch, b)
        if after is self.snapshot:
            return False
        found = after.topics[topic]
        self._epochs[topic, partition] = (found.topic_id, epoch)
        self.snapshot = after
        self.changed.notify()
        return True

    def forget(self) -> None:
        """Drop the snapshot (R-RB-4); the cluster id, the topics and the epochs are kept."""
        self.snapshot = None
        self.changed.notify()
