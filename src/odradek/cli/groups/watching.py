"""Run `odradek groups lag --watch`: measure groups repeatedly.

In: a run of a command, groups, seconds between measurements. Out: a table that is redrawn on a
terminal, else a line for each group and measurement. Must not: end while the cluster is
unavailable; the error is shown, and the next measurement retries.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from odradek.cli.console.properties import refuse
from odradek.cli.console.waiting import in_words, say, telling_of_waiting
from odradek.cli.frame.argument_values import whole_number
from odradek.cli.frame.commands import AdminRun
from odradek.cli.frame.live_view import has_pictures
from odradek.cli.frame.results import Result, cell, show
from odradek.cli.groups import rendering
from odradek.cli.groups.lag import LagRow, Pace, pace
from odradek.cli.groups.lookup import GroupSelection, GroupSnapshot, LookFailed
from odradek.common.errors import KafkaTimeoutError

ROOM = 6
"""Number of the terminal's lines that aren't used for partitions."""
UNTIL_NEXT = 5.0
"""Default interval of measurements in seconds."""
TROUBLES = 3
"""Maximum number of different errors that the view shows."""


class LagWatch:
    """Measurements of groups, and the rates between the last two."""

    def __init__(self, groups: GroupSelection) -> None:
        self.groups = groups
        self.looks: dict[str, GroupSnapshot] = {}
        self.failed: LookFailed = {}
        self.paces: dict[str, Pace | None] = {}
        self.moment = ""
        self._looked: float | None = None

    def look(self, run: AdminRun) -> None:
        """Measure once. Raises an error that concerns all groups."""
        run.again()
        looks, failed = self.groups.look(run)
        now = time.monotonic()
        passed = 0.0 if self._looked is None else now - self._looked
        self.paces = {
            g: pace(self.looks[g].rows, seen.rows, passed) if g in self.looks else None
            for g, seen in looks.items()
        }
        self.looks, self.failed, self._looked = looks, failed, now
        self.moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def answer(self) -> Result:
        """Return the last measurement: a line for each group, and the JSON document."""
        document: dict[str, Any] = {"at": self.moment, "groups": {}}
        lines = []
        for group, seen in self.looks.items():
            at_pace = self.paces[group]
            read = rendering.read(seen)
            document["groups"][group] = {"state": seen.group.state, "pace": at_pace, **read}
            lag, unknown = cell(read["lag"]), read["lag_unknown"]
            untold = f" ({unknown} unknown)" if unknown else ""
            lines.append(
                f"{self.moment} {group} {seen.group.state} lag {lag}{untold}{_told(at_pace)}"
            )
        return Result(document, lines, self.failed)

    def picture(self, height: int) -> RenderableType:
        """Return a view of the last measurement, for a terminal of this height."""
        heads = ("GROUP", "STATE", "MEMBERS", "TOTAL-LAG", "READ/S", "WRITTEN/S", "LEFT")
        sums = _rich(heads, [self._sum(group, seen) for group, seen in self.looks.items()])
        parts: list[RenderableType] = [
            Text(f"{self.moment}, press Ctrl-C to stop", style="dim"),
            sums,
        ]
        troubles = list(dict.fromkeys(cell(in_words(e)) for e in self.failed.values()))
        parts += [Text(text, style="red") for text in troubles[:TROUBLES]]
        rows = [(g, row) for g, seen in self.looks.items() for row in seen.rows]
        rows.sort(key=lambda each: -(each[1].lag or 0))
        room = height - len(self.looks) - min(len(troubles), TROUBLES) - ROOM
        if self.groups.named and room > 0:
            parts += [Text(), _rich(_PARTITIONS, [_partition(g, row) for g, row in rows[:room]])]
            if len(rows) > room:
                parts.append(Text(f"… and {len(rows) - room} with less lag", style="dim"))
        return Group(*parts)

    def _sum(self, group: str, seen: GroupSnapshot) -> tuple[Any, ...]:
        lag, at_pace = rendering.read(seen)["lag"], self.paces[group]
        told = None if lag is None else f"{lag:,}"
        known = (group, seen.group.state, len(seen.group.members), told)
        if at_pace is None or lag is None:
            return *known, None, None, None
        return *known, f"{at_pace.read:,.1f}", f"{at_pace.written:,.1f}", left(lag, at_pace)


def watch(run: AdminRun, groups: GroupSelection, interval: float, count: int | None) -> Result:
    """Measure until Ctrl-C, or `count` times; return the last measurement, not shown yet."""
    watching, console = LagWatch(groups), Console(highlight=False)
    watching.look(run)
    for group in groups.named:
        if whole_number(group) is not None and group in watching.failed:
            refuse(f"there is no group {group}; to set the interval, use --interval {group}")
    run.close()
    live = has_pictures(console) and not run.json
    with _drawn(console) if live else contextlib.nullcontext() as drawn:
        for _ in range(1, count) if count else _for_ever():
            if drawn is None:
                show(watching.answer(), run.tool, json=run.json)
            else:
                drawn.update(watching.picture(console.height), refresh=True)
            time.sleep(interval)
            try:
                with telling_of_waiting("still waiting for the cluster"):
                    watching.look(run)
            except KafkaTimeoutError as error:
                say(f"{run.tool}: {in_words(error)}")
    return watching.answer()


def _for_ever() -> Iterator[int]:
    while True:
        yield 0


def _drawn(console: Console) -> Live:
    return Live(console=console, auto_refresh=False, transient=True)


def left(lag: int, at: Pace) -> str | None:
    """Return the time until the lag is 0 at this rate; None if that never happens."""
    gain = at.read - at.written
    if lag == 0:
        return "nothing"
    if gain <= 0:
        return None
    seconds = int(lag / gain)
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def _told(at: Pace | None) -> str:
    return "" if at is None else f", read {at.read:.1f}/s, written {at.written:.1f}/s"


_PARTITIONS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CLIENT-ID",
)


def _partition(group: str, row: LagRow) -> tuple[Any, ...]:
    who = None if row.member is None else row.member.client_id
    return group, *row.partition, row.committed, row.end, row.lag, who


def _rich(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(Text(head))
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table
