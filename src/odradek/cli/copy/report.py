"""Report a copy's progress and result: records, rate, lag, remaining time.

In: `CopyBooks`, the clients' health. Out: lines on stderr, on a terminal one that is overwritten.
Must not: slow the copy down; a separate thread reads the counts.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

from odradek.cli.copy.copying import CopyBooks
from odradek.cli.frame.live_view import PLAIN_INTERVAL
from odradek.cli.frame.results import counted
from odradek.common.printable import printable

DRAWN = 0.5
"""Update interval on a terminal, in seconds."""
WINDOW = 20
"""Number of measurements over which the rate is computed."""


class CopyReport:
    """Prints the progress of a copy, as a context manager."""

    def __init__(
        self,
        books: CopyBooks,
        ends: Mapping[int, int] | None,
        troubles: Callable[[], str | None],
        *,
        quiet: bool = False,
    ) -> None:
        """`troubles` returns the problem of a client, or None."""
        self._books, self._ends, self._troubles = books, ends, troubles
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet
        self._began = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)], maxlen=WINDOW)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="copy report", daemon=True)

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if not self._quiet:
            self._thread.join()
            if self._terminal:
                sys.stderr.write("\r\x1b[K")

    @property
    def seconds(self) -> float:
        """Seconds since the copy started."""
        return time.monotonic() - self._began

    def _run(self) -> None:
        while not self._over.wait(DRAWN if self._terminal else PLAIN_INTERVAL):
            line = self.line(time.monotonic())
            sys.stderr.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
            sys.stderr.flush()

    def line(self, now: float) -> str:
        """Return the current progress as one line."""
        books = self._books
        self._seen.append((now, books.records))
        since, before = self._seen[0]
        rate = (books.records - before) / (now - since) if now > since else 0.0
        parts = [f"{counted(books.records, 'record')}, {size(books.bytes)}, {rate:,.0f}/s"]
        left = self.left()
        if left is not None:
            parts.append(f"lag {left:,}")
            if self._ends is not None and rate:
                parts.append(f"{left / rate:,.0f} s left")
        trouble = self._troubles()
        if trouble is not None:
            parts.append(printable(trouble))
        return "; ".join(parts)

    def left(self) -> int | None:
        """Return the number of offsets that are still to be copied; None if unknown."""
        if self._ends is None:
            return self._books.lag
        positions = self._books.positions
        return sum(max(0, end - positions[p]) for p, end in self._ends.items())


def size(count: int) -> str:
    """Return a number of bytes as text, in kB, MB or a larger unit."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def summary(books: CopyBooks, seconds: float, missed: int) -> dict[str, Any]:
    """Return the result as plain data."""
    return {
        "records": books.records,
        "bytes": books.bytes,
        "seconds": round(seconds, 3),
        "steps": books.steps,
        "given_up": books.given_up,
        "missed": missed,
        "positions": {str(p): offset for p, offset in sorted(books.positions.items())},
    }


def in_a_sentence(books: CopyBooks, seconds: float, group: str) -> str:
    """Return the result as a sentence."""
    rate = books.records / seconds if seconds else 0.0
    return (
        f"Copied {counted(books.records, 'record')} ({size(books.bytes)}) in {seconds:.1f} s, "
        f"{rate:,.0f}/s; the progress is kept in group {group}"
    )
