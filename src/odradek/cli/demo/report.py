"""The demo's result: compared with the reference, written as JSON and described as a picture.

In: counts, the table, samples of throughput, the timeline. Out: the object that `--json` prints,
and what `svg.write` draws. Must not: report a match unless all values are equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from odradek.cli.demo.data import Aggregate
from odradek.cli.demo.picture import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Band,
    Line,
    Mark,
    Panel,
    PanelPicture,
)
from odradek.cli.demo.timeline import Noticed, Recovery


@dataclass(frozen=True, slots=True)
class Moment:
    """Progress at a time, in seconds since the start of sending."""

    at: float
    rows: Mapping[str, int]
    """Number of rows by their state: acknowledged, aggregated, written …"""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demo, which `--json` prints."""

    rows_sent: int
    rows_landed: int
    lost: int
    duplicated: int
    outage_s: float | None
    producer_recovery_s: float | None
    source_recovery_s: float | None
    rebootstraps: int
    connection_attempts: int
    metadata_requests: int
    matches_reference: bool

    @property
    def ok(self) -> bool:
        """Whether each row arrived exactly once in all outputs, and the table is as expected."""
        return not self.lost and not self.duplicated and self.matches_reference

    def headline(self) -> str:
        """Return the result as one line."""
        told = [f"{self.rows_sent:,} rows"]
        if self.outage_s is not None:
            told.append(f"{self.outage_s:.1f} s without a broker")
        told += [f"{self.lost:,} lost", f"{self.duplicated:,} duplicated"]
        back = {"the producer": self.producer_recovery_s, "the reader": self.source_recovery_s}
        known = [f"{who} after {s:.1f} s" for who, s in back.items() if s is not None]
        if known:
            told.append(f"recovered: {', '.join(known)}")
        return " · ".join(told)

    def summary(self) -> dict[str, Any]:
        """Return the values that are printed line by line."""
        return self.to_dict()

    def closing(self) -> list[str]:
        """Return no further sentences."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; times are rounded to milliseconds."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


def same(result: Sequence[Aggregate], reference: Sequence[Aggregate]) -> bool:
    """Return whether all rows of two tables are equal; means may have rounding errors."""
    return len(result) == len(reference) and all(map(_same_row, result, reference))


def _same_row(mine: Aggregate, right: Aggregate) -> bool:
    if mine.mean_delay is not None and right.mean_delay is not None:
        if not math.isclose(mine.mean_delay, right.mean_delay, rel_tol=1e-12):
            return False
        mine = replace(mine, mean_delay=right.mean_delay)
    return mine == right


def build(
    *,
    sent: int,
    table: Sequence[Aggregate],
    reference: Sequence[Aggregate],
    written: int,
    distinct: int,
    recovery: Recovery,
    events: Sequence[Noticed],
    more: Sequence[tuple[int, int]] = (),
) -> DemoResult:
    """Combine the counts: a row counts as landed when all outputs have it.

    `more` contains the numbers of rows and distinct rows of further readers.
    """
    aggregated = sum(a.flights for a in table)
    outputs = [(aggregated, min(aggregated, sent)), (written, distinct), *more]
    landed = min(one for _, one in outputs)
    return DemoResult(
        rows_sent=sent,
        rows_landed=landed,
        lost=max(sent - landed, 0),
        duplicated=max(0, *(rows - once for rows, once in outputs)),
        outage_s=recovery.outage,
        producer_recovery_s=recovery.producer,
        source_recovery_s=recovery.source,
        rebootstraps=sum(e.kind == "rebootstrap" for e in events),
        connection_attempts=sum(e.kind == "dial" for e in events),
        metadata_requests=sum(e.kind == "metadata_request" for e in events),
        matches_reference=same(table, reference),
    )


MARKS = {
    "rebootstrap": ("a client reconnects through bootstrap.servers", BLACK),
    "rebootstrapped": ("a client has found the cluster again", GREEN),
}
BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], high: float) -> str:
    """Return a bar of one character for each value; heights are square roots.

    So the usual rate remains visible beside the peak after an outage.
    """
    steps = len(BLOCKS) - 1
    return "".join(BLOCKS[math.ceil(math.sqrt(max(0.0, v) / high) * steps)] for v in values)


STROKES = ((BLUE, 4.5), (ORANGE, 2.5), (BLACK, 1.0), (GREEN, 0.6))
"""Colours and widths of curves, so that coinciding curves are all visible."""


def picture(
    samples: Sequence[Moment],
    labels: Mapping[str, str],
    outage: tuple[float, float] | None,
    marks: Sequence[tuple[float, str]],
    result: DemoResult,
    *,
    more: Sequence[Panel] = (),
) -> PanelPicture:
    """Draw sent, acknowledged and read rows over time, and more panels if there are any.

    `labels` are the curves' labels by the names in `rows` of the samples.
    """
    lines = [
        Line(label, colour, [(s.at, float(s.rows[name])) for s in samples], width)
        for (colour, width), (name, label) in zip(STROKES, labels.items(), strict=False)
    ]
    return PanelPicture(
        result.headline(),
        [Panel("rows so far", lines), *more],
        [Band("no broker", RED, *outage)] if outage is not None else [],
        [Mark(*MARKS[kind], at) for at, kind in marks],
        subtitle="Flights through a cluster that stops and comes back at other addresses",
    )
