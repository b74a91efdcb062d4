"""The demo's result: compared with the reference, written as JSON and as a picture.

In: counts, the table, samples of throughput, the timeline. Out: the object that `--json` prints,
and `demo.png`. Must not: call anything a match that isn't equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odradek.cli.demo.data import Aggregate
from odradek.cli.demo.timeline import Noticed, Recovery


@dataclass(frozen=True, slots=True)
class Sample:
    """How far things were at one moment (seconds since the start of sending)."""

    at: float
    acknowledged: int
    aggregated: int
    written: int


@dataclass(frozen=True, slots=True)
class Result:
    """What `--json` prints."""

    rows_sent: int
    rows_landed: int
    lost: int
    duplicated: int
    outage_s: float | None
    producer_recovery_s: float | None
    source_recovery_s: float | None
    rebootstraps: int
    dials: int
    matches_reference: bool

    @property
    def ok(self) -> bool:
        """Every row landed exactly once in the aggregate and in Parquet."""
        return not self.lost and not self.duplicated and self.matches_reference

    def to_dict(self) -> dict[str, Any]:
        """Plain data, seconds to the millisecond."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


def same(result: Sequence[Aggregate], reference: Sequence[Aggregate]) -> bool:
    """Whether two tables are equal to the row; means to the last few bits of a double."""
    if len(result) != len(reference):
        return False
    for mine, right in zip(result, reference, strict=True):
        if (mine.carrier, mine.month, mine.flights, mine.late) != (
            right.carrier,
            right.month,
            right.flights,
            right.late,
        ):
            return False
        if (mine.mean_delay is None) != (right.mean_delay is None):
            return False
        if (
            mine.mean_delay is not None
            and right.mean_delay is not None
            and not math.isclose(mine.mean_delay, right.mean_delay, rel_tol=1e-12)
        ):
            return False
    return True


def build(
    *,
    sent: int,
    table: Sequence[Aggregate],
    reference: Sequence[Aggregate],
    written: int,
    distinct: int,
    recovery: Recovery,
    events: Sequence[Noticed],
) -> Result:
    """Put the counts together: a row counts as landed when both outputs have it."""
    aggregated = sum(a.flights for a in table)
    landed = min(aggregated, distinct)
    return Result(
        rows_sent=sent,
        rows_landed=landed,
        lost=max(sent - aggregated, sent - distinct, 0),
        duplicated=max(aggregated - sent, written - distinct, 0),
        outage_s=recovery.outage,
        producer_recovery_s=recovery.producer,
        source_recovery_s=recovery.source,
        rebootstraps=sum(e.kind == "rebootstrap" for e in events),
        dials=sum(e.kind == "dial" for e in events),
        matches_reference=same(table, reference),
    )


WINDOW = 6
"""Samples (half a second each) that a rate is the mean of: Spark works in batches."""
MARKS = {
    "rebootstrap": ("a client starts again from bootstrap.servers", "black"),
    "rebootstrapped": ("a client has found the cluster again", "green"),
}


def picture(
    path: Path,
    samples: Sequence[Sample],
    outage: tuple[float, float] | None,
    marks: Sequence[tuple[float, str]],
) -> None:
    """Throughput over time with the outage marked."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (rate, total) = plt.subplots(2, 1, figsize=(11, 7), sharex=True)
    names = (("acknowledged", "C0"), ("aggregated", "C1"), ("written", "C2"))
    labels = {
        "acknowledged": "acknowledged to the producer",
        "aggregated": "in Spark's aggregate",
        "written": "in Parquet",
    }
    for name, colour in names:
        values = [(s.at, getattr(s, name)) for s in samples]
        rates = [
            (b[0], (b[1] - a[1]) / (b[0] - a[0]))
            for a, b in zip(values, values[WINDOW:], strict=False)
        ]
        if rates:
            rate.plot(*zip(*rates, strict=True), color=colour, label=labels[name], linewidth=1.2)
        total.plot(*zip(*values, strict=True), color=colour, label=labels[name])
    for axis in (rate, total):
        if outage is not None:
            axis.axvspan(*outage, color="crimson", alpha=0.15, label="no broker")
        axis.grid(alpha=0.3)
    shown = set()
    for at, kind in marks:
        words, colour = MARKS[kind]
        label = None if kind in shown else words
        shown.add(kind)
        total.axvline(at, color=colour, linewidth=0.8, linestyle=":", label=label)
    rate.set_ylabel(f"rows per second, mean of {WINDOW} samples")
    total.set_ylabel("rows")
    total.set_xlabel("seconds")
    total.legend(loc="upper left", fontsize=8)
    rate.set_title("A year of flights through a cluster that moves away and comes back elsewhere")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
