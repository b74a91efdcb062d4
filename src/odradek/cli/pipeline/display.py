"""Show a running pipeline: a live table and lines of text, or JSON lines for machines.

In: batches, outages, sentences. Out: the terminal; if it isn't one, plain lines; with `--json`
standard output has one object in each line (`event`: started, batch, outage, back, flowing, told,
ended, stopped, failed, result) and nothing else. Must not: decide anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol, Self

from rich.console import Group
from rich.table import Table
from rich.text import Text

from odradek.cli.frame.live_view import PLAIN_INTERVAL, LiveView
from odradek.cli.pipeline.dead_letters import in_words, number
from odradek.cli.pipeline.outages import ClusterOutage
from odradek.cli.pipeline.progress import Batch
from odradek.cli.pipeline.spec import Pipeline

SHOWN = 12
MOST_LAGGING = 3
"""Maximum number of partitions in the view, those with the largest lag."""


class Display(Protocol):
    """Interface through which `Running` reports progress."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Show an event: its kind, a sentence, and fields for JSON."""

    def batch(self, batch: Batch, rows: int) -> None:
        """Show the end of a batch.

        `rows` is the flow's total in this run: rows written by its sink, or rows read if the sink
        doesn't report written rows.
        """

    def outage(self, event: str, outage: ClusterOutage) -> None:
        """Show an event of an outage: `outage`, `back` or `flowing`."""


class JsonLines:
    """Prints one JSON object per line on standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Print an event."""
        self._line(event, {"text": text, **fields})

    def batch(self, batch: Batch, rows: int) -> None:
        """Show the end of a batch."""
        self._line("batch", {**batch.to_dict(), "rows_total": rows})

    def outage(self, event: str, outage: ClusterOutage) -> None:
        """Show that an outage began or ended, or that rows arrive again."""
        self._line(event, outage.to_dict())

    def _line(self, event: str, fields: Mapping[str, Any]) -> None:
        print(json.dumps({"time": round(time.time(), 3), "event": event, **fields}), flush=True)


class PipelineView(LiveView):
    """Table of flows, and lines for the latest events."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(lines=SHOWN, to_stderr=False)
        self._began = time.monotonic()
        self._flows: dict[str, tuple[Batch, int]] = {}
        self._names = list(pipeline.sinks)
        self._title = pipeline.name
        self._out: dict[str, ClusterOutage] = {}
        self._plain_at: dict[str, float] = {}

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Add a line for an event."""
        style = {"failed": "bold red", "outage": "bold red", "back": "bold green"}.get(event, "")
        self._add(Text(f"{time.monotonic() - self._began:8.1f} s  {text}", style=style))

    def batch(self, batch: Batch, rows: int) -> None:
        """Show a flow's newest batch; without a terminal, print a line from time to time."""
        self._flows[batch.flow] = (batch, rows)
        now = time.monotonic()
        due = self._plain_at.get(batch.flow, -PLAIN_INTERVAL) + PLAIN_INTERVAL
        if (batch.rows or batch.ran) and now >= due:
            self._plain_at[batch.flow] = now
            words = (
                f"{batch.flow}: batch {batch.number}, {batch.rows:,} rows in {batch.seconds:.2f} s "
                f"({batch.rate:,.0f} rows/s), {total(batch, rows)}, lag {lag_in_words(batch.lag)}"
                f"{in_words(batch.dead_letters)}"
            )
            self._plainly(f"{now - self._began:8.1f} s  {words}")

    def outage(self, event: str, outage: ClusterOutage) -> None:
        """Show that an outage began or ended, or the first rows after it."""
        if event == "outage":
            self._out[outage.cluster] = outage
            self.say(event, f"no broker of cluster {outage.cluster} answers: {outage.why}")
        elif event == "back":
            self._out.pop(outage.cluster, None)
            self.say(event, f"cluster {outage.cluster} is back after {outage.seconds or 0:.1f} s")
        else:
            after = (outage.flowing or 0.0) - (outage.over or 0.0)
            self.say(event, f"cluster {outage.cluster}: first rows {after:.1f} s after it was back")

    def _draw(self) -> Group:
        table = Table(title=self._title, title_justify="left")
        for heading in ("flow", "batch", "rows", "rows/s", "batch time", "total", "lag"):
            table.add_column(heading, justify="left" if heading in ("flow", "lag") else "right")
        for name in self._names:
            if name not in self._flows:
                table.add_row(name, "–", "", "", "", "", "")
                continue
            batch, rows = self._flows[name]
            table.add_row(
                name, str(batch.number), f"{batch.rows:,}", f"{batch.rate:,.0f}",
                f"{batch.seconds:.2f} s", total(batch, rows), lag_in_words(batch.lag),
            )  # fmt: skip
        out = [
            Text(f"{name}: no answer for {time.time() - one.begun:.0f} s", style="bold red")
            for name, one in list(self._out.items())
        ]
        dead = {
            f"{topic}: {number(came)}"
            for batch, _ in self._flows.values()
            for topic, came in batch.dead_letters.items()
            if came
        }
        told = [Text(one, style="bold yellow") for one in sorted(dead)]
        return Group(table, *told, *out, *self._lines)


def total(batch: Batch, rows: int) -> str:
    """Return a flow's total number of rows in words, such as "5 rows written"."""
    return f"{rows:,} {'read' if batch.written is None else 'written'}"


def lag_in_words(lag: Mapping[str, int]) -> str:
    """Return the total lag and the partitions with the largest lag, in words."""
    if not lag:
        return "–"
    most = sorted((p for p in lag if lag[p] > 0), key=lambda p: (-lag[p], p))
    named = ", ".join(f"{p} {lag[p]:,}" for p in most[:MOST_LAGGING])
    more = f", {len(most) - MOST_LAGGING} more" if len(most) > MOST_LAGGING else ""
    return f"{sum(lag.values()):,}" + (f" ({named}{more})" if most else "")
