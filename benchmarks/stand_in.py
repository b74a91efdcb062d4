"""A stand-in for clusters that one machine can't hold: 100 brokers, 100,000 topics.

In: `python -m benchmarks.stand_in BROKERS PARTITIONS RECORDS TOPICS SIZE`; then, on standard input,
lines of two times (seconds of the epoch). Out: a line with the bootstrap address once all is there;
for each line that comes in, how many requests were worked on between these two times. The brokers
are the simulation's, on loopback sockets (users have them as `FakeCluster` in `odradek.testing`),
in a process of their own, so that their CPU time isn't a client's. One serves all clients alike.
Must not: be a measure of a broker: it is slow, and answers at once what a disk would have to give.
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
"""The topic that clients read; the others are there to be in the way."""
VALUE = (
    b'{"id":10000000,"ev":"click","city":"berlin","page":"/p/4711","ms":1200,"amt":99.99,"ua":"O"}'
)
_BATCH_BYTES = 120_000
_MADE_MS = 1_700_000_000_000
_SAMPLED_EVERY = 0.05
_CONNECTIONS = 20_000


@dataclass(frozen=True, slots=True)
class StandIn:
    """What a cluster has: `records` are those of a partition of the topic that is read."""

    brokers: int = 3
    partitions: int = 1
    records: int = 20
    topics: int = 1
    value_size: int = 100


@dataclass(slots=True)
class Counts:
    """How many requests had been worked on, and when."""

    times: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)

    def add(self, when: float, total: int) -> None:
        """A look."""
        self.times.append(when)
        self.totals.append(total)

    def between(self, begin: float, end: float) -> int:
        """Requests between two times, as exact as the looks are close."""
        first, last = (max(0, bisect_right(self.times, at) - 1) for at in (begin, end))
        return self.totals[last] - self.totals[first] if self.totals else 0


def fill(topic: SimulatedTopic, records: int, value_size: int) -> None:
    """The same batch in each partition, as often as it takes."""
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
    """The cluster, in a thread of this process. Its limits are those for strangers: they go up."""
    loopback.LARGEST_REQUEST = loopback.LARGEST_PRODUCE
    loopback.MOST_CONNECTIONS = _CONNECTIONS
    loopback.HELD_BYTES = 1 << 30
    fetch_sessions.LARGEST_CACHE = 1000  # Kafka's

    def make() -> SimulatedCluster:
        cluster = SimulatedCluster(server, shape.brokers, bootstrap_name=None)
        for broker in cluster.brokers.values():
            broker.processing = 0.0
        fill(cluster.create_topic(READ, shape.partitions), shape.records, shape.value_size)
        for n in range(1, shape.topics):
            cluster.create_topic(f"orders-of-region-{n:06d}")
        return cluster

    server = loopback.LoopbackServer()
    cluster = make()  # before the thread runs: a call into it has ten seconds
    with server:
        yield cluster


def main() -> None:
    """Serve until standard input ends."""
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
    """The cluster of the shape that was asked for last; another one takes its place."""

    def __init__(self) -> None:
        self._shape: StandIn | None = None
        self._process: subprocess.Popen[str] | None = None
        self._bootstrap = ""

    def bootstrap(self, shape: StandIn) -> str:
        """The address of a cluster of this shape."""
        if shape != self._shape:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.stand_in", *map(str, astuple(shape))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self._shape, self._bootstrap = shape, self._line()
        return self._bootstrap

    def requests(self, begin: float, end: float) -> int:
        """How many requests it worked on between two times."""
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
            raise RuntimeError("the stand-in has ended")
        return line

    def close(self) -> None:
        """End it."""
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
