"""Plan again when a later query reuses a cached plan: each task plans its own share.

Spark asks a loaded frame for its partitions once and keeps them, for every query over a variable, a
view or the static side of a join. The JVM connector plans each query. In: a partition as it was
planned, and the id of the running query. Out: the ranges that its task reads.

All tasks of a query must decide alike, and they can't communicate. All of them know the query's id,
which contains the millisecond in which the query was created (UUID version 7). If the query was
created after the plan, the plan was made for an earlier one: its tasks plan again. Any other query
reads what was planned, so the first run of a frame has the same result in all tasks and attempts. A
micro-batch may have the id of its stream, without a time: its tasks plan again for each batch.

A task's share of a later plan follows from the first one: a partition's first range begins at the
current beginning of the log, its last range ends where the options say now, and one task reads the
partitions without a planned range (partitions that were empty, new partitions, new topics). So no
record is read twice or left out. Must not: be used for streams, whose offsets are journalled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import MissingTopicError
from odradek.spark.driver.bounds import OffsetSpec
from odradek.spark.driver.cluster_client import Clients
from odradek.spark.driver.offsets import LATEST
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.tracker import BatchPlan, OffsetTracker
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

QUERY_ID = "spark.sql.execution.query.id"
"""Property that Spark sets for all tasks of a query, except for those run through `.rdd`."""
BATCH_ID = "streaming.sql.batchId"
"""Property of all tasks of a micro-batch."""
TIMED = 7
"""Version of UUIDs that begin with a time in ms."""
LATE_MS = 60_000
"""Minimum age of a plan for which a task checks whether the log has grown, to log a warning."""
LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions that a task reads when Spark runs the same plan again."""

    planned_at: int
    """Milliseconds since 1970, by the clock of the driver's machine, as in the query's id."""
    first: bool = True
    last: bool = True
    planned: frozenset[TopicPartition] | None = None
    """All partitions that have a planned range; only set for the task that reads all others."""


def shares(ranges: Sequence[KafkaOffsetRange], planned_at: int) -> list[Share]:
    """Return a share for each range; without ranges, one share that reads new partitions."""
    tps = [r.tp for r in ranges]
    if not tps:
        return [Share(planned_at, planned=frozenset())]
    return [
        Share(
            planned_at,
            first=at == 0 or tps[at - 1] != tp,
            last=at + 1 == len(tps) or tps[at + 1] != tp,
            planned=frozenset(tps) if at == 0 else None,
        )
        for at, tp in enumerate(tps)
    ]


def made_at(query_id: str | None) -> int | None:
    """Return the time in ms at which a query was created; None if its id doesn't contain one."""
    try:
        known = UUID(query_id or "")
    except ValueError:
        return None
    return known.int >> 80 if known.version == TIMED else None


def is_later(share: Share, query_id: str | None, batch_id: str | None) -> bool:
    """Return whether the running query was created after the plan, or is a batch of a stream."""
    made = made_at(query_id)
    if made is None:
        return batch_id is not None
    return made > share.planned_at


def plan_anew(
    options: SourceOptions,
    wanted: KafkaOffsetRange | None,
    share: Share,
    cluster: str,
    clients: Clients,
    clock: Clock,
) -> BatchPlan:
    """Plan again as a planner does, and return this task's share of the plan.

    Raises the errors of planning: `OptionError`, `DataLossError`, `MissingTopicError`,
    `OutageError`.
    """
    options = replace(options, min_partitions=None, max_records_per_partition=None)
    if share.planned is None and wanted is not None:
        options = _only(options, wanted.tp)
    tracker = OffsetTracker(options, clients, clock)
    tracker.expect(cluster)
    try:
        plan = tracker.plan_batch()
    except MissingTopicError:
        if share.planned is not None:
            raise  # this task plans the whole query, so a topic of the query is missing
        return BatchPlan([], cluster, {}, None)
    kept = [part for r in plan.ranges for part in _share_of(r, wanted, share)]
    return replace(plan, ranges=kept)


def _share_of(
    found: KafkaOffsetRange, wanted: KafkaOffsetRange | None, share: Share
) -> list[KafkaOffsetRange]:
    if wanted is None or found.tp != wanted.tp:
        return [] if found.tp in (share.planned or ()) else [found]
    start = found.start if share.first else max(found.start, wanted.start)
    until = found.until if share.last else min(found.until, wanted.until)
    return [replace(found, start=start, until=until)] if start < until else []


def _only(options: SourceOptions, tp: TopicPartition) -> SourceOptions:
    """Return the options of the same query over one partition only."""
    return replace(
        options,
        topics=(tp.topic,),
        assigned=(tp,),
        pattern=None,
        starting=_part_of(options.starting, tp),
        ending=_part_of(options.ending, tp),
    )


def _part_of(spec: OffsetSpec, tp: TopicPartition) -> OffsetSpec:
    return replace(
        spec,
        offsets={named: at for named, at in spec.offsets.items() if named == tp},
        topics={topic: bound for topic, bound in spec.topics.items() if topic == tp.topic},
        times={named: at for named, at in spec.times.items() if named == tp},
    )


class OldPlans:
    """Warns, once per plan, if a task reads an old plan and the log has grown since.

    A query that was created before the plan and runs later (`collect()` after `count()`) reads what
    was planned. Its tasks can't be distinguished from those of a first run that takes long.
    """

    def __init__(self) -> None:
        self._told: set[int] = set()

    def look(
        self,
        options: SourceOptions,
        wanted: KafkaOffsetRange,
        share: Share,
        consumer: Consumer,
        date_ms: int,
    ) -> None:
        """Warn if an old plan's range ends at the former log end, and the log has grown since."""
        age = date_ms - share.planned_at
        latest = LATEST in (options.ending.bound, options.ending.offsets.get(wanted.tp))
        if age < LATE_MS or not share.last or not latest or share.planned_at in self._told:
            return
        try:
            end = consumer.end_offsets([wanted.tp], timeout=LOOK_S)[wanted.tp]
        except KafkaError:
            return  # the task reads its range without this check
        if end > wanted.until:
            self._told.add(share.planned_at)
            logger.warning(
                "%s is read up to offset %d, the end of the log when the query was planned %d s "
                "ago; the log now ends at %d. If this frame was read before (count(), then "
                "collect() or .rdd), load it again or start a new query: "
                "frame.select('*').collect()",
                wanted.tp,
                wanted.until,
                age // 1000,
                end,
            )
