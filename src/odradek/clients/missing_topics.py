"""R-IN-6: topics and partitions that a client waits for and that aren't there.

In: what metadata answers say of the topics in use; partitions that a call asks for. Out: a WARNING
for each, once it has been waited for `TELL_AFTER` seconds, with names like it and the command that
makes it; what `explain()` shows. Must not: end anybody's wait, or make topics.
"""

from __future__ import annotations

import difflib
import logging
import math
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import UNKNOWN_TOPIC
from odradek.network.flow import START, Flow, Signal, Wait

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine

logger = logging.getLogger("odradek")

TELL_AFTER = 5.0
"""Seconds; a topic that was just made is known everywhere long before."""
LIST_TIME = 10.0
"""Seconds for the list of topics, which is asked for once per missing topic."""
ALIKE = 3
"""Names that are told of at the most."""


@dataclass(slots=True)
class Missing:
    """One that isn't there, and since when."""

    since: float
    told: bool = False
    near: tuple[str, ...] = ()
    """Names of topics that are there and look like it."""


class MissingTopics:
    """What one client misses."""

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine
        self._noted = Signal()
        self.topics: dict[str, Missing] = {}
        self.partitions: dict[TopicPartition, Missing] = {}
        """Of topics that are there."""

    def note(self, partition: TopicPartition) -> None:
        """Somebody waits for a partition that its topic, if it is there, doesn't have."""
        count = self._count(partition.topic)
        if partition not in self.partitions and count is not None and partition.partition >= count:
            self.partitions[partition] = Missing(self._engine.now)
            self._noted.notify()

    def near(self, topic: str) -> str:
        """What looks like it, in words that fit after others; empty where nothing is known."""
        found = self.topics.get(topic)
        return (
            f"; names like it: {', '.join(found.near)}" if found is not None and found.near else ""
        )

    def run(self) -> Flow[None]:
        """Watch for as long as the client lives."""
        now = yield START
        waits = (self._engine.metadata.changed, self._noted)
        while True:
            self._look(now)
            everything = (*self.topics.values(), *self.partitions.values())
            since = min((m.since for m in everything if not m.told), default=math.inf)
            if now < since + TELL_AFTER:
                now = yield Wait(waits, None if since == math.inf else since + TELL_AFTER)
                continue
            self._tell_partitions(now)
            late = [n for n, m in self.topics.items() if not m.told and now >= m.since + TELL_AFTER]
            if late:
                now = yield from self._tell_topics(late, now)

    def _look(self, now: float) -> None:
        metadata = self._engine.metadata
        missing = {
            name
            for name, code in metadata.topic_errors.items()
            if code in UNKNOWN_TOPIC and name in metadata.topics
        }
        for name in self.topics.keys() - missing:
            del self.topics[name]
        for name in missing - self.topics.keys():
            self.topics[name] = Missing(now)
        for partition in list(self.partitions):
            count = self._count(partition.topic)
            if count is None or partition.partition < count:
                del self.partitions[partition]

    def _count(self, topic: str) -> int | None:
        snapshot = self._engine.metadata.snapshot
        found = None if snapshot is None else snapshot.topic(topic)
        return None if found is None else len(found.partitions)

    def _tell_partitions(self, now: float) -> None:
        for partition, missing in self.partitions.items():
            if not missing.told and now >= missing.since + TELL_AFTER:
                missing.told = True
                logger.warning(
                    "%s: topic %s has no partition %d, which has been waited for for %.0f s: it "
                    "has partitions 0 to %d",
                    *(self._engine.config["client.id"], partition.topic, partition.partition),
                    *(now - missing.since, (self._count(partition.topic) or 0) - 1),
                )

    def _tell_topics(self, names: Iterable[str], now: float) -> Flow[float]:
        # Imported here: most clients never miss a topic.
        from odradek.clients.descriptions import list_topics

        there: list[str] = []
        with suppress(KafkaError):  # then nothing is said of names like it
            there = yield from list_topics(self._engine, now + LIST_TIME, internal=False)
        now = self._engine.now
        self._look(now)
        for name in names:
            missing = self.topics.get(name)
            if missing is None:
                continue
            if name in there:  # just made: the metadata will say so
                missing.since = now
                continue
            missing.told = True
            missing.near = alike(name, there)
            logger.warning(
                "%s: topic %s isn't there, and has been waited for for %.0f s%s. What makes it: "
                "odradek topics create %s --bootstrap-server %s",
                *(self._engine.config["client.id"], name, now - missing.since, self.near(name)),
                *(
                    shlex.quote(name),
                    shlex.quote(",".join(map(str, self._engine.updater.bootstrap))),
                ),
            )
        return now


def alike(name: str, there: Iterable[str]) -> tuple[str, ...]:
    """Names of topics that are there and that may be meant; capitals don't count."""
    by_lower: dict[str, str] = {one.lower(): one for one in there}
    close = difflib.get_close_matches(name.lower(), by_lower, n=ALIKE)
    return tuple(by_lower[one] for one in close)
