"""Shared code of all Python drivers: command line, clock, pool of records, the JSON line.

In: `DRIVER MODE --bootstrap … --topic …`. Out: one line on standard output: records, bytes,
seconds, CPU seconds, memory, version. The clock starts after all imports, before the client is
created. Must not: import a client library, or any package that the clients' venvs don't have.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT = 120.0
ROWS_OF_BATCH = 50_000
Found = dict[str, Any]
Mode = Callable[[argparse.Namespace], Found]


GROUPS = ("classic", "consumer")
"""The two group protocols, classic (KIP-62) and KIP-848's."""


class Watch:
    """Measures wall and CPU time since its creation, and when the first record came."""

    def __init__(self) -> None:
        self.rss_before = status("VmRSS")
        self.first = 0.0
        self.cpu = time.process_time()
        self.begin = time.perf_counter()

    def seen(self) -> None:
        """Record the time of the first record."""
        if not self.first:
            self.first = time.perf_counter() - self.begin

    def stop(self, delivers: str, records: int, size: int) -> Found:
        """Stop the clock and return the measurement's result."""
        return {
            "seconds": time.perf_counter() - self.begin,
            "cpu": time.process_time() - self.cpu,
            "first": self.first,
            "rss_before": self.rss_before,
            "delivers": delivers,
            "records": records,
            "bytes": size,
        }


class Rows:
    """Records as Python lists that are converted to Arrow batches, which are dropped at once."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._pa = pa
        self._types = [pa.binary(), pa.binary(), pa.int64(), pa.int32(), pa.timestamp("ms")]
        self.columns: list[list[Any]] = [[] for _ in self._types]
        self.records = self.size = 0

    def made(self, *, all_rows: bool = False) -> None:
        """Convert the rows to a batch once there are enough; with `all_rows`, if there are any."""
        if len(self.columns[0]) < (1 if all_rows else ROWS_OF_BATCH):
            return
        pa = self._pa
        arrays = [pa.array(c, t) for c, t in zip(self.columns, self._types, strict=True)]
        names = ["key", "value", "offset", "partition", "timestamp"]
        batch = pa.RecordBatch.from_arrays(arrays, names)
        self.records += batch.num_rows
        self.size += payload(batch)
        self.columns = [[] for _ in self._types]

    def __len__(self) -> int:
        return self.records + len(self.columns[0])


def payload(batch: Any) -> int:
    """Return the bytes of a batch's keys and values, from the last offsets of the columns."""
    total = 0
    for name in ("key", "value"):
        column = batch.column(name)
        if str(column.type) == "binary_view":
            return total  # not worth a loop over all rows
        _, offsets, _ = column.buffers()
        ends = memoryview(offsets).cast("i")
        total += ends[column.offset + len(column)] - ends[column.offset]
    return total


def pool(path: str) -> tuple[list[bytes], list[bytes]]:
    """Return a pool file's keys and values; each pair follows two 4-byte big-endian lengths."""
    text = Path(path).read_bytes()
    keys, values = [], []
    at = 0
    while at < len(text):
        key, value = struct.unpack_from(">II", text, at)
        at += 8
        keys.append(text[at : at + key])
        values.append(text[at + key : at + key + value])
        at += key + value
    return keys, values


def status(name: str) -> int:
    """Return a value of /proc/self/status in bytes: VmHWM is peak memory, VmRSS present memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


class Idle:
    """Measures idle clients: the cost until they have read all records, then per second.

    CPU is in milliseconds, memory in bytes; threads and file descriptors are additional ones.
    """

    def __init__(self) -> None:
        self.threads, self.descriptors = threads(), descriptors()
        self.rss = status("VmRSS")
        self.begin, self.cpu = time.perf_counter(), time.process_time()
        self.ready: Found = {}
        self.since = 0.0

    def begins(self) -> None:
        """Start measuring idle time, after all clients have read all records."""
        if not self.ready:
            self.ready = {
                "ready_ms": 1000 * (time.perf_counter() - self.begin),
                "ready_cpu_ms": 1000 * (time.process_time() - self.cpu),
            }
        self.since, self.cpu = time.time(), time.process_time()

    def ends(self) -> Found:
        """Return the cost of the idle time since `begins`."""
        until, cpu = time.time(), time.process_time() - self.cpu
        return {
            **self.ready,
            "idle_from": self.since,
            "idle_until": until,
            "idle_cpu_ms": 1000 * cpu / (until - self.since),
            "threads": threads() - self.threads,
            "descriptors": descriptors() - self.descriptors,
            "rss_ready": status("VmRSS") - self.rss,
        }


def threads() -> int:
    """Return the number of threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def descriptors() -> int:
    """Return the number of open file descriptors, including the one that lists them."""
    return len(list(Path("/proc/self/fd").iterdir()))


def round_trip(options: argparse.Namespace, arrived: queue.Queue[float], send: Any) -> Found:
    """Send records one by one at a fixed rate; time each record until a consumer has it."""
    times = []
    due = time.perf_counter()
    for _ in range(options.records):
        time.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        send()
        times.append(arrived.get(timeout=TIMEOUT) - sent)
        due = max(due, time.perf_counter() - 1 / options.rate) + 1 / options.rate
    return latencies(times)


def latencies(times: list[float]) -> Found:
    """Return percentiles of the latencies; the first tenth is left out as a warm-up."""
    counted = sorted(times[len(times) // 10 :])
    p50, p99 = (1000 * counted[int(share * (len(counted) - 1))] for share in (0.5, 0.99))
    return {"p50_ms": p50, "p99_ms": p99, "records": len(counted)}


def main(library: str, version: str, modes: dict[str, Mode]) -> None:
    """Run one mode, print its result, and end the process without closing the clients."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=sorted(modes))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--ca", help="TLS, with a broker that this authority (PEM) signed")
    parser.add_argument("--topic", default="")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--pool", default="")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--layout", choices=("binary", "binary_view"), default="binary")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--pattern", default="", help="subscribe, instead of an assignment")
    parser.add_argument("--settle", type=float, default=0.7, help="seconds, before these")
    parser.add_argument("--idle", type=float, default=2.0, help="seconds")
    parser.add_argument("--pauses", default="130", help="mode seek: milliseconds, with commas")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    options = parser.parse_args()
    found = modes[options.mode](options)
    found |= {
        "library": library,
        "mode": options.mode,
        "version": version,
        "peak_rss": status("VmHWM"),
    }
    print(json.dumps(found), flush=True)
    sys.stderr.flush()
    os._exit(0)
