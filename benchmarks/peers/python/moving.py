"""Mode `seek` of all Python drivers: calls of a consumer whose fetch the broker holds.

In: a consumer's own calls. Out: the medians of many turns, in milliseconds. The topic has two
partitions with a record each; the calls concern the first one. METHOD.md explains what is timed.

Must not: import a client library, like `driver`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from driver import Found

HELD = 0.5
"""Seconds for which a broker delays a fetch (`fetch.max.wait.ms`), by these clients' default."""
POLLED = 0.05
"""Timeout in seconds of one poll while no record is expected."""
PATIENCE = 20.0
"""Seconds after which a missing record is an error."""
Steps = Generator[Any, Any, Found]


@dataclass(frozen=True, slots=True)
class Calls:
    """A consumer's calls, as functions; an asyncio client's functions may return awaitables."""

    poll: Callable[[float], Any]
    """Poll with a timeout in seconds; return the number of records."""
    seek: Callable[[], Any]
    """Seek to the first partition's record."""
    pause: Callable[[], Any]
    resume: Callable[[], Any]
    end: Callable[[], Any]
    """Request the first partition's end offset from the broker."""


def moves(options: argparse.Namespace, calls: Calls) -> Steps:
    """Yield the return value of each call, maybe an awaitable; the caller sends its result back."""

    def records(count: int = 1) -> Generator[Any, Any, None]:
        until = time.perf_counter() + PATIENCE
        while count > 0:
            if time.perf_counter() > until:
                raise RuntimeError(f"no record within {PATIENCE:g} s")
            count -= yield calls.poll(1.0)

    def rest(seconds: float) -> Generator[Any, Any, None]:
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            if (yield calls.poll(min(left, POLLED))):
                raise RuntimeError("there was a record that hadn't been asked for")

    pauses = [float(pause) / 1000 for pause in options.pauses.split(",")]
    seeks, resumes, ends = [], [], []
    yield from records(options.records)
    for pause in pauses:
        yield from rest(pause)
        begin = time.perf_counter()
        yield calls.seek()
        yield from records()
        seeks.append(time.perf_counter() - begin)
    for pause in pauses:
        yield from rest(pause)
        begin = time.perf_counter()
        end = yield calls.end()
        ends.append(time.perf_counter() - begin)
        if end != 1:
            raise RuntimeError(f"an end offset of {end}")
    for pause in pauses:
        yield calls.pause()
        yield calls.seek()
        yield from rest(HELD + pause)
        begin = time.perf_counter()
        yield calls.resume()
        yield from records()
        resumes.append(time.perf_counter() - begin)
    times = {"seek_ms": seeks, "resume_ms": resumes, "end_offsets_ms": ends}
    return {name: 1000 * statistics.median(some) for name, some in times.items()}


def called(steps: Steps) -> Found:
    """Run all steps of `moves` with a synchronous client."""
    value = None
    try:
        while True:
            value = steps.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def awaited(steps: Steps) -> Found:
    """Run all steps of `moves` with an asyncio client."""
    value = None
    try:
        while True:
            value = steps.send(value)
            if isawaitable(value):
                value = await value
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
