"""Measure how long a call took, without the time in which this process could not run.

On a busy machine a thread that is ready to run waits for a processor, so the clock alone can't show
whether a call returned within 0.1 s of its timeout. Subtracted, for all threads of the process:
their waits for a processor (Linux counts them, proc(5): schedstat), the time stolen by the
hypervisor, and Python's garbage collections (the tests' own objects make these long).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LATE = 0.1
"""Seconds that a call may return after its timeout."""


@dataclass(slots=True)
class Held:
    """Seconds in which this process could not run."""

    queued: float = 0.0
    stolen: float = 0.0
    collecting: float = 0.0

    @property
    def total(self) -> float:
        return self.queued + self.stolen + self.collecting


def queued() -> dict[str, float]:
    """Return the seconds that each thread has waited for a processor; empty if unknown."""
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
        except OSError:  # the thread has ended
            continue
    return found


def stolen() -> float:
    """Return the seconds of processor time that the hypervisor took from this machine."""
    try:
        with Path("/proc/stat").open() as stat:
            return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


@contextmanager
def held() -> Iterator[Held]:
    """Measure a block; the `Held` is filled in at its end."""
    found = Held()
    begun = 0.0

    def collected(phase: str, info: dict[str, Any]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.monotonic()
        else:
            found.collecting += time.monotonic() - begun

    before, taken = queued(), stolen()
    gc.callbacks.append(collected)
    try:
        yield found
    finally:
        gc.callbacks.remove(collected)
        after = queued()
        found.queued = sum(after[thread] - before.get(thread, 0.0) for thread in after)
        found.stolen = stolen() - taken


@contextmanager
def ends_at(timeout: float, *, soonest: float | None = None) -> Iterator[None]:
    """Assert that a block ends neither before `timeout` (or `soonest`) nor after it + `LATE`."""
    begin = time.monotonic()
    with held() as away:
        yield
    took = time.monotonic() - begin
    assert took >= (timeout if soonest is None else soonest), f"after {took:.3f} s already"
    assert took <= timeout + LATE + away.total, (
        f"{took:.3f} s instead of {timeout:g} s, though the machine held it up for only"
        f" {away.total:.3f} s: {away}"
    )
