"""The picture of `odradek events tables --picture`: load and outages of many clients.

In: counts of their events by period (`course_table`). Out: an SVG file of three panels: connection
attempts, metadata requests, clients without progress. Must not: count anything itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.demo.picture import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Band,
    Line,
    Panel,
    PanelPicture,
)
from odradek.cli.demo.svg import write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, Row

PANELS = (
    (
        "connection attempts/s",
        (("dials", "all brokers", BLUE), ("busiest", "busiest one", PURPLE)),
    ),
    (
        "failures, requests",
        (("failed", "failed attempts", RED), ("metadata_requests", "metadata", GREEN)),
    ),
    (
        "clients",
        (
            ("held_up", "held up", ORANGE),
            ("cut_off", "client-broker pairs without a connection", GREY),
        ),
    ),
)
"""Panels: a label, and lines with their column, name and colour."""


def draw(course: DataFrame, file: Path, storm: int) -> None:
    """Draw the picture; `storm` connection attempts per second count as an overload."""
    write(picture(course.collect(), storm), file)


def picture(course: Sequence[Row], storm: int) -> PanelPicture:
    """Return the picture of at least one period; overloads (storms) are shaded."""
    first = course[0].second
    step = course[1].second - first if len(course) > 1 else 1
    began, ended = (_moment(at) for at in (first, course[-1].second + step))
    panels = [
        Panel(label, [_line(course, step, *which) for which in lines], height=0.7)
        for label, lines in PANELS
    ]
    return PanelPicture(
        "Load and outages that the clients noticed",
        panels,
        list(_storms(course, step, storm)),
        subtitle=f"{began} to {ended}"
        + (f"; the busiest second of every {step:,} s" if step > 1 else ""),
        x_label=f"seconds since {began}",
    )


def _line(course: Sequence[Row], step: int, column: str, label: str, colour: str) -> Line:
    """Return a stepped line: a period's value holds to its end."""
    first = course[0].second
    points = [
        (float(at), float(row[column]))
        for row in course
        for at in (row.second - first, row.second - first + step)
    ]
    return Line(label, colour, points)


def _storms(course: Sequence[Row], step: int, least: int) -> Iterator[Band]:
    first = course[0].second
    for stormy, rows in groupby(course, lambda row: row.busiest >= least):
        if stormy:
            run = [row.second - first for row in rows]
            yield Band(
                f"{least} or more connection attempts per second at one broker",
                RED,
                run[0],
                run[-1] + step,
            )


def _moment(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S} UTC"
