"""Warn of missing topics and partitions that a client waits for (R-IN-6).

In: errors of topics in use in metadata responses; partitions that a call needs. Out: a WARNING for
each, after `WARN_AFTER_S` seconds, with similar names and the command that creates it; the data for
`explain()`. Must not: end a wait, or create topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from odradek.common.errors import KafkaError
from odradek.common.printable import cure
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import UNKNOWN_TOPIC
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow, Signal, Wait

logger = logging.getLogger("odradek")

WARN_AFTER_S = 4.0
"""Seconds until the warning; all brokers know a newly created topic long before."""
WAITS = 2.0
"""Maximum number of seconds between requests of a waiting call (`retry.backoff.max.ms`)."""
FORGET_AFTER = 60.0
"""Seconds after which a topic that no call requests again isn't reported as missing."""
LIST_TIME = 10.0
"""Seconds for listing the topics, once per missing topic."""
ALIKE = 3
"""Maximum number of similar names in a message."""
COMPARED = 200
"""Maximum number of names to compare letter by letter.

Each takes a tenth of a millisecond, and the client does nothing else meanwhile.
"""


class Missing:
    """A missing topic or partition: since when it is missing, and until when it is needed."""

    __slots__ = ("asked", "near", "since", "told")

    def __init__(self, since: float, asked: float) -> None:
        self.since = since
        self.asked = asked
        self.told = False
        self.near: tuple[str, ...] = ()
        """Similar names of existing topics."""

    def due(self, now: float) -> bool:
        """Return whether the topic has been missing for long enough, and a call still needs it."""
        return not self.told and now >= self.since + WARN_AFTER_S and self.asked >= now - WAITS


class MissingTopics:
    """Missing topics and partitions of one client."""

    def __init__(
        self,
        engine: Engine,
        metadata: Metadata,
        client_id: str,
        servers: Iterable[object],
        list_topics: Callable[[float], Flow[list[str]]],
    ) -> None:
        """Set `list_topics`, which asks any broker, and `servers`, the bootstrap servers."""
        self._engine = engine
        self._metadata = metadata
        self._client_id = client_id
        self._servers = servers
        self._list_topics = list_topics
        self._noted = Signal()
        self.topics: dict[str, Missing] = {}
        self.partitions: dict[TopicPartition, Missing] = {}
        """Missing partitions of existing topics."""

    def note(self, partition: TopicPartition) -> None:
        """Note that a call waits for a partition that its topic may lack."""
        count, now = self._count(partition.topic), self._engine.now
        if count is None or partition.partition < count:
            return
        if partition in self.partitions:
            self.partitions[partition].asked = now
        else:
            self.partitions[partition] = Missing(now, now)
            self._noted.notify()

    def near(self, topic: str) -> str:
        """Return similar names as a text to append to a sentence; empty if there are none."""
        found = self.topics.get(topic)
        return "" if found is None else did_you_mean(found.near)

    def run(self) -> Flow[None]:
        """Check for missing topics as long as the client lives."""
        now = yield START
        waits = (self._metadata.changed, self._noted)
        while True:
            self._look(now)
            self._tell_partitions(now)
            due = [name for name, missing in self.topics.items() if missing.due(now)]
            if due:
                now = yield from self._tell_topics(due)
                continue
            everything = (*self.topics.values(), *self.partitions.values())
            ahead = [m.since + WARN_AFTER_S for m in everything if m.since + WARN_AFTER_S > now]
            now = yield Wait(waits, min(ahead, default=None))

    def _look(self, now: float) -> None:
        metadata = self._metadata
        missing = {
            name
            for name, code in metadata.topic_errors.items()
            if code in UNKNOWN_TOPIC and name in metadata.topics
        }
        held = {name for names in metadata.held_by for name in names()} if missing else ()
        for name in self.topics.keys() - missing:
            del self.topics[name]
        for name in missing:
            asked = now if name in held else metadata.topics[name]
            if asked < now - FORGET_AFTER:
                self.topics.pop(name, None)
            else:
                self.topics.setdefault(name, Missing(asked, asked)).asked = asked
        for partition, absent in list(self.partitions.items()):
            count = self._count(partition.topic)
            found = count is None or partition.partition < count
            if found or absent.asked < now - FORGET_AFTER:
                del self.partitions[partition]

    def _count(self, topic: str) -> int | None:
        snapshot = self._metadata.snapshot
        found = None if snapshot is None else snapshot.topic(topic)
        return None if found is None else len(found.partitions)

    def _tell_partitions(self, now: float) -> None:
        for partition, missing in self.partitions.items():
            if missing.due(now):
                missing.told = True
                logger.warning(
                    "[%s] topic %s still has no partition %d after %.0f s (its partitions are "
                    "0 to %d)",
                    *(self._client_id, partition.topic, partition.partition),
                    *(now - missing.since, (self._count(partition.topic) or 0) - 1),
                )

    def _tell_topics(self, names: Iterable[str]) -> Flow[float]:
        there: list[str] = []
        with suppress(KafkaError):  # without the list, the warning has no similar names
            there = yield from self._list_topics(self._engine.now + LIST_TIME)
        now = self._engine.now
        self._look(now)
        for name in names:
            missing = self.topics.get(name)
            if missing is None:
                continue
            if name in there:  # the topic was just created, and metadata will soon contain it
                missing.since = now
                continue
            missing.told = True
            missing.near = similar_names(name, there)
            logger.warning(
                "[%s] topic %s still doesn't exist after %.0f s%s. %s",
                *(self._client_id, name, now - missing.since, self.near(name)),
                cure(name, self._servers),
            )
        return now


def did_you_mean(near: Collection[str]) -> str:
    """Return a question with similar topic names, to append to a text; empty if there are none."""
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def similar_names(name: str, there: Iterable[str]) -> tuple[str, ...]:
    """Return existing topics that may be meant, ignoring case.

    Of many names only those are compared that begin or end in the same way: one typo changes one
    half, but two swapped letters in the middle aren't found.
    """
    try:
        from difflib import get_close_matches  # most clients don't need it
    except OSError:  # no free file descriptor
        return ()
    name = name.lower()
    by_lower = {one.lower(): one for one in there}
    compared: Iterable[str] = by_lower
    if len(by_lower) > COMPARED:
        half = len(name) // 2
        head, tail = name[: max(0, half - 1)], name[half + 1 :]
        halves = (one for one in by_lower if one.startswith(head) or one.endswith(tail))
        lengths = sorted(halves, key=lambda one: abs(len(one) - len(name)))
        compared = lengths[:COMPARED]
    close = get_close_matches(name, compared, n=ALIKE)
    return tuple(by_lower[one] for one in close)
