"""Simulate clusters that one machine can't run: 100 brokers, 100,000 topics.

In: `python -m benchmarks.stand_in BROKERS PARTITIONS RECORDS TOPICS SIZE`; then, on standard input,
lines with two times (seconds of the epoch). Out: a line with the bootstrap address once all topics
and records exist; for each input line, the number of requests between the two times. The brokers
are the simulation's, on loopback sockets (users have them as `FakeCluster` in `odradek.testing`),
in a separate process, so that their CPU time isn't a client's. All clients use the same process.
Must not: be used to measure a broker: it is slow, but has no disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field

from odradek.record import read_header
from odradek.record.columns import CREATE_TIME
from odradek.record.reference import encode
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers import fetch_sessions
from odradek.simulation.logs.topics import SimulatedTopic
from odradek.testing.fake import loopback

READ = "read"
"""Name of the topic that clients read; the other topics only exist."""
VALUE = (
    b'{"id":10000000,"ev":"click","city":"berlin","page":"/p/4711","ms":1200,"amt":99.99,"ua":"O"}'
)
_BATCH_BYTES = 120_000
_MADE_MS = 1_700_000_000_000
_SAMPLED_EVERY = 0.05
_CONNECTIONS = 20_000


@dataclass(frozen=True, slots=True)
class StandIn:
    """Size of a simulated cluster; `records` is the number in a partition of topic `READ`."""

    brokers: int = 3
    partitions: int = 1
    records: int = 20
    topics: int = 1
    value_size: int = 100


@dataclass(slots=True)
class Counts:
    """Samples of the number of handled requests, with their times."""

    times: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)

    def add(self, when: float, total: int) -> None:
        """Add a sample of the present time and number."""
        self.times.append(when)
        self.totals.append(total)

    def between(self, begin: float, end: float) -> int:
        """Return the number of requests between two times, with the precision of the samples."""
        first, last = (max(0, bisect_right(self.times, at) - 1) for at in (begin, end))
        return self.totals[last] - self.totals[first] if self.totals else 0


def fill(topic: SimulatedTopic, records: int, value_size: int) -> None:
    """Fill each partition of the topic `READ` with equal batches."""
    value = (VALUE * (1 + value_size // len(VALUE)))[:value_size]
    in_a_batch = min(records, max(1, _BATCH_BYTES // value_size))
    keys = (b"user-%011d" % n for n in range(in_a_batch))
    data = encode((n, _MADE_MS, CREATE_TIME, key, value, ()) for n, key in enumerate(keys))
    header = read_header(memoryview(data))
    for partition in topic.partitions:
        while partition.log.end_offset < records:
            partition.log.commit(partition.log.append(data, header, partition.leader_epoch))


@contextmanager
def running(shape: StandIn) -> Iterator[SimulatedCluster]:
    """Run the cluster in a thread of this process, with higher limits than `FakeCluster` has."""
    loopback.LARGEST_REQUEST = loopback.LARGEST_PRODUCE
    loopback.MOST_CONNECTIONS = _CONNECTIONS
    loopback.HELD_BYTES = 1 << 30
    fetch_sessions.LARGEST_CACHE = 1000  # Kafka's default value

    def make() -> SimulatedCluster:
        cluster = SimulatedCluster(server, shape.brokers, bootstrap_name=None)
        for broker in cluster.brokers.values():
            broker.processing = 0.0
        fill(cluster.create_topic(READ, shape.partitions), shape.records, shape.value_size)
        for n in range(1, shape.topics):
            cluster.create_topic(f"orders-of-region-{n:06d}")
        return cluster

    server = loopback.LoopbackServer()
    cluster = make()  # not in the server's thread, whose calls time out after ten seconds
    with server:
        yield cluster


def main() -> None:
    """Serve the cluster until standard input ends."""
    shape = StandIn(*map(int, sys.argv[1:]))
    counts = Counts()
    with running(shape) as cluster:
        brokers = list(cluster.brokers.values())

        def look() -> None:
            while True:
                counts.add(time.time(), sum(sum(b.requests.values()) for b in brokers))
                time.sleep(_SAMPLED_EVERY)

        threading.Thread(target=look, daemon=True).start()
        print(cluster.bootstrap_servers, flush=True)
        for line in sys.stdin:
            begin, end = map(float, line.split())
            print(json.dumps(counts.between(begin, end)), flush=True)


class StandIns:
    """The process with the simulated cluster that was requested last."""

    def __init__(self) -> None:
        self._shape: StandIn | None = None
        self._process: subprocess.Popen[str] | None = None
        self._bootstrap = ""

    def bootstrap(self, shape: StandIn) -> str:
        """Return the bootstrap address of a cluster of this size."""
        if shape != self._shape:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.stand_in", *map(str, astuple(shape))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self._shape, self._bootstrap = shape, self._line()
        return self._bootstrap

    def requests(self, begin: float, end: float) -> int:
        """Return how many requests the cluster has handled between two times."""
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("no stand-in runs")
        self._process.stdin.write(f"{begin} {end}\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        if self._process is None or self._process.stdout is None:
            raise RuntimeError("no stand-in runs")
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the simulated cluster has ended")
        return line

    def close(self) -> None:
        """End the process of the cluster."""
        process, self._process, self._shape = self._process, None, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


if __name__ == "__main__":
    main()
