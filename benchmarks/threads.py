"""Measure the speed-up of a second thread: `python -m benchmarks.threads`, with any Python.

In: nothing. Out: for each task a line with the time of one thread divided by that of two that share
the work, the median of some rounds with their range, and everything as one JSON line, with whether
there was a GIL. Everything is in memory, because a broker would use one of two cores: four
partitions are decoded into columns, or into records, and records are sent one by one into the open
batches of two producers, which are completed when full, including futures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from benchmarks import about
from benchmarks.stages import BATCH_BYTES, NOW_MS, PARTITIONS, fetched, pool

from odradek.clients.consumer.records import ConsumerRecord
from odradek.record import KERNEL, BatchBuilder, OpenBatches, build_rows, decode
from odradek.runtime.hosts.record_future import RecordFuture

THREADS = 2
ROUNDS = 9
TURNS = 6
"""How often each partition is decoded in a round."""
KEY, VALUE = 16, 100
SENT = 150_000
"""Number of records that each producer gets in a round."""
Work = Callable[[], None]


def side_by_side(works: Sequence[Work]) -> float:
    """Return the seconds until all functions, each in its own thread, have returned."""
    begin = threading.Barrier(len(works) + 1)

    def run(work: Work) -> None:
        begin.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def in_turn(works: Sequence[Work]) -> Work:
    """Return a function that calls the given functions one after the other."""

    def run() -> None:
        for work in works:
            work()

    return run


def compared(works: Sequence[Work]) -> dict[str, float]:
    """Return how many times as fast two threads are: median, lowest and highest of the rounds."""
    shares = [in_turn(works[at::THREADS]) for at in range(THREADS)]
    ratios = []
    for turn in range(ROUNDS + 1):
        lanes: list[list[Work]] = [[in_turn(works)], shares]
        times = [side_by_side(lane) for lane in (lanes if turn % 2 else lanes[::-1])]
        if turn:  # the first round is a warm-up
            one, two = times if turn % 2 else times[::-1]
            ratios.append(one / two)
    low, high = min(ratios), max(ratios)
    return {
        "median": round(statistics.median(ratios), 2),
        "low": round(low, 2),
        "high": round(high, 2),
    }


def decoding(keys: list[bytes], values: list[bytes], codec: str | None, rows: bool) -> list[Work]:
    """Return functions that each decode four partitions, into columns or into records."""

    def one(partition: int) -> Work:
        answer, _ = fetched(keys, values, codec)
        data = bytes(answer)

        def work() -> None:
            for _ in range(1 if rows else TURNS):
                columns = decode(memoryview(data), start_offset=0, want_headers=rows).columns
                if rows:
                    for at in range(0, columns.count, 500):  # as many as `poll` returns
                        part = columns.slice(at, at + 500)
                        build_rows(ConsumerRecord, "topic", partition, part, 0)

        return work

    return [one(partition) for partition in range(PARTITIONS)]


def sending(values: list[bytes], codec: str | None) -> list[Work]:
    """Return functions for two producers, which send to a known topic and complete batches."""

    def one() -> Work:
        snapshot = object()
        opened: dict[int, Any] = {}
        lane = SimpleNamespace(
            snapshot=snapshot, open=opened, count=PARTITIONS, by_key=True, place=None
        )
        ways = OpenBatches(
            {"topic": lane},
            SimpleNamespace(snapshot=snapshot),
            SimpleNamespace(here=True),
            lambda: NOW_MS / 1000,
            RecordFuture,
        )

        def reopen(partition: int) -> None:
            full = opened.get(partition)
            if full is not None:
                full.builder.build(producer_id=1, producer_epoch=0, base_sequence=0)
            opened[partition] = SimpleNamespace(builder=BatchBuilder(BATCH_BYTES, codec))

        def work() -> None:
            for partition in range(PARTITIONS):
                reopen(partition)
            # Each thread creates its own records, as programs do: sharing them would cost more.
            text = b"".join(values)
            send, futures, last = ways.send, [], len(text) - VALUE
            for number in range(SENT):
                at = number * VALUE % last
                key, value = text[at : at + KEY], text[at : at + VALUE]
                found = send(None, "topic", key, value, (), None, None)
                if type(found) is int:
                    reopen(found)
                    found = send(None, "topic", key, value, (), None, found)
                    futures.clear()  # as if the records were acknowledged meanwhile
                futures.append(found)

        return work

    return [one() for _ in range(THREADS)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--only", default="", help="lanes whose name has this text")
    options = parser.parse_args()
    keys, values = pool(VALUE)
    lanes: dict[str, Callable[[], list[Work]]] = {
        "decode four partitions": lambda: decoding(keys, values, None, False),
        "decode four partitions, lz4": lambda: decoding(keys, values, "lz4", False),
        "decode four partitions into records": lambda: decoding(keys, values, None, True),
        "two producers": lambda: sending(values, None),
        "two producers, lz4": lambda: sending(values, "lz4"),
    }
    locked: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    found: dict[str, Any] = {}
    for name, make in lanes.items():
        if options.only in name:
            found[name] = compared(make())
            print("{median:6.2f}x ({low} to {high})  ".format(**found[name]) + name, flush=True)
    result = {"gil": locked, "kernel": KERNEL, "machine": about.machine(), "two_over_one": found}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
