"""Where the time of `send()` and of `poll_arrow()` goes: cProfile on the caller's thread.

In: how many records. Out: the ten functions with the most time of their own, for each path.
A profile makes small functions look dearer than they are: read the order, not the seconds.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from collections.abc import Callable

import clients
import data
import pyarrow  # noqa: F401 - its import is no part of what is measured

import odradek
from odradek.testing import LocalCluster


def report(title: str, work: Callable[[], None], records: int) -> None:
    """Profile once and print the top of the list."""
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    stats = pstats.Stats(profile)
    total = stats.total_tt  # type: ignore[attr-defined]  # pstats has it since ever
    print(f"\n{title}: {1e6 * total / records:.1f} µs per record under the profiler")
    entries = stats.stats  # type: ignore[attr-defined]
    top = sorted(entries.items(), key=lambda item: -item[1][2])[:10]
    for (path, _, name), (_, calls, own, _, _) in top:
        module = path.rpartition("odradek/")[2] if "odradek/" in path else ""
        print(f"  {100 * own / total:4.1f} %  {calls / records:6.2f} calls  {module} {name}")


def main() -> None:
    """Profile both paths on a cluster of one broker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    records = parser.parse_args().records
    rows = data.records(records)
    with LocalCluster(brokers=1) as cluster:
        servers = cluster.bootstrap_servers
        clients.create_topic(servers, "profile", 3)
        with odradek.Producer({"bootstrap.servers": servers}) as producer:
            producer.send("profile", b"first").result(timeout=30)

            def send() -> None:
                for key, value in rows:
                    producer.send("profile", value, key)

            report("send()", send, records)
            producer.flush(timeout=60)
        with odradek.Consumer(
            {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
        ) as consumer:
            consumer.assign(consumer.partitions_for("profile", timeout=10))
            consumer.poll(timeout=30, max_records=1)

            def read() -> None:
                seen = 0
                while seen < records and (batch := consumer.poll_arrow(timeout=30)) is not None:
                    seen += batch.num_rows

            report("poll_arrow()", read, records)


if __name__ == "__main__":
    main()
