"""What became of each reader, in words, numbers and a picture.

In: what each reader said, what was published when, when the cluster was away. Out: an
`VersusOutcome`. A reader has *come back* when it hands out a row that was published after the last
old broker had ended: that row can only come from the new brokers. Must not: let the others decide
anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from odradek.cli.demo.picture import GREEN, GREY, RED, Band, Lane, Line, Panel, PanelPicture

QUIET_S = 1.0
"""A reader that gets nothing for this many seconds is shown as not reading."""
STEP_S = 0.25
WIDTHS = (5.0, 3.6, 2.8, 1.1)
"""Of the curves: those that run together are seen all the same."""


@dataclass(slots=True)
class ReaderReport:
    """What one reader said; times by the wall clock."""

    title: str
    colour: str
    rows: list[tuple[float, int]] = field(default_factory=list)
    errors: list[tuple[float, str]] = field(default_factory=list)
    ended: tuple[float, str] | None = None
    """When its process ended by itself, and how."""

    def came_back(self, first_new_row: int) -> float | None:
        """When the first row came that only the new brokers can have."""
        return next((at for at, row in self.rows if row >= first_new_row), None)


@dataclass(frozen=True, slots=True)
class Course:
    """What happened to everybody; times by the wall clock."""

    begin: float
    gone: float
    """The first old broker had ended."""
    back: float
    """All brokers answer at their new addresses, and the front door leads to them."""
    end: float
    published: Sequence[float]
    """When each row was published; the index is the row."""
    first_new_row: int
    """The first row published after the last old broker had ended."""


@dataclass(frozen=True, slots=True)
class VersusReader:
    """One client's fate."""

    client: str
    back_after_s: float | None
    """Seconds from the cluster's return to its own; None when it didn't come back."""
    silent_s: float
    """Seconds from the loss to the first new row, or to the end."""
    waited_s: float
    """Seconds that were waited for it after the cluster's return."""
    rows_read: int
    missing: int
    twice: int
    last_error: str | None
    ended: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, seconds to the millisecond."""
        plain = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}
        del plain["waited_s"]
        return {"client": plain["client"], "came_back": self.back_after_s is not None, **plain}

    def __str__(self) -> str:
        if self.back_after_s is not None:
            return f"back {self.back_after_s:.1f} s after the cluster"
        ended = " (its process ended)" if self.ended else ""
        return f"not back after {self.waited_s:.0f} s{ended}"


@dataclass(frozen=True, slots=True)
class VersusOutcome:
    """Everything that is to be told. Ours is the first reader."""

    readers: list[VersusReader]
    rows_sent: int
    outage_s: float
    observed_s: float
    """Seconds from the cluster's return to the end."""
    not_installed: list[str]
    timeline: list[tuple[float, str]]
    picture: PanelPicture

    @property
    def ok(self) -> bool:
        """Our reader got every row exactly once; the others don't count."""
        ours = self.readers[0]
        return not ours.missing and not ours.twice and ours.back_after_s is not None

    def closing(self) -> list[str]:
        """Who came back, and when."""
        width = max(len(one.client) for one in self.readers)
        lines = []
        for one in self.readers:
            error = one.ended or one.last_error
            said = f"; last it said: {error}" if one.back_after_s is None and error else ""
            lines.append(f"{one.client:<{width}}  {one}{said}")
        return lines

    def summary(self) -> dict[str, Any]:
        """What is printed line by line: ours."""
        return {k: v for k, v in self.to_dict().items() if not isinstance(v, list)}

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        ours = self.readers[0]
        return {
            "rows_sent": self.rows_sent,
            "rows_landed": ours.rows_read,
            "lost": ours.missing,
            "duplicated": ours.twice,
            "outage_s": round(self.outage_s, 3),
            "observed_s": round(self.observed_s, 3),
            "readers": [one.to_dict() for one in self.readers],
            "not_installed": self.not_installed,
            "timeline": [{"at": round(at, 3), "what": what} for at, what in self.timeline],
        }


def judge(heard: ReaderReport, course: Course) -> VersusReader:
    """What became of a reader."""
    rows = Counter(row for _, row in heard.rows)
    came_back = heard.came_back(course.first_new_row)
    return VersusReader(
        heard.title,
        # It can be a little sooner than the cluster's keeper saw all brokers answer.
        back_after_s=None if came_back is None else max(0.0, came_back - course.back),
        silent_s=(course.end if came_back is None else came_back) - course.gone,
        waited_s=(course.end if came_back is None else max(came_back, course.back)) - course.back,
        rows_read=len(rows),
        missing=len(course.published) - len(rows),
        twice=rows.total() - len(rows),
        last_error=heard.errors[-1][1] if heard.errors else None,
        ended=heard.ended[1] if heard.ended is not None else None,
    )


def picture(everybody: Sequence[ReaderReport], course: Course) -> PanelPicture:
    """Who read when, and how many rows each was behind."""
    lanes = []
    for heard in everybody:
        spans = [(start, stop, GREEN) for start, stop in _reading(heard, course)]
        came_back = heard.came_back(course.first_new_row)
        late = course.end if came_back is None else came_back
        if late > course.back:
            spans.append((course.back - course.begin, late - course.begin, RED))
        lanes.append(Lane(heard.title, spans, str(judge(heard, course))))
    steps = int((course.end - course.begin) / STEP_S) + 1
    moments = [n * STEP_S for n in range(steps)]
    published = [bisect_right(course.published, course.begin + at) for at in moments]
    lines = [
        Line(heard.title, heard.colour, _behind(heard, course, moments, published), width)
        for heard, width in zip(everybody, WIDTHS, strict=False)
    ]
    gone, back = course.gone - course.begin, course.back - course.begin
    return PanelPicture(
        "Plain readers of one topic while the whole cluster moves to other addresses",
        [
            Panel("", lanes=lanes, height=0.2 + 0.18 * len(lanes)),
            Panel("published rows not yet read", lines),
        ],
        [Band("no broker", GREY, gone, back)],
        key=[("reads", GREEN), ("doesn't, though brokers are there", RED)],
    )


def _behind(
    heard: ReaderReport, course: Course, moments: Sequence[float], published: Sequence[int]
) -> list[tuple[float, float]]:
    seen: set[int] = set()
    arrivals = []
    for at, row in heard.rows:
        if row not in seen:
            seen.add(row)
            arrivals.append(at)
    return [
        (at, float(max(0, count - bisect_right(arrivals, course.begin + at))))
        for at, count in zip(moments, published, strict=True)
    ]


def _reading(heard: ReaderReport, course: Course) -> list[tuple[float, float]]:
    """Spans in which rows came without a pause of more than `QUIET_S`."""
    spans: list[list[float]] = []
    for at, _ in heard.rows:
        moment = min(max(at, course.begin), course.end) - course.begin
        if spans and moment - spans[-1][1] <= QUIET_S:
            spans[-1][1] = moment
        else:
            spans.append([moment, moment])
    return [(start, stop) for start, stop in spans]
