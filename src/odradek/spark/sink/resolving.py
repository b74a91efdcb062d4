"""Finish a batch that its query can't repeat (`odradek pipeline resolve`).

In: the sink's options, the query's id, a choice of the user. Out: a `Resolution`: what each task of
the batch has written, and the new state of the batch. Must not: decide without the user's choice
that rows are lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count

from odradek.spark.sink.exactly_once import older
from odradek.spark.sink.ledger import (
    ACCEPTED,
    DECIDED,
    DROPPED,
    NO_TRANSACTION,
    NOTHING,
    WRITTEN,
    Decision,
    Marker,
    TaskEntry,
    totals,
)
from odradek.spark.sink.sink_clients import Make, Prepared
from odradek.spark.sink.sink_driver import SinkDriver, driver
from odradek.spark.sink.sink_options import SinkOptions
from odradek.spark.tasks.worker_clients import Clock

AT_ONCE = 64
"""Sink partitions whose markers are read by one call; a call without markers is the last."""


class Remedy(StrEnum):
    """The user's choice for a batch of which only a part is committed."""

    NONE = "none"
    ACCEPT_LOSS = "accept-loss"
    """The batch counts as complete; uncommitted rows are lost.

    The query may then repeat it with other rows, which are dropped.
    """
    REPEAT = "repeat"
    """The batch is written again as a whole; the rows that are committed exist twice."""


class BatchState(StrEnum):
    """The state of a batch after the command."""

    NOTHING = "nothing"
    """No row of the batch is committed: the query's next run writes the batch."""
    COMPLETE = "complete"
    """All rows are committed, by this command or before it."""
    PARTLY = "partly"
    """A part of the rows is committed, and the user has to choose."""
    ACCEPTED = "accepted"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class TaskPart:
    """The rows that one task has written in a batch."""

    partition: int
    transactional_id: str
    rows: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Resolution:
    """A batch, the rows of its tasks, and its new state."""

    query: str
    batch: int | None
    """Number of the batch; None if the sink has never written."""
    outcome: BatchState
    parts: tuple[TaskPart, ...] = ()

    def rows(self, *, committed: bool) -> int:
        """Return the number of committed rows, or of uncommitted ones."""
        return sum(part.rows for part in self.parts if part.committed is committed)


def resolve(
    options: SinkOptions,
    query: str,
    batch: int | None,
    choice: Remedy,
    *,
    make: Make,
    prepared: Prepared,
    clock: Clock,
) -> Resolution:
    """Commit a batch if all of its transactions can be committed; otherwise do what `choice` says.

    `batch` is the batch that the query's next run repeats; None for the sink's newest one. The
    query must not run at this time: its driver is fenced.
    """
    with driver(options, query, make=make, prepared=prepared, clock=clock) as at:
        found = at.ledger.newest()
        if found is None or found.state == NOTHING:
            sweeps = 0 if found is None else found.sweeps
            found = _of_markers(at, batch, sweeps)
        if found is None:
            return Resolution(query, batch, BatchState.NOTHING)
        if batch is not None and found.batch > batch:
            raise older(batch, found.batch)
        over = found.finished or found.state == DROPPED
        if batch is not None and found.batch < batch and over:
            return Resolution(query, batch, BatchState.NOTHING)
        if found.state == DROPPED:
            return Resolution(query, found.batch, BatchState.REPEATED)
        committed = at.ledger.complete(found, lambda _: None)
        parts = tuple(
            TaskPart(
                e.partition,
                e.transaction(at.ledger.base).transactional_id,
                e.rows,
                e.partition in committed,
            )
            for e in found.entries
        )
        outcome, state = _chosen(found, committed, choice)
        if state:
            at.store(replace(found, state=state, entries=()))
        return Resolution(query, found.batch, outcome, parts)


def _chosen(found: Decision, committed: set[int], choice: Remedy) -> tuple[BatchState, str]:
    """Return the batch's state, and the decision's state to store ("" if nothing changes)."""
    by_tasks = any(e.producer_id < 0 for e in found.entries)  # 0.2 didn't store the task count
    whole = found.finished or (len(committed) == len(found.entries) and not by_tasks)
    if not whole and not committed:
        return BatchState.NOTHING, ""
    if choice is Remedy.ACCEPT_LOSS:
        return BatchState.ACCEPTED, ACCEPTED
    if choice is Remedy.REPEAT:
        return BatchState.REPEATED, DROPPED
    if found.finished:
        return BatchState.ACCEPTED if found.state == ACCEPTED else BatchState.COMPLETE, ""
    return (BatchState.COMPLETE, WRITTEN) if whole else (BatchState.PARTLY, "")


def _of_markers(at: SinkDriver, batch: int | None, sweeps: int) -> Decision | None:
    """Return the rows that tasks of release 0.2, which wrote no ledger, committed of a batch."""
    markers: dict[int, Marker] = {}
    for begin in count(0, AT_ONCE):
        found = at.ledger.markers(range(begin, begin + AT_ONCE))
        markers |= {partition: marker for partition, (marker, _) in found.items()}
        if not found:
            break
    number = max((m.batch for m in markers.values()), default=None) if batch is None else batch
    entries = tuple(_entries(markers, number))
    if number is None or not entries:
        return None
    topic = at.ledger.topic_of(f"{at.ledger.base}{entries[0].partition}")
    rows, digest = totals(e.content for e in entries)
    of_all = at.ledger.writer, None, rows, digest
    return Decision(number, topic, DECIDED, entries, *of_all, sweeps=sweeps)


def _entries(markers: dict[int, Marker], batch: int | None) -> Iterable[TaskEntry]:
    for partition, marker in sorted(markers.items()):
        if marker.batch == batch and marker.rows:
            yield TaskEntry(partition, *NO_TRANSACTION, marker.rows, marker.digest or 0)
