"""Convert Spark's progress of a query to values: batches, and the lag of each partition.

In: the progress of a streaming query, as Spark reports it. Out: `Batch`es, each once. Must not:
show anything, or request more from Spark than it has collected anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.spark.driver.progress import lag, positions


@dataclass(frozen=True, slots=True)
class Batch:
    """Finished micro-batch, or with no rows a trigger that found no new data."""

    flow: str
    number: int
    rows: int
    """Number of rows that were read."""
    seconds: float
    lag: Mapping[str, int] = field(default_factory=dict)
    """Lag after this batch by partition (`topic-0`), if the source reports it."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Durations in seconds of the batch's stages, by Spark's names (addBatch, walCommit …)."""
    written: int | None = None
    """Number of rows that were written; None if the sink doesn't report it (files)."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Numbers of records added to the sources' dead-letter topics in this run, by topic."""

    @property
    def ran(self) -> bool:
        """Whether Spark ran the batch, which has no rows if all its records are bad."""
        return "addBatch" in self.stages

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON line."""
        return {
            "flow": self.flow,
            "batch": self.number,
            "rows": self.rows,
            "written": self.written,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate, 1),
            "lag": dict(self.lag),
            "lag_total": sum(self.lag.values()),
            "stages": dict(self.stages),
            "dead_letters": dict(self.dead_letters),
        }


class QueryProgress:
    """Converts Spark's progress reports of one query to batches, each once."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen: tuple[int, str] = (-1, "")
        self.rows = 0
        """Rows written in this run, or rows read if the sink reports none (see `written`)."""
        self.written = False
        """Whether `rows` counts written rows."""
        self.batches = 0
        self.positions: dict[str, int] = {}
        """Next offset of each partition, for all sources of the query."""

    def fresh(
        self, last: Mapping[str, Any] | None, recent: Callable[[], Iterable[Any]]
    ) -> list[Batch]:
        """Return new batches since the last call; use Spark's `recent` only if some were missed."""
        if last is None or _key(last) <= self._seen:
            return []
        # After an idle report with number 5, batch 5 itself follows and could be missed.
        missed = last["batchId"] != self._seen[0]
        found = [last]
        if missed:
            found = [one for one in recent() if self._seen < _key(one) <= _key(last)]
        self._seen = _key(last)
        batches = [batch_of(self._flow, one) for one in found]
        self.written = self.written or any(batch.written is not None for batch in batches)
        self.rows += sum(b.rows if b.written is None else b.written for b in batches)
        self.batches += sum(batch.rows > 0 for batch in batches)
        for source in last["sources"]:
            self.positions |= {str(tp): at for tp, at in positions(source["endOffset"]).items()}
        return batches


def _key(progress: Mapping[str, Any]) -> tuple[int, str]:
    """Return number and time of a progress report: idle reports repeat a batch's number."""
    return progress["batchId"], progress["timestamp"]


def batch_of(flow: str, progress: Mapping[str, Any]) -> Batch:
    """Convert one progress report to a batch."""
    stages = {name: ms / 1000.0 for name, ms in progress["durationMs"].items()}
    return Batch(
        flow,
        progress["batchId"],
        progress["numInputRows"],
        stages.pop("triggerExecution", 0.0),
        {str(tp): waiting for tp, waiting in lag(progress).items()},
        stages,
        _written(progress.get("sink")),
    )


def _written(sink: Mapping[str, Any] | None) -> int | None:
    rows: int = -1 if sink is None else sink.get("numOutputRows", -1)
    return None if rows < 0 else rows
