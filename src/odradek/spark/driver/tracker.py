"""Track a query on the driver: its position, the ends of the log, and the next batch.

In: offsets that Spark journalled. Out: the next end, and the ranges between two offsets. Waits
during outages up to a tolerance, and detects a different cluster, recreated topics and lost
records. Must not: read records or know Spark's classes; `stream_source` and `source` wrap it. It
accesses the cluster through `cluster_client`, which creates a client at the first call.

One batch: `latest(start)` → [Spark journals] → `plan(start, end)` → tasks. All data of a batch that
can't be derived from the two offsets is in the second one (see `offsets`), so a replay of a
journalled batch reads exactly the same ranges. After its first look at the cluster, the driver
sends one request per leader in `latest`, and none in `plan` and `report`; topics are described
again after a while and after errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.missing_topics import did_you_mean, similar_names
from odradek.common.config import parse_address
from odradek.common.errors import ClusterIdMismatchError
from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import (
    DataLossError,
    MissingTopicError,
    OptionError,
    OutageError,
)
from odradek.spark.driver import batch_sizing, data_loss, planning
from odradek.spark.driver.bounds import OffsetSpec
from odradek.spark.driver.byte_rates import ByteRates
from odradek.spark.driver.cluster_client import Clients, ClusterClient, OutageContinuesError
from odradek.spark.driver.discovery import Discovery, UnconfirmedObservation
from odradek.spark.driver.log_view import LogView, OtherTopicError, PartitionEnds, is_from
from odradek.spark.driver.offsets import Positions, StreamOffset, parse_offset
from odradek.spark.driver.planning import KafkaOffsetRange, TopicsSnapshot
from odradek.spark.driver.splitting import split
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.worker_clients import Clock, Hint, topic_ids

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

RENEW_S = 0.5
"""Pause in seconds before a new client plans a batch again, as each client has to connect."""
HINT_PARTITIONS = 500
"""Largest number of partitions whose metadata tasks get; each task carries a copy of it."""

T = TypeVar("T")
Narrow = Callable[[list[KafkaOffsetRange]], list[KafkaOffsetRange]]
"""Function that applies a batch query's filters to its ranges."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Ranges of one batch, and metadata with which its tasks start without a metadata request."""

    ranges: list[KafkaOffsetRange]
    cluster: str
    topic_ids: Mapping[str, str]
    hint: Hint | None


class OffsetTracker:
    """Offsets and topics of one query on the driver; used by one thread."""

    def __init__(self, options: SourceOptions, clients: Clients, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._contact = ClusterClient(options, clients, clock, forget=lambda: self._logs.forget())
        self._discovery = Discovery(options, self._contact, clock, self._check_cluster)
        self._logs = LogView(options, self._contact, self._discovery, clock)
        self._rates = ByteRates(clients, clock)
        self._pacing = batch_sizing.Pacing(
            options.min_offsets_per_trigger, options.max_trigger_delay
        )
        self._freezing = False
        self._frozen: PartitionEnds | None = None
        self._initial: dict[TopicPartition, int] | None = None
        self._checked_missing = False
        self._warned_of_change = False
        self._idle: Mapping[str, Any] | None = None
        """Start offset for which there was nothing new in the last call."""
        self._parsed: tuple[Mapping[str, Any], StreamOffset] | None = None
        """The last end offset, as JSON and parsed.

        Spark passes it as the next start, and parsing many partitions takes time.
        """

    # -- Spark's calls ------------------------------------------------------------------------

    def freeze(self) -> None:
        """Limit the run to the next known log ends (Trigger.AvailableNow); sends no request yet.

        The next request expects the checkpoint's cluster, which was reached before. It therefore
        waits through an outage for as long as a running query does.
        """
        self._freezing = True

    def latest(self, start_json: Mapping[str, Any], *, everything: bool = False) -> dict[str, Any]:
        """Return the end of the next batch, or `start_json` itself if there are no new records.

        `everything` is for Trigger.Once: no limit applies. With this trigger and AvailableNow,
        Spark takes "no new records" for the end of the query, so the call waits until an outage is
        over. With all others it returns `start_json` after some seconds, and Spark calls again.
        """
        self._logs.known = start = self._parse(start_json)
        if start is not None:
            self._meet(start.cluster)
        # Before the first offset is journalled only the sentinel can be returned, and Trigger.Once
        # would take that for the end.
        patient = everything or self._freezing or start is None
        until = None if patient else self._contact.deadline()

        def found_end() -> StreamOffset | None:
            view, losses = self._confirmed_view(start, start_json, until)
            return self._end(start, view, losses, everything, until)

        try:
            end = self._of_same_topics(found_end, until)
        except OutageContinuesError:
            return dict(start_json)
        if end is None:
            self._idle = start_json
            return dict(start_json)
        self._idle, found = None, end.to_json()
        self._parsed = found, end
        return found

    def report(self) -> dict[str, Any] | None:
        """Return the newest known log ends, for the query's progress; sends no request."""
        view = self._frozen or self._logs.last
        if view is None:
            return None
        return StreamOffset(view.ends, view.topics.cluster, view.topics.topic_ids).to_json()

    def plan(self, start_json: Mapping[str, Any], end_json: Mapping[str, Any]) -> BatchPlan:
        """Return the ranges between two checkpointed offsets; every replay gets the same ones."""
        end = self._parse(end_json)
        if end is None:
            raise DataLossError(
                ["Spark requested a batch whose end was never resolved"],
                advice="",
            )
        self._meet(end.cluster)
        self._logs.known = end
        start = self._parse(start_json)
        return self._of_same_topics(lambda: self._planned(start, end), None)

    def _planned(self, start: StreamOffset | None, end: StreamOffset) -> BatchPlan:
        begins = planning.batch_begins(start, end)
        found = planning.ranges(begins, end.positions, end.epochs)
        topics, losses = self._confirmed_losses(end, found)
        if start is not None:
            begins |= self._begins_between(start, end, topics, losses)
            found = planning.ranges(begins, end.positions, end.epochs)
        if not is_from(end, topics):
            found = [replace(r, epoch=-1) for r in found]  # these are another cluster's epochs
        # A loss is final here: Spark has journalled the batch, with offsets of a deleted topic.
        self._lose(losses.sentences())
        gone = set(losses.gone)
        found = [r for r in found if r.tp not in gone and r.tp.topic not in losses.recreated]
        return self._plan(found, topics)

    def plan_batch(self, narrow: Narrow | None = None) -> BatchPlan:
        """Resolve the starting and ending options of a batch query to ranges.

        Just after a topic was deleted and recreated, one broker may still return the old topic id.
        If the description and the client's metadata name different ids, plan again with a new
        client until they agree, or until the difference has lasted for a while.
        """
        doubt = UnconfirmedObservation(self._options, self._clock)
        while True:
            plan = self._of_same_topics(lambda: self._resolved_batch(narrow), None)
            known = topic_ids(self._contact.client().bootstrap_hint() or {})
            planned = {r.tp.topic for r in plan.ranges}
            if not any(_differs(t, plan.topic_ids, known) for t in planned) or doubt.settled():
                return plan
            self._logs.forget()
            self._contact.close()
            self._clock.pause(RENEW_S)

    def _resolved_batch(self, narrow: Narrow | None) -> BatchPlan:
        doubt = UnconfirmedObservation(self._options, self._clock)
        while True:
            topics = self._discovery.topics(None)
            self._refuse_missing(topics.missing, topics)
            beginnings = cache(partial(self._logs.beginnings, topics.partitions, topics, None))
            ends = cache(lambda: self._logs.look(None).ends)
            start, outside = self._resolve(self._options.starting, topics, beginnings, ends)
            until, beyond = self._resolve(self._options.ending, topics, beginnings, ends)
            if self._logs.is_believed({*outside, *beyond}, doubt, topics, None):
                break
        self._lose([*outside.values(), *beyond.values()])
        for tp in topics.partitions:
            if start[tp] > until[tp]:
                raise OptionError(
                    f"{tp}: option {self._options.starting.option} starts at offset {start[tp]}, "
                    f"after offset {until[tp]}, where option {self._options.ending.option} ends"
                )
        looked = self._logs.last
        epochs = looked.epochs if looked is not None else {}
        found = planning.ranges(start, until, epochs)
        return self._plan(found if narrow is None else narrow(found), topics)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Return each partition's first offset at or after a time in ms; None if there is none."""
        if not times:
            return {}

        def ask(client: Consumer, timeout: float) -> dict[TopicPartition, int | None]:
            found = client.offsets_for_times(times, timeout=timeout)
            return {tp: None if at is None else at.offset for tp, at in found.items()}

        topics = self._discovery.topics(None)
        return self._logs.ask("looking up offsets by time", ask, topics, None)

    def expect(self, cluster: str) -> None:
        """Accept only the cluster with this id, as if a checkpoint named it."""
        self._meet(cluster)

    def stop(self) -> None:
        """Close the clients; Spark usually ends the process without this call."""
        self._contact.close()
        self._rates.close()

    # -- the next end ---------------------------------------------------------------------

    def _end(
        self,
        start: StreamOffset | None,
        view: PartitionEnds,
        losses: data_loss.Losses,
        everything: bool,
        until: float | None,
    ) -> StreamOffset | None:
        """Return the end of the batch; None without new records, or if it waits for more."""
        self._look_for_missing(start, view.topics)
        if start is None:
            joined = begins = self._first_begins(view)
            self._pacing.let_go(self._clock.now())
        else:
            self._lose(losses.sentences())
            self._rates.forget(losses.recreated)
            joined = self._joined(start, view.topics, losses, until)
            begins = {**start.positions, **joined}
        begins = {tp: min(begins[tp], end) for tp, end in view.ends.items()}
        joined = {tp: begins[tp] for tp in joined}
        ends = view.ends
        if not everything:
            # Don't withhold records in a run that ends with "nothing new": it would skip them.
            paced = start is not None and not self._freezing and not losses
            if paced and self._pacing.holds_back(begins, ends, self._clock.now()):
                return None
            ends = self._limited(begins, view)
        if start is not None and not joined and ends == start.positions:
            return None
        epochs = dict(view.epochs)
        if start is not None and is_from(start, view.topics):  # other clusters have other epochs
            epochs |= {
                tp: epoch
                for tp, epoch in start.epochs.items()
                if tp in ends and tp not in joined and ends[tp] == start.positions[tp]
            }
        epochs = {tp: epoch for tp, epoch in epochs.items() if epoch >= 0}
        return StreamOffset(ends, view.topics.cluster, view.topics.topic_ids, joined, epochs)

    def _limited(self, begins: Positions, view: PartitionEnds) -> Positions:
        """Return the end of the batch by maxOffsetsPerTrigger and maxBytesPerTrigger."""
        found = view.ends
        if self._options.max_offsets_per_trigger is not None:
            found = batch_sizing.proportional_ends(
                self._options.max_offsets_per_trigger, begins, view.ends
            )
        if self._options.max_bytes_per_trigger is not None:
            config = self._options.sample_config(view.topics.cluster)
            weighed = self._rates.weigh(config, begins, view.ends)
            light = batch_sizing.ends_for_bytes(
                self._options.max_bytes_per_trigger, weighed.starts, view.ends, weighed.sizes
            )
            found = {tp: min(end, light[tp]) for tp, end in found.items()}
        return found

    def _joined(
        self,
        start: StreamOffset,
        topics: TopicsSnapshot,
        losses: data_loss.Losses,
        until: float | None,
    ) -> dict[TopicPartition, int]:
        """Return start offsets of new partitions, recreated topics and truncated logs."""
        wanted = [
            tp
            for tp in topics.partitions
            if tp not in start.positions or tp.topic in losses.recreated or tp in losses.older
        ]
        found = self._logs.beginnings(wanted, topics, until)
        self._lose(
            data_loss.headless(found, [*losses.recreated, *(tp.topic for tp in losses.older)])
        )
        return found | {tp: begin for tp, (_, begin) in losses.cut.items()}

    def _first_begins(self, view: PartitionEnds) -> dict[TopicPartition, int]:
        """Return the resolved startingOffsets; partitions added since start at their beginning."""
        initial = self._initial or {}
        joined = [tp for tp in view.topics.partitions if tp not in initial]
        self._initial = initial | self._logs.beginnings(joined, view.topics, None)
        return {tp: self._initial[tp] for tp in view.topics.partitions}

    def _is_resolved(self, view: PartitionEnds, doubt: UnconfirmedObservation) -> bool:
        """Resolve startingOffsets once; return False while a named offset may not exist."""
        if self._initial is None:
            beginnings = cache(
                lambda: self._logs.beginnings(view.topics.partitions, view.topics, None)
            )
            found, outside = self._resolve(
                self._options.starting, view.topics, beginnings, lambda: view.ends
            )
            if not self._logs.is_believed(outside, doubt, view.topics, None):
                return False
            self._lose(list(outside.values()))
            self._initial = found
        return True

    # -- looking at the cluster -----------------------------------------------------------

    def _confirmed_view(
        self, start: StreamOffset | None, start_json: Mapping[str, Any], until: float | None
    ) -> tuple[PartitionEnds, data_loss.Losses]:
        """Return the state of the logs; check again for a while before a loss is accepted."""
        if self._freezing and self._frozen is None:
            self._frozen = self._logs.look(None)
        doubt = UnconfirmedObservation(self._options, self._clock)
        while True:
            view = self._frozen or self._logs.recent(until, idle=self._idle == start_json)
            if start is None:
                if self._is_resolved(view, doubt):
                    return view, data_loss.NOTHING_LOST
                if self._frozen is not None:
                    self._frozen = self._logs.look(until)
                continue
            diverged = self._logs.diverged(start, view, until)
            losses = data_loss.find_losses(
                *(start, view.topics, view.ends, self._options.asks_for), diverged, view.epochs
            )
            among = losses.doubtful_among(start.positions)
            if not losses.doubtful or self._logs.is_believed(among, doubt, view.topics, until):
                return view, losses
            if self._frozen is not None:
                self._frozen = self._logs.look(until)

    def _confirmed_losses(
        self, end: StreamOffset, found: list[KafkaOffsetRange]
    ) -> tuple[TopicsSnapshot, data_loss.Losses]:
        """Return the lost ranges of a journalled batch, after several checks over some time."""
        doubt = UnconfirmedObservation(self._options, self._clock)
        planned = replace(end, positions={r.tp: r.until for r in found})
        while True:
            topics = self._discovery.last or self._discovery.topics(None)
            losses = data_loss.find_losses(planned, topics, {}, self._options.asks_for)
            among = losses.doubtful_among(end.positions)
            if not losses or self._logs.is_believed(among, doubt, topics, None):
                return topics, losses

    def _begins_between(
        self,
        start: StreamOffset,
        end: StreamOffset,
        topics: TopicsSnapshot,
        losses: data_loss.Losses,
    ) -> dict[TopicPartition, int]:
        """Return where reading restarts in topics and logs that changed between `start` and `end`.

        With asynchronous progress tracking Spark doesn't journal every offset, so the `from` that
        would show recreated topics and truncated logs may be lost.
        """
        if losses or not (is_from(start, topics) and is_from(end, topics)):
            return {}
        there = {tp for tp in topics.partitions if tp in end.positions and tp not in end.begins}
        changed = data_loss.find_losses(
            start, topics, {}, self._options.asks_for, epochs=end.epochs
        )
        names = {tp.topic for tp in there}
        anew = {topic: ids for topic, ids in changed.recreated.items() if topic in names}
        older = {tp: epochs for tp, epochs in changed.older.items() if tp in there}
        cut: dict[TopicPartition, int] = {}
        moved = {
            tp: epoch
            for tp, epoch in start.epochs.items()
            if tp in there and tp.topic not in anew and epoch < end.epochs.get(tp, -1)
        }
        if moved:
            view = self._logs.last or self._logs.look(None)
            cut = self._logs.diverged(replace(start, epochs=moved), view, None)
        shortened = {tp: (start.positions[tp], at) for tp, at in cut.items()}
        lost = data_loss.Losses(anew, (), {}, cut=shortened, older=older)
        self._lose(lost.sentences())
        return self._joined(start, replace(topics, partitions=tuple(there)), lost, None)

    def _resolve(
        self, spec: OffsetSpec, topics: TopicsSnapshot, beginnings: planning.Ask, ends: planning.Ask
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return the offsets of an option, and a sentence for each offset that isn't in its log."""
        spec = spec.over(topics.partitions)
        planning.check_names_all(spec, topics.partitions)
        if spec.time is not None or spec.times:
            times = spec.times or dict.fromkeys(topics.partitions, spec.time or 0)
            at_times = self.offsets_for_times(times)
            return planning.resolve_times(spec, topics.partitions, at_times, ends), {}
        return planning.resolve(spec, topics.partitions, beginnings, ends)

    def _plan(self, found: list[KafkaOffsetRange], topics: TopicsSnapshot) -> BatchPlan:
        """Divide ranges for tasks, and add the client's metadata for them."""
        options = self._options
        found = split(found, options.min_partitions, options.max_records_per_partition)
        needed = {r.tp.topic for r in found}
        hint = self._contact.client().bootstrap_hint() or {}
        if not needed <= set(hint.get("topics", ())):
            self._logs.look(None)  # after a restart, the client doesn't know the leaders yet
            hint = self._contact.client().bootstrap_hint() or {}
        return BatchPlan(found, topics.cluster, topics.topic_ids, _narrowed(hint, needed, topics))

    def _of_same_topics(self, look: Callable[[], T], until: float | None) -> T:
        """Call `look` until brokers agree about topic ids.

        Raise `OutageContinuesError` at `until`.
        """
        begun = self._clock.now()
        while True:
            try:
                return look()
            except OtherTopicError as error:
                now = self._clock.now()
                if until is not None and now >= until:
                    raise OutageContinuesError from error
                if now - begun >= self._options.outage_tolerance:
                    raise OutageError(f"{error}, for {now - begun:.0f} s") from error
                self._frozen = None
                self._logs.start_over()

    # -- the cluster, and lost records -------------------------------------------------------

    def _parse(self, document: Mapping[str, Any]) -> StreamOffset | None:
        if self._parsed is not None and self._parsed[0] == document:
            return self._parsed[1]
        return parse_offset(document)

    def _meet(self, cluster: str | None) -> None:
        """Expect the cluster whose id a checkpoint contains; raise if another one was reached."""
        if cluster is None:
            return
        self._contact.known = True
        if self._options.allow_cluster_change:
            return
        if self._contact.expected is None:
            self._contact.expected = cluster
            met = self._discovery.last
            if met is None:
                # The client may have been created without the expected cluster, so it would accept
                # any cluster.
                self._contact.close()
                return
            self._check_cluster(met.cluster)
        elif self._contact.expected != cluster:
            raise self._mismatch(cluster)

    def _check_cluster(self, found: str) -> None:
        if self._contact.expected is not None and found != self._contact.expected:
            raise self._mismatch(found)

    def _mismatch(self, found: str) -> ClusterIdMismatchError:
        expected = self._contact.expected or ""
        first = self._options.kafka["bootstrap.servers"].split(",")[0].strip()
        return ClusterIdMismatchError(
            expected, found, parse_address("kafka.bootstrap.servers", first)
        )

    def _look_for_missing(self, start: StreamOffset | None, topics: TopicsSnapshot) -> None:
        """Raise for topics that don't exist when a run begins; later they count as losses."""
        if start is not None and not self._warned_of_change:
            self._warned_of_change = True
            if start.cluster not in (None, topics.cluster):
                logger.warning(
                    "the checkpoint belongs to cluster %s, but cluster %s answers: continuing "
                    "with the same offsets because allowClusterChange is true",
                    start.cluster,
                    topics.cluster,
                )
        if self._checked_missing:
            return
        had = {str(tp) for tp in start.positions} if start is not None else set()
        had |= {tp.topic for tp in start.positions} if start is not None else set()
        self._refuse_missing([name for name in topics.missing if name not in had], topics)
        self._checked_missing = True

    def _refuse_missing(self, missing: Iterable[str], topics: TopicsSnapshot) -> None:
        names = list(missing)
        if names:
            option = "subscribe" if self._options.assigned is None else "assign"
            raise MissingTopicError(
                f"cluster {topics.cluster} doesn't have {', '.join(names)} "
                f"(UNKNOWN_TOPIC_OR_PARTITION): check option {option} and kafka.bootstrap.servers"
                f"{did_you_mean(self._similar(names))}"
            )

    def _similar(self, names: Iterable[str]) -> Collection[str]:
        """Return topics of the cluster with similar names; a missing partition has none."""
        there = self._contact.ask(
            "listing topics", lambda client, timeout: client.list_topics(timeout=timeout), None
        )
        topics = [name for name in names if name in self._options.topics]
        return dict.fromkeys(one for name in topics for one in similar_names(name, there))

    def _lose(self, sentences: list[str]) -> None:
        if sentences and self._options.fail_on_data_loss:
            raise DataLossError(sentences)
        for sentence in sentences:
            logger.warning("%s; continuing because failOnDataLoss is false", sentence)


def _differs(topic: str, planned: Mapping[str, str], known: Mapping[str, str]) -> bool:
    """Return whether a topic's planned and known ids are both set, and differ."""
    return planned.get(topic, known.get(topic)) != known.get(topic, planned.get(topic))


def _narrowed(hint: Hint, needed: Collection[str], topics: TopicsSnapshot) -> Hint | None:
    """Reduce metadata to what a batch's tasks need, as each task carries it.

    Metadata of another topic id than the planned one is left out: a task would refuse it.
    """
    if not hint:
        return None
    known = topic_ids(hint)
    kept = {
        name: topic
        for name, topic in hint["topics"].items()
        if name in needed and not _differs(name, topics.topic_ids, known)
    }
    if sum(len(known["partitions"]) for known in kept.values()) > HINT_PARTITIONS:
        kept = {}  # then the first task of each worker requests the metadata
    return {**hint, "topics": kept}
