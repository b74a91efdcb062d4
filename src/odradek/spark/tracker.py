"""The driver's side of a query: where it stands, where the cluster ends, and what to read next.

In: offsets that Spark journalled. Out: the next end, and the ranges between two offsets. Waits
through outages up to a tolerance, notices another cluster, a topic made anew and lost records.
Must not read records or know Spark's classes; `stream_source` and `source` wrap it. Knows the
cluster through a client that is made on the first question, never before.

One batch: `latest(start)` → [Spark journals] → `plan(start, end)` → tasks. All of a batch that
can't be derived from the two offsets stands in the second one (see `offsets`), so a replay of a
journalled batch reads exactly the same ranges.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from odradek.common.config import parse_address
from odradek.common.errors import ClusterIdMismatchError, KafkaError
from odradek.common.kafka_errors import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.spark import planning
from odradek.spark.offsets import Positions, StreamOffset, parse_offset
from odradek.spark.options import OffsetSpec, SourceOptions
from odradek.spark.planning import OffsetRange, TopicsSnapshot
from odradek.spark.problems import DataLossError, MissingTopicError, OutageError
from odradek.spark.worker_clients import Clock, ClusterConsumer, DescribedTopic, Hint

logger = logging.getLogger("odradek.spark")

T = TypeVar("T")

ATTEMPT_S = 10.0
"""Deadline of one call to the client; an outage is a row of such calls."""
FIRST_CONTACT_S = 25.0
"""Before the cluster has ever answered: a wrong address must fail soon, an outage is unlikely."""
SHORT_PATIENCE_S = 10.0
"""How long `latest` waits in an outage before it says "nothing new", so a query can be stopped."""
PAUSE_S = 0.5
LOG_EVERY_S = 30.0
MEMORY_S = 0.1
"""How long an answer about ends is used: Spark asks about 50 times a second when idle."""
DISCOVERY_S = 30.0
"""How long a description of topics is used; errors make it stale at once."""
HINT_PARTITIONS = 500
"""Above so many partitions tasks get the brokers only (the size grows with the square)."""
CONFIRM_S = 10.0
"""A loss must be seen for so long: just after an election or a restart brokers say odd things."""


class Clients(Protocol):
    """Where the tracker gets its client; `drop` when it failed for good."""

    def connect(self, config: Mapping[str, Any]) -> ClusterConsumer: ...
    def drop(self, client: ClusterConsumer) -> None: ...


class StillOutError(Exception):
    """The outage goes on and the caller's patience (not the query's) is over."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of one batch and what its tasks need to start without asking for metadata."""

    ranges: list[OffsetRange]
    cluster: str
    topic_ids: Mapping[str, str]
    hint: Hint | None


@dataclass(frozen=True, slots=True)
class View:
    """One look at the cluster: which partitions there are and where they end."""

    topics: TopicsSnapshot
    ends: Positions


class OffsetTracker:
    """Everything that a query's driver knows about its topics; used by one thread."""

    def __init__(self, options: SourceOptions, clients: Clients, clock: Clock) -> None:
        self._options, self._clients, self._clock = options, clients, clock
        self._client: ClusterConsumer | None = None
        self._expected: str | None = None
        self._contacted = False
        self._outage_since: float | None = None
        self._logged_at = 0.0
        self._topics: TopicsSnapshot | None = None
        self._topics_at = 0.0
        self._absent: frozenset[str] = frozenset()
        self._ends: Positions | None = None
        self._ends_at = 0.0
        self._frozen: View | None = None
        self._initial: dict[TopicPartition, int] | None = None

    # -- what Spark asks ------------------------------------------------------------------

    def freeze(self) -> None:
        """Fix the partitions and their ends for Trigger.AvailableNow; waits out an outage."""
        self._frozen = self._look(None)

    def latest(
        self, start_json: Mapping[str, Any], limit: int | None, *, patient: bool
    ) -> dict[str, Any]:
        """Give the end of the next batch, or `start_json` itself when there is nothing new.

        `patient` is for callers to whom "nothing new" means the end of the query: they wait out
        an outage. All others get `start_json` back after some seconds and ask again.
        """
        start = parse_offset(start_json)
        if start is not None:
            self._meet(start.cluster)
        # Before the first offset is journalled there is nothing to return but the sentinel, and
        # Trigger.Once would take that for the end.
        patience = None if patient or start is None else SHORT_PATIENCE_S
        try:
            return self._latest(start, start_json, limit, patience)
        except StillOutError:
            return dict(start_json)

    def report(self) -> dict[str, Any] | None:
        """Give the newest ends that are known, for the query's progress; asks nobody."""
        view = self._frozen
        if view is None and self._topics is not None and self._ends is not None:
            view = View(self._topics, self._ends)
        if view is None:
            return None
        return StreamOffset(view.ends, view.topics.cluster, view.topics.topic_ids).to_json()

    def plan(self, start_json: Mapping[str, Any], end_json: Mapping[str, Any]) -> Plan:
        """Give the ranges between two journalled offsets; the same ones on every replay."""
        end = parse_offset(end_json)
        if end is None:
            raise DataLossError(["Spark asked for a batch that ends before it began"], advice="")
        self._meet(end.cluster)
        begins = planning.batch_begins(parse_offset(start_json), end)
        found = planning.ranges(begins, end.positions)
        topics = self._known_topics(None)
        anew = planning.recreated(end, topics.topic_ids)
        if anew:
            # Not to be repaired here: the journalled offsets belong to a topic that is no more.
            self._lose(planning.Losses(anew, (), {}).sentences())
            found = [r for r in found if r.tp.topic not in anew]
        there = set(topics.partitions)
        gone = tuple(r.tp for r in found if r.tp not in there)
        if gone:
            self._lose(planning.Losses({}, gone, {}).sentences())
            found = [r for r in found if r.tp in there]
        return self._with_hint(found, topics)

    def plan_batch(self) -> Plan:
        """Resolve startingOffsets and endingOffsets of a batch query to ranges."""
        topics = self._known_topics(None)
        self._refuse_missing(topics)
        begins = self._resolve(self._options.starting, topics, None)
        ends = self._resolve(self._options.ending, topics, None)
        for tp in topics.partitions:
            if begins[tp] > ends[tp]:
                self._lose(
                    [f"{tp}: starts at {begins[tp]}, which is behind its end {ends[tp]}"],
                )
                begins[tp] = ends[tp]
        return self._with_hint(planning.ranges(begins, ends), topics)

    def stop(self) -> None:
        """Close the client; Spark seldom calls this, its processes just end."""
        if self._client is not None:
            self._clients.drop(self._client)
            self._client = None

    # -- the next end ---------------------------------------------------------------------

    def _latest(
        self,
        start: StreamOffset | None,
        start_json: Mapping[str, Any],
        limit: int | None,
        patience: float | None,
    ) -> dict[str, Any]:
        view, losses = self._confirmed_view(start, patience)
        if start is None:
            self._refuse_missing(view.topics)
            begins = self._first_begins(view)
            new_begins = begins
        else:
            if losses:
                self._lose(losses.sentences())
            joined = [
                tp
                for tp in view.topics.partitions
                if tp not in start.positions or tp.topic in losses.recreated
            ]
            new_begins = self._beginnings(joined, patience)
            begins = {**start.positions, **new_begins}
        begins = {tp: min(begins[tp], end) for tp, end in view.ends.items()}
        new_begins = {tp: begins[tp] for tp in new_begins}
        ends = view.ends
        if limit is not None:
            ends = planning.proportional_ends(limit, begins, ends)
        end = StreamOffset(ends, view.topics.cluster, view.topics.topic_ids, new_begins)
        if start is not None and not new_begins and dict(ends) == dict(start.positions):
            return dict(start_json)
        return end.to_json()

    def _confirmed_view(
        self, start: StreamOffset | None, patience: float | None
    ) -> tuple[View, planning.Losses]:
        """Look at the cluster; look again for a while before a loss is believed."""
        doubted: float | None = None
        while True:
            view = self._frozen or self._fresh_view(start, patience)
            losses = planning.Losses({}, (), {})
            if start is not None:
                losses = planning.find_losses(start, view.topics, view.ends)
            now = self._clock.now()
            if not losses or self._frozen is not None:
                return view, losses
            if doubted is None:
                doubted = now
            elif now - doubted >= CONFIRM_S:
                return view, losses
            self._forget()
            self._clock.pause(PAUSE_S)

    def _fresh_view(self, start: StreamOffset | None, patience: float | None) -> View:
        """Answer from memory while it is young; an idle caller waits until it isn't."""
        age = self._clock.now() - self._ends_at
        if self._topics is not None and self._ends is not None and age < MEMORY_S:
            idle = start is not None and dict(self._ends) == dict(start.positions)
            if not idle:
                return View(self._topics, self._ends)
            self._clock.pause(MEMORY_S - age)
        return self._look(patience)

    def _look(self, patience: float | None) -> View:
        def ends(client: ClusterConsumer, timeout: float) -> View:
            topics = self._known_topics(patience)
            return View(topics, dict(client.end_offsets(topics.partitions, timeout=timeout)))

        view = self._call("asking where partitions end", ends, patience)
        self._ends, self._ends_at = view.ends, self._clock.now()
        return view

    def _first_begins(self, view: View) -> dict[TopicPartition, int]:
        """Resolve startingOffsets once; partitions that joined since start at their beginning."""
        if self._initial is None:
            self._initial = self._resolve(self._options.starting, view.topics, view.ends)
        joined = [tp for tp in view.topics.partitions if tp not in self._initial]
        self._initial.update(self._beginnings(joined, None))
        return {tp: self._initial[tp] for tp in view.topics.partitions}

    # -- asking the cluster ---------------------------------------------------------------

    def _resolve(
        self, spec: OffsetSpec, topics: TopicsSnapshot, ends: Positions | None
    ) -> dict[TopicPartition, int]:
        planning.check_names_all(spec, topics.partitions)
        wants_beginnings, wants_ends = planning.needs(spec)
        beginnings = self._beginnings(topics.partitions, None) if wants_beginnings else {}
        if wants_ends and ends is None:
            ends = self._look(None).ends
        found, outside = planning.resolve(spec, topics.partitions, beginnings, ends or {})
        if outside:
            self._lose(outside)
        return found

    def _beginnings(self, partitions: Any, patience: float | None) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        return self._call(
            "asking where partitions begin",
            lambda client, timeout: dict(client.beginning_offsets(partitions, timeout=timeout)),
            patience,
        )

    def _known_topics(self, patience: float | None) -> TopicsSnapshot:
        """Describe the topics, or remember; a topic that is missing is asked for again a while."""
        young = self._clock.now() - self._topics_at < DISCOVERY_S
        if self._topics is not None and young:
            return self._topics
        doubted: float | None = None
        while True:
            topics = self._call("describing topics", self._describe, patience)
            now = self._clock.now()
            if set(topics.missing) <= self._absent:
                break
            if doubted is None:
                doubted = now
            elif now - doubted >= CONFIRM_S:
                break
            self._clock.pause(PAUSE_S)
        self._absent = frozenset(topics.missing)
        self._topics, self._topics_at = topics, self._clock.now()
        return topics

    def _describe(self, client: ClusterConsumer, timeout: float) -> TopicsSnapshot:
        described = _describe_those_there(client, self._options.topics, timeout)
        cluster = client.cluster_id(timeout=timeout)
        self._check_cluster(cluster)
        there = {
            TopicPartition(topic, p.partition)
            for topic, d in described.items()
            for p in d.partitions
        }
        missing = [topic for topic in self._options.topics if topic not in described]
        wanted = there
        if self._options.assigned is not None:
            wanted = there & set(self._options.assigned)
            missing += [
                str(tp)
                for tp in self._options.assigned
                if tp not in there and tp.topic in described
            ]
        # Brokers before Kafka 2.8 have no ids: then a topic made anew can't be told.
        ids = {t: d.topic_id for t, d in sorted(described.items()) if d.topic_id is not None}
        return TopicsSnapshot(cluster, ids, tuple(sorted(wanted)), tuple(missing))

    def _with_hint(self, found: list[OffsetRange], topics: TopicsSnapshot) -> Plan:
        """Add the client's picture of the cluster, so that tasks needn't ask for one."""
        needed = {r.tp.topic for r in found}
        hint = self._connected().bootstrap_hint() or {}
        if not needed <= set(hint.get("topics", ())):
            self._look(None)  # a restarted driver: its client hasn't met the leaders yet
            hint = self._connected().bootstrap_hint() or {}
        return Plan(found, topics.cluster, topics.topic_ids, _narrowed(hint, needed))

    # -- the client and its outages -------------------------------------------------------

    def _meet(self, cluster: str | None) -> None:
        """Learn from a checkpoint which cluster it must be."""
        if cluster is None:
            return
        if self._expected is None:
            self._expected = cluster
            met = self._frozen.topics if self._frozen else self._topics
            if met is None:
                # The client may exist already without knowing; only one that knows refuses others.
                self.stop()
                return
            self._check_cluster(met.cluster)
        elif self._expected != cluster:
            raise self._mismatch(cluster)

    def _check_cluster(self, found: str) -> None:
        if self._expected is not None and found != self._expected:
            raise self._mismatch(found)

    def _mismatch(self, found: str) -> ClusterIdMismatchError:
        expected = self._expected or ""
        first = self._options.kafka["bootstrap.servers"].split(",")[0].strip()
        return ClusterIdMismatchError(
            expected, found, parse_address("kafka.bootstrap.servers", first)
        )

    def _connected(self) -> ClusterConsumer:
        if self._client is None:
            self._client = self._clients.connect(self._options.consumer_config(self._expected))
        return self._client

    def _forget(self) -> None:
        """Ask afresh next time."""
        self._topics, self._ends = None, None

    def _call(
        self,
        what: str,
        function: Callable[[ClusterConsumer, float], T],
        patience: float | None,
    ) -> T:
        """Call the client again and again through an outage, as long as the query tolerates."""
        begun = self._clock.now()
        while True:
            # A checkpoint with a cluster id shows that the address was right before.
            known = self._contacted or self._expected is not None
            tolerance = self._options.outage_tolerance if known else FIRST_CONTACT_S
            since = begun if self._outage_since is None else self._outage_since
            left = max(1.0, since + tolerance - self._clock.now())
            try:
                result = function(self._connected(), min(ATTEMPT_S, left))
            except KafkaError as error:
                last = error
                self._after(error)
            else:
                self._contacted, self._outage_since = True, None
                return result
            now = self._clock.now()
            if self._outage_since is None:
                self._outage_since = self._logged_at = begun
            lasted = now - self._outage_since
            if lasted >= tolerance:
                raise OutageError(
                    f"{what}: no usable answer for {lasted:.0f} s "
                    f"({'outageTolerance' if known else 'before the first contact'}). "
                    f"Last error: {last}"
                ) from last
            if now - self._logged_at >= LOG_EVERY_S:
                self._logged_at = now
                logger.warning("%s: waiting since %.0f s. %s", what, lasted, last)
            if patience is not None and now - begun >= patience:
                raise StillOutError
            self._clock.pause(PAUSE_S)

    def _after(self, error: KafkaError) -> None:
        """Decide by the error's class whether the query can go on (R-RT-3)."""
        if error.fatal and self._client is not None:
            self._clients.drop(self._client)
            self._client = None
        if isinstance(error, OutageError) or error.fatal or not error.retriable:
            raise error
        self._forget()

    def _refuse_missing(self, topics: TopicsSnapshot) -> None:
        if topics.missing:
            raise MissingTopicError(
                f"cluster {topics.cluster} has no {', '.join(topics.missing)} "
                "(UNKNOWN_TOPIC_OR_PARTITION): look at the options subscribe or assign, and at "
                "kafka.bootstrap.servers"
            )

    def _lose(self, sentences: list[str]) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(sentences)
        for sentence in sentences:
            logger.warning("%s; going on because failOnDataLoss is false", sentence)


def _describe_those_there(
    client: ClusterConsumer, topics: Sequence[str], timeout: float
) -> dict[str, DescribedTopic]:
    """Describe topics; a call for several fails for one that is missing, so then one by one."""
    try:
        return dict(client.describe(topics, timeout=timeout))
    except UnknownTopicOrPartitionError:
        found: dict[str, DescribedTopic] = {}
        if len(topics) > 1:
            for topic in topics:
                found |= _describe_those_there(client, [topic], timeout)
        return found


def _narrowed(hint: Hint, topics: Collection[str]) -> Hint | None:
    """Keep what a batch's tasks need; each of them carries it, so it must stay small."""
    if not hint:
        return None
    kept = {name: known for name, known in hint["topics"].items() if name in topics}
    if sum(len(known["partitions"]) for known in kept.values()) > HINT_PARTITIONS:
        kept = {}  # a worker's first task asks once; better than a picture of all in each of them
    return {**hint, "topics": kept}
