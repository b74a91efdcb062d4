"""Resources of processes over the time of a soak, and the slopes that are failures.

In: samples of memory, objects, descriptors, threads and log lines. Out: the slope of each series,
and those above their bounds in words. Must not: know what the processes do.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median

Points = Sequence[tuple[float, float]]
"""Seconds since the beginning, and values."""
MEGABYTE = 1 << 20
WARM_UP = 120.0
"""Seconds of a process that aren't judged: imports, first connections, caches that fill."""
SHORTEST = 240.0
"""Seconds after the warm-up from which on a slope is judged; the noise is larger before."""
MOST_POINTS = 120
"""The number of points between which slopes are computed; more are averaged before."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A series fails if its slope and its growth are both above these."""

    per_hour: float
    growth: float
    """Growth within the judged time: a step that happens once is no slope."""
    why: str


BOUNDS: Mapping[str, Bound] = {
    "memory_mb": Bound(
        24.0, 6.0, "1 kB for each of the 40 records/s of a member is 140 MB/h; arenas and "
        "fragments of the allocator are 6 MB"
    ),
    "objects": Bound(
        6_000.0, 3_000.0, "a kept object for each fault or rebalance (250/h) with 20 more that it "
        "refers to is 5,000/h; topics and partitions that were added are below 3,000"
    ),
    "descriptors": Bound(
        20.0, 12.0, "one socket that remains open for each tenth fault is 25/h; connections to "
        "3 brokers for data, metadata and coordinators come and go within 12"
    ),
    "threads": Bound(8.0, 4.0, "a client has at most 2 threads, and 2 clients may be opening"),
    "log_lines": Bound(
        3_600.0, 600.0, "60 lines/min: 4 faults/min with at most 15 lines each at one client; "
        "more would hide what matters"
    ),
}  # fmt: skip
"""`log_lines` are counted from the beginning, so their slope is the rate of logging."""


def slope(points: Points) -> float:
    """Return the median of the slopes between all pairs of points (Theil and Sen), per second."""
    thinned = _thinned(points)
    slopes = [
        (after - before) / (later - at)
        for n, (at, before) in enumerate(thinned)
        for later, after in thinned[n + 1 :]
        if later > at
    ]
    return median(slopes) if slopes else 0.0


def _thinned(points: Points) -> list[tuple[float, float]]:
    """Return means of neighbours, so that there are at most `MOST_POINTS`."""
    step = -(-len(points) // MOST_POINTS) or 1
    groups = [points[n : n + step] for n in range(0, len(points), step)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]


class Samples:
    """Values by process and by kind of resource."""

    def __init__(self) -> None:
        self.series: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._lock = threading.Lock()

    def add(self, process: str, at: float, values: Mapping[str, float]) -> None:
        """Add one sample of a process."""
        with self._lock:
            for kind, value in values.items():
                self.series[process][kind].append((at, value))

    def judged(self) -> dict[str, dict[str, float]]:
        """Return slopes per hour by kind and process, of series that are long enough."""
        found: dict[str, dict[str, float]] = {kind: {} for kind in BOUNDS}
        for process, series in self.series.items():
            for kind, points in series.items():
                rest = after_warm_up(points)
                if rest and rest[-1][0] - rest[0][0] >= SHORTEST:
                    found[kind][process] = round(slope(rest) * 3600.0, 2)
        return found

    def failures(self) -> list[str]:
        """Return the series that grow faster than their bounds."""
        found = []
        for kind, slopes in self.judged().items():
            bound = BOUNDS[kind]
            for process, per_hour in slopes.items():
                rest = after_warm_up(self.series[process][kind])
                growth = per_hour / 3600.0 * (rest[-1][0] - rest[0][0])
                if per_hour > bound.per_hour and growth > bound.growth:
                    found.append(
                        f"{kind} of {process} grows by {per_hour:g} per hour (bound "
                        f"{bound.per_hour:g}: {bound.why})"
                    )
        return found


def after_warm_up(points: Points) -> Points:
    """Return the points after the warm-up, which the slope is computed from."""
    return [(at, value) for at, value in points if at >= points[0][0] + WARM_UP]


def of_process(pid: int) -> dict[str, float]:
    """Return memory, descriptors and threads of a process; nothing if it has ended."""
    here = Path("/proc") / str(pid)
    try:
        pages = int((here / "statm").read_text().split()[1])
        return {
            "memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE,
            "descriptors": _count(here / "fd"),
            "threads": _count(here / "task"),
        }
    except (OSError, IndexError):
        return {}


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def objects_by_type() -> Counter[type]:
    """Count the objects that the garbage collector tracks, within one call of C code.

    A list of all objects that another thread could meet would refer to tuples that are still under
    construction there: `tuple(generator)` raises SystemError for them.
    """
    return Counter(map(type, chain.from_iterable(map(gc.get_objects, [None]))))


NOT_CLIENTS = ("odradek.simulation", "odradek.testing", "odradek.cli")


def objects_of_clients() -> Counter[str]:
    """Count the objects of Odradek's own classes in this process, by class.

    The history, the witnesses and the cluster of the soak aren't counted: they grow with the run.
    Unreachable cycles are collected before: as the history grows, Python collects the oldest
    generation ever more rarely, and what closed clients leave would be counted as kept.
    """
    gc.collect()
    found: Counter[str] = Counter()
    for kind, count in objects_by_type().items():
        module = getattr(kind, "__module__", None)
        if not isinstance(module, str) or not module.startswith("odradek."):
            continue
        if not module.startswith((*NOT_CLIENTS, "odradek.common.types")):
            found[f"{module}.{kind.__qualname__}"] += count
    return found


class Sampler:
    """Calls `sample` at equal intervals in a thread of its own."""

    def __init__(self, sample: Callable[[], None], interval: float) -> None:
        self._sample, self._interval = sample, interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            self._sample()
            due = max(due + self._interval, time.monotonic())
