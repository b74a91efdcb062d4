"""Show the demo while it runs: bars, counts, a timeline.

In: numbers and sentences. Out: the terminal, or plain lines without one; with `--json` on standard
error, so that standard output only contains the final result.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from odradek.cli.frame.live_view import PLAIN_INTERVAL, LiveView

SHOWN = 14


class PlainTimeline:
    """Timeline that is printed as plain lines."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._console = Console(stderr=to_stderr, highlight=False)

    def tell(self, at: float, text: str, *, style: str = "") -> None:
        """Add a line to the timeline; `at` in seconds since the start."""
        self._console.print(_line(at, text, style), soft_wrap=True)


def _line(at: float, text: str, style: str) -> Text:
    return Text(f"{at:7.2f} s  {text}", style=style)


class DemoDisplay(LiveView):
    """Progress bars (name → text) and a timeline; bars are shown inside its `with` block."""

    def __init__(self, bars: Mapping[str, str], *, to_stderr: bool) -> None:
        super().__init__(lines=SHOWN, to_stderr=to_stderr)
        self._bars = Progress(
            TextColumn("{task.description:<29}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:>9,.0f} of {task.total:,.0f}"),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._tasks = {
            name: self._bars.add_task(text, total=1, start=False) for name, text in bars.items()
        }
        self._status = Text("")
        self._plain_at = -PLAIN_INTERVAL

    def tell(self, at: float, text: str, *, style: str = "") -> None:
        """Add a line to the timeline; `at` in seconds since the start."""
        self._add(_line(at, text, style))

    def begin(self, total: int) -> None:
        """Start the bars."""
        for task in self._tasks.values():
            self._bars.update(task, total=total)
            self._bars.start_task(task)

    def progress(self, at: float, rows: Mapping[str, int]) -> None:
        """Update the bars; `rows` is the number of rows by the name of the bar."""
        for name, value in rows.items():
            self._bars.update(self._tasks[name], completed=value)
        lag = max(rows.values()) - min(rows.values())
        self._status = Text(f"lag {lag:,} rows")
        if at - self._plain_at >= PLAIN_INTERVAL:
            self._plain_at = at
            words = "  ".join(f"{name} {value:,}" for name, value in rows.items())
            self._plainly(f"{at:7.2f} s  {words}  lag {lag:,}")

    def _draw(self) -> Group:
        return Group(
            Panel(Group(self._bars, self._status), title="flights", expand=False),
            Panel(Group(*self._lines) if self._lines else Text(""), title="what happened"),
        )
