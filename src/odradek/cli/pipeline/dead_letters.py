"""Count the records in the dead-letter topics of a pipeline's sources.

In: a checked `Pipeline`. Out: the number of records added to each topic since the run began. Spark
doesn't report such numbers from a Python source's tasks, so the topics' log ends are looked up:
records of other programs, and duplicates of retried tasks, are counted, too. Must not: read the
topics, or wait long for unavailable clusters: all clusters are requested concurrently, and without
a response the last numbers are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.cli.pipeline.planning import reader_config
from odradek.cli.pipeline.spec import OURS, Pipeline, Source
from odradek.common.errors import KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer
    from odradek.common.types import TopicPartition

PATIENCE = 1.0
"""Timeout of a request in seconds; the queries continue meanwhile."""


@dataclass(slots=True)
class _Topic:
    """A dead-letter topic of one cluster."""

    consumer: Consumer
    name: str
    began: Mapping[TopicPartition, int] | None = None
    """Log ends at the first successful lookup, from which on records count."""
    came: int = 0

    def look(self) -> None:
        """Look up the current log ends."""
        partitions = self.consumer.partitions_for(self.name, timeout=PATIENCE)
        ends = self.consumer.end_offsets(partitions, timeout=PATIENCE)
        if self.began is None:
            self.began = ends
        self.came = sum(end - self.began.get(tp, 0) for tp, end in ends.items())


@dataclass(slots=True)
class DeadLetterTopics:
    """The dead-letter topics of each sink of one run, with their numbers of new records."""

    _of: dict[str, list[_Topic]] = field(default_factory=dict)
    _topics: dict[tuple[str, str], _Topic] = field(default_factory=dict)
    _consumers: dict[str, Consumer] = field(default_factory=dict)

    @classmethod
    def met(cls, pipeline: Pipeline) -> DeadLetterTopics:
        """Create an instance for a pipeline's dead-letter topics, and look up their log ends."""
        found = cls()
        for sink in pipeline.sinks.values():
            sources = [pipeline.sources.get(name) for name in sorted(pipeline.behind(sink))]
            found._of[sink.name] = [
                found._topic(one) for one in sources if one is not None and _named(one)
            ]
        found.look(list(found._of))
        return found

    def _topic(self, source: Source) -> _Topic:
        assert source.cluster is not None  # noqa: S101 (for the type checker)
        cluster, name = source.cluster.name, str(_named(source))
        if cluster not in self._consumers:
            from odradek.api.consumer import Consumer

            config: dict[str, Any] = {"isolation.level": "read_uncommitted"}
            self._consumers[cluster] = Consumer({**reader_config(source), **config})
        topic = _Topic(self._consumers[cluster], name)
        return self._topics.setdefault((cluster, name), topic)

    def look(self, flows: list[str]) -> None:
        """Look up the topics of these flows, in all clusters concurrently.

        The numbers of topics without a response don't change.
        """
        wanted = {id(one): one for flow in flows for one in self._of.get(flow, ())}.values()
        clusters: dict[int, list[_Topic]] = {}
        for topic in wanted:
            clusters.setdefault(id(topic.consumer), []).append(topic)
        if len(clusters) < 2:
            for topics in clusters.values():
                _look_at(topics)
            return
        with ThreadPoolExecutor(len(clusters), "odradek-dead-letters") as pool:
            list(pool.map(_look_at, clusters.values()))

    def of(self, flow: str) -> dict[str, int]:
        """Return the number of new dead letters by topic, for a sink's topics found so far."""
        found: dict[str, int] = {}
        for one in self._of.get(flow, ()):
            if one.began is not None:
                found[one.name] = found.get(one.name, 0) + one.came
        return found

    def close(self) -> None:
        """Close the clients."""
        for consumer in self._consumers.values():
            consumer.close()


def _look_at(topics: list[_Topic]) -> None:
    """Look up the topics of one cluster; the first timeout ends the lookup."""
    for topic in topics:
        try:
            topic.look()
        except KafkaTimeoutError:
            return
        except KafkaError:  # the other topics may be available
            continue


def _named(source: Source) -> Any:
    if source.format != OURS or source.cluster is None:
        return None
    return source.option("deadLetterTopic")


def number(letters: int) -> str:
    """Return a number of dead letters with its noun, such as "2 dead letters"."""
    return f"{letters:,} dead letter{'' if letters == 1 else 's'}"


def in_words(letters: Mapping[str, int]) -> str:
    """Return the end of a line about a flow; empty if there are no dead letters."""
    return "".join(f", {number(came)} in {topic}" for topic, came in letters.items() if came)
