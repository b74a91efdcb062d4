"""Measure how long a Spark driver takes to plan micro-batches over very many partitions.

    .venv/bin/python -m benchmarks.spark_planning 10000 [--profile]

In: a number of partitions. Out: seconds, and the size of the offsets in Spark's log. The cluster is
simulated in the same thread, so its work is in `warm_s`, which is more than with a real cluster;
`alone_s` replaces the client's responses, and is the driver's own time. Must not: wait in the
measured time; the time that outdates responses is simulated.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pickle
import pstats
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from odradek.common.types import TopicPartition
from odradek.spark.driver.log_view import MEMORY_S
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import STREAM, parse_options
from odradek.spark.tasks.task import input_partitions
from odradek.testing.simulated import KafkaSimulation

TOPIC = "a-topic-of-very-many-partitions"
BATCHES, SOME = 5, 2
"""Numbers of timed batches: `BATCHES`, or `SOME` if each takes long."""
FAR = 10_000_000_000
"""An offset with eleven digits, as in a topic that has been used for years."""


class SkippingClock:
    """A clock whose time can be advanced without waiting."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def now(self) -> float:
        return time.monotonic() + self.skipped

    def pause(self, seconds: float) -> None:
        self.skipped += seconds


class Clients:
    """Clients of the simulated cluster, whose end offsets grow by one record at each request."""

    def __init__(self, simulation: KafkaSimulation) -> None:
        self._simulation = simulation
        self.canned = False
        self.asked = 0

    def connect(self, config: Mapping[str, Any]) -> Any:
        consumer = self._simulation.consumer(**{n.replace(".", "_"): v for n, v in config.items()})
        asking = consumer.end_offsets

        def ends(
            partitions: Collection[TopicPartition], timeout: float | None = None
        ) -> dict[TopicPartition, int]:
            self.asked += 1
            found = (
                dict.fromkeys(partitions, 0) if self.canned else asking(partitions, timeout=timeout)
            )
            return {tp: FAR + offset + self.asked for tp, offset in found.items()}

        consumer.end_offsets = ends  # type: ignore[method-assign]
        return consumer

    def drop(self, client: Any) -> None:
        client.close()


class Driver:
    """The work of Spark's driver for each micro-batch, including JSON and pickles."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._simulation = KafkaSimulation(brokers=3, checkers=False)
        self._simulation.create_topic(TOPIC, partitions)
        given = {
            "kafka.bootstrap.servers": self._simulation.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        self.clients, self._clock = Clients(self._simulation), SkippingClock()
        self._tracker = OffsetTracker(parse_options(given, STREAM), self.clients, self._clock)
        self.offset: dict[str, Any] = dict(SENTINEL)

    def batch(self) -> float:
        """Plan one batch and return the seconds that it took."""
        self._clock.skipped += 1.1 * MEMORY_S  # lets cached responses expire
        begun = time.perf_counter()
        end = json.loads(json.dumps(self._tracker.latest(self.offset)))
        self._tracker.report()
        planned = input_partitions(self._tracker.plan(self.offset, end))
        for partition in planned:
            pickle.dumps(partition)
        took = time.perf_counter() - begun
        if len(planned) != self._partitions:
            raise RuntimeError(f"{len(planned)} ranges instead of {self._partitions}")
        self.offset = end
        return took

    def close(self) -> None:
        """Close the clients and the simulated cluster."""
        self._simulation.close()


def measure(partitions: int) -> dict[str, Any]:
    """Plan some batches; raise an error if a partition is missing from a batch."""
    driver = Driver(partitions)
    try:
        first = driver.batch()
        batches = BATCHES if partitions <= 10_000 else SOME
        warm = [driver.batch() for _ in range(batches)]
        driver.clients.canned = True
        alone = [driver.batch() for _ in range(batches)]
    finally:
        driver.close()
    return {
        "partitions": partitions,
        "first_s": first,
        "warm_s": statistics.median(warm),
        "alone_s": statistics.median(alone),
        "json_bytes": len(json.dumps(driver.offset, separators=(",", ":"))),
    }


def profiled(work: Callable[[], Any]) -> Any:
    """Call a function, and print a profile of the call."""
    profiler = cProfile.Profile()
    found = profiler.runcall(work)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
    return found


def main() -> None:
    """Measure the planning and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("partitions", type=int)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()

    def work() -> dict[str, Any]:
        return measure(given.partitions)

    print(json.dumps(profiled(work) if given.profile else work(), indent=1))


if __name__ == "__main__":
    main()
