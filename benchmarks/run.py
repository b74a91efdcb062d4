"""`make bench`: Odradek and its peers side by side on one real cluster, in one run.

In: how many records, how many runs. Out: a table on stdout, and everything measured as JSON.
Measured interleaved (a run of each client after the other, in changing order), so that a slow
minute of the machine hits all of them; medians with the range of the runs. Every client gets the
same records, the same codec and the same guarantees: idempotent, acks=all, linger 5 ms. Speeds are
those of a client that is under way: its clock starts when a first record is acknowledged or read,
and the time until then has rows of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import clients
import data

from odradek.record import KERNEL
from odradek.testing import LocalCluster

ROOT = Path(__file__).resolve().parent.parent
PEER = "confluent-kafka"
ABSENT = {"aiokafka": "aiokafka", "kafka-python": "kafka"}
KERNEL_NOTE = (
    "Odradek's record path is the plain-Python reference: each record is encoded and decoded by "
    "Python code. The fast kernel comes later; the peer's is C (librdkafka)."
)
PARTITIONS = 3


def import_time(module: str) -> float:
    """Milliseconds of `import module` in a fresh interpreter, start-up not counted."""
    code = (
        "import time; begin = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - begin)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return 1000 * float(done.stdout)


class Bench:
    """The measurements of one run of this program, by row and client."""

    def __init__(self, records: int, runs: int) -> None:
        self.records, self.runs = records, runs
        self.rows: dict[str, dict[str, list[float]]] = {}
        self.units: dict[str, str] = {}

    def measure(self, row: str, unit: str, sides: dict[str, Callable[[], float]]) -> None:
        """Run each side `runs` times, in turn; the first turn isn't counted."""
        self.units[row] = unit
        found: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(self.runs + 1):
            order = list(sides) if turn % 2 else list(reversed(sides))
            for name in order:
                value = sides[name]()
                if turn:  # the first one warms caches of brokers and files
                    found[name].append(value)
        self.rows[row] = found
        print(".", end="", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, Any]:
        """Medians, ranges, and how many times the peer's speed (above 1: faster than it)."""
        rows: dict[str, Any] = {}
        for row, sides in self.rows.items():
            medians = {name: statistics.median(values) for name, values in sides.items()}
            faster_is_more = self.units[row] != "ms"
            ours, theirs = medians["odradek"], medians[PEER]
            rows[row] = {
                "unit": self.units[row],
                "clients": {
                    name: {
                        "median": medians[name],
                        "min": min(values),
                        "max": max(values),
                        "runs": values,
                    }
                    for name, values in sides.items()
                },
                "speed_relative_to": PEER,
                "speed_ratio": ours / theirs if faster_is_more else theirs / ours,
            }
        return rows


def measure_all(bench: Bench, cluster: LocalCluster) -> None:
    """Every row of the table."""
    servers = cluster.bootstrap_servers
    rows = data.records(bench.records)
    size = sum(len(key) + len(value) for key, value in rows)
    print(f"{bench.records} records of {size / bench.records:.0f} bytes", file=sys.stderr)
    made = 0

    def topic() -> str:
        nonlocal made
        made += 1
        clients.create_topic(servers, f"bench-{made}", PARTITIONS)
        return f"bench-{made}"

    for codec in ("none", "zstd"):
        bench.measure(
            f"produce, record by record, {codec}",
            "records/s",
            {
                "odradek": partial(clients.odradek_produce, servers, topic, rows, codec),
                PEER: partial(clients.confluent_produce, servers, topic, rows, codec),
            },
        )
    for codec in ("none", "zstd"):
        source = topic()
        clients.confluent_produce(servers, partial(str, source), rows, codec)
        for what, ours, theirs in (
            ("records", clients.odradek_records, clients.confluent_records),
            ("Arrow", clients.odradek_arrow, clients.confluent_arrow),
        ):
            bench.measure(
                f"consume to {what}, {codec}",
                "records/s",
                {
                    "odradek": partial(ours, servers, source, PARTITIONS, len(rows) + 1),
                    PEER: partial(theirs, servers, source, PARTITIONS, len(rows) + 1),
                },
            )
    bench.measure(
        "new client to first record acknowledged",
        "ms",
        {
            "odradek": partial(clients.odradek_first_sent, servers, topic),
            PEER: partial(clients.confluent_first_sent, servers, topic),
        },
    )
    bench.measure(
        "new client to first record read",
        "ms",
        {
            "odradek": partial(clients.odradek_first_read, servers, source, PARTITIONS),
            PEER: partial(clients.confluent_first_read, servers, source, PARTITIONS),
        },
    )
    bench.measure(
        "import",
        "ms",
        {
            "odradek": partial(import_time, "odradek"),
            PEER: partial(import_time, "confluent_kafka"),
        },
    )
    bench.measure(
        "import what a producer needs",
        "ms",
        {
            "odradek": partial(import_time, "odradek.api.producer, odradek.runtime"),
            PEER: partial(import_time, "confluent_kafka"),
        },
    )


def machine() -> dict[str, Any]:
    """What it ran on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _lines(Path("/proc/cpuinfo"))
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_before": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def versions(kafka: str) -> dict[str, str]:
    """Of everything that takes part."""
    names = ("odradek", PEER, "pyarrow", "zstandard")
    found = {name: importlib.metadata.version(name) for name in names}
    return {**found, "librdkafka": clients.librdkafka_version(), "kafka": kafka}


def skipped() -> list[str]:
    """Peers that aren't installed (and wouldn't be measured if they were: no code for them yet)."""
    return [name for name, module in ABSENT.items() if importlib.util.find_spec(module) is None]


def print_table(report: dict[str, Any]) -> None:
    """The report for people."""
    layout = "{:46s}{:>32s}{:>32s}{:>9s}"
    print("\n" + layout.format("", "odradek", PEER, "speed"))
    for row, result in report["rows"].items():
        cells = [
            f"{c['median']:,.0f} ({c['min']:,.0f} to {c['max']:,.0f})"
            for c in (result["clients"]["odradek"], result["clients"][PEER])
        ]
        name = f"{row} [{result['unit']}]"
        print(layout.format(name, *cells, f"{result['speed_ratio']:.2f}x"))
    print(
        f"\nMedians of {report['runs']} runs (range). speed: Odradek's relative to {PEER}'s; "
        "above 1 is faster."
    )
    print(f"Record kernel: {report['kernel']}. {KERNEL_NOTE}")
    for name in report["skipped"]:
        print(f"Skipped: {name} (not installed)")
    print("Versions:", ", ".join(f"{k} {v}" for k, v in report["versions"].items()))
    at = report["machine"]
    load = at["load_before"][0]
    print(f"Machine: {at['cpu']}, {at['cores']} cores, Python {at['python']}, load {load:.1f}")
    if load > 0.5:
        print("Something else ran on this machine: read the ranges, not only the medians.")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Odradek and its peers, side by side.")
    parser.add_argument("--records", type=int, default=200_000, help="per run (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="counted ones (%(default)s)")
    parser.add_argument("--brokers", type=int, default=1, help="of the cluster (%(default)s)")
    parser.add_argument("--json", type=Path, default=ROOT / "artifacts" / "bench.json")
    options = parser.parse_args()
    if options.records < 1 or options.runs < 1:
        parser.error("--records and --runs must be 1 or more")
    about = machine()
    begin = time.monotonic()
    bench = Bench(options.records, options.runs)
    with LocalCluster(brokers=options.brokers) as cluster:
        measure_all(bench, cluster)
        kafka = cluster.version
    report = {
        "rows": bench.summary(),
        "records": options.records,
        "runs": options.runs,
        "brokers": options.brokers,
        "partitions": PARTITIONS,
        "kernel": KERNEL,
        "note": KERNEL_NOTE,
        "skipped": skipped(),
        "versions": versions(kafka),
        "machine": about,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print_table(report)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"Written to {options.json}")


if __name__ == "__main__":
    main()
