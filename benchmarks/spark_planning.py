"""How long a Spark driver takes to plan micro-batches over very many partitions.

    .venv/bin/python benchmarks/spark_planning.py 10000 [--profile]

The cluster is simulated and in the same thread, so its work is in "one batch, with the cluster's
own work"; "planning alone" replaces the answers of the client, and is what the driver adds to them.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pickle
import pstats
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from odradek.common.types import TopicPartition
from odradek.runtime.system_clock import SystemClock
from odradek.spark.offsets import SENTINEL
from odradek.spark.options import STREAM, parse_options
from odradek.spark.tasks import input_partitions
from odradek.spark.tracker import OffsetTracker
from odradek.testing.simulated import KafkaSimulation

TOPIC = "a-topic-of-very-many-partitions"


class Clients:
    """Clients of the simulated cluster, whose ends grow by one record for each question."""

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
            return {tp: offset + self.asked for tp, offset in found.items()}

        consumer.end_offsets = ends  # type: ignore[method-assign]
        return consumer

    def drop(self, client: Any) -> None:
        client.close()


def timed(what: str, work: Callable[[], Any]) -> Any:
    begun, used = time.perf_counter(), time.process_time()
    found = work()
    took, used = time.perf_counter() - begun, time.process_time() - used
    print(f"{what:60} {took:7.3f} s, {used:6.3f} s of CPU")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("partitions", type=int)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    simulation = KafkaSimulation(brokers=3, checkers=False)
    simulation.create_topic(TOPIC, given.partitions)
    options = parse_options(
        {
            "kafka.bootstrap.servers": simulation.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        },
        STREAM,
    )
    clients = Clients(simulation)
    tracker = OffsetTracker(options, clients, SystemClock())
    offset: dict[str, Any] = dict(SENTINEL)

    def batch() -> None:
        """What Spark has the driver do, its JSON included."""
        nonlocal offset
        time.sleep(0.11)  # older than what is remembered
        end = json.loads(json.dumps(tracker.latest(offset)))
        tracker.report()
        plan = tracker.plan(offset, end)
        pickled = [pickle.dumps(p) for p in input_partitions(plan)]
        if len(pickled) != given.partitions:
            raise SystemExit(f"{len(pickled)} ranges")
        offset = end

    timed("the first batch: metadata, begins and ends", batch)
    for _ in range(2):
        timed("one batch, with the cluster's own work", batch)
    clients.canned = True
    profiler = cProfile.Profile()
    if given.profile:
        profiler.enable()
    for _ in range(3):
        timed("planning alone", batch)
    if given.profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
    print(f"offsets as JSON: {len(json.dumps(offset)):,} bytes")
    simulation.close()


if __name__ == "__main__":
    main()
