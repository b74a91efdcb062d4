"""Test queries whose log changes on real brokers: an unclean election, a leader that was frozen.

All variants are in `tests/simulation/test_spark_log_changes.py`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import Query

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.runtime.system_clock import SystemClock
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import STREAM, parse_options
from odradek.spark.tasks.reading import RangeReader
from odradek.spark.tasks.worker_clients import make_consumer
from odradek.spark.values.schema import arrow_schema, full_schema
from odradek.testing import LocalCluster

SETTINGS = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, config=SETTINGS) as running:
        yield running


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition didn't become true"
        time.sleep(0.1)


class Log:
    """Partition with an admin client and a producer."""

    numbers = itertools.count()

    def __init__(self, cluster: LocalCluster, replicas: int, closing: ExitStack) -> None:
        at = cluster.bootstrap_servers
        self.admin = closing.enter_context(Admin(bootstrap_servers=at))
        # A producer that starts while the controller is frozen gets its id after 30 s.
        self._producer = closing.enter_context(Producer(bootstrap_servers=at))
        self._replicas = replicas

    def create(self, **config: str) -> TopicPartition:
        self.tp = TopicPartition(f"changes-{next(self.numbers)}", 0)
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(self.tp.topic, 1, self._replicas, configs=settings)])
        return self.tp

    def described(self) -> Any:
        return self.admin.describe_topics([self.tp.topic])[self.tp.topic].partitions[0]

    def write(self, numbers: range) -> None:
        for n in numbers:
            self._producer.send(self.tp.topic, b"%d" % n)
        self._producer.flush(60)


def elect_uncleanly(log: Log, broker: int) -> None:
    """Elect a replica as leader that lacks records."""

    def leads() -> bool:
        with suppress(KafkaError):  # the broker isn't registered yet
            log.admin.elect_leaders("UNCLEAN", [log.tp], timeout=5)
        return bool(log.described().leader == broker)

    until(leads)


@pytest.mark.long
def test_other_records_at_the_same_offsets_are_reported_as_data_loss(
    cluster: LocalCluster, stream: Callable[[str], Query]
) -> None:
    """Check R-ID-6: without it the 40 new records below the checkpoint's offset were lost."""
    with ExitStack() as closing:
        log = Log(cluster, 2, closing)
        log.create(unclean_leader_election_enable="true", min_insync_replicas="1")
        log.write(range(60))
        at = log.described()
        first, second = at.leader, next(i for i in at.replicas if i != at.leader)
        cluster.kill(second)
        until(lambda: log.described().isr == (first,))
        log.write(range(60, 100))
        job = stream(log.tp.topic)
        job.run(startingOffsets="earliest")
        assert job.values() == list(range(100))
        cluster.kill(first)
        cluster.start(second)
        elect_uncleanly(log, second)
        log.write(range(1000, 1060))
        cluster.start(first)
        with pytest.raises(StreamingQueryException) as caught:
            job.run()
        assert f"{log.tp}: the records at offsets 60 to 99 (40 offsets) were lost" in str(
            caught.value
        )
        job.run(failOnDataLoss="false")
        assert job.values() == [*range(100), *range(1000, 1060)]


class Process:
    """Clients of a driver or worker, with the options of the query."""

    def __init__(self, address: str, topic: str, closing: ExitStack) -> None:
        given = {"kafka.bootstrap.servers": address, "subscribe": topic, "failOnDataLoss": "false"}
        self.options = parse_options({**given, "startingOffsets": "earliest"}, STREAM)
        self.clock = SystemClock()
        self._closing = closing

    def connect(self, config: Any) -> Consumer:
        return self._closing.enter_context(make_consumer(config, None))

    def drop(self, client: Consumer) -> None:
        client.close()

    def tracker(self) -> OffsetTracker:
        return OffsetTracker(self.options, self, self.clock)

    def read(self, plan: Any, client: Consumer) -> list[int]:
        target = pa.schema([arrow_schema(full_schema(include_headers=False)).field("value")])
        found: list[int] = []
        for wanted in plan.ranges:
            topic_id = plan.topic_ids[wanted.tp.topic]
            reader = RangeReader(client, wanted, topic_id, self.options, self.clock)
            for batch in reader.batches(("value",), target):
                found += [int(value.as_py()) for value in batch.column("value")]
        client.assign([])
        return found


@pytest.mark.long
def test_a_frozen_leader_causes_no_lost_or_repeated_records(cluster: LocalCluster) -> None:
    """Check R-ID-6: without it the task skipped its range and the driver repeated 100 records."""
    with ExitStack() as closing, ThreadPoolExecutor() as threads:
        log = Log(cluster, 3, closing)
        zombie = log.admin.describe_metadata_quorum().leader_id
        while log.create() and log.described().leader != zombie:
            pass
        at = next(b for b in log.admin.describe_cluster().brokers if b.id == zombie)
        usual = Process(cluster.bootstrap_servers, log.tp.topic, closing)
        worker = usual.connect(usual.options.consumer_config(None))
        log.write(range(100))
        driver = usual.tracker()
        first = driver.latest(SENTINEL)
        assert usual.read(driver.plan(SENTINEL, first), worker) == list(range(100))
        cluster.pause(zombie)
        until(lambda: log.described().leader not in (None, zombie))
        log.write(range(100, 170))
        driver = usual.tracker()
        second = driver.latest(first)
        plan = driver.plan(first, second)
        assert [(r.start, r.until) for r in plan.ranges] == [(100, 170)]
        others = [i for i in cluster.running if i != zombie]
        for i in others:
            cluster.pause(i)
        cluster.resume(zombie)  # the frozen leader still leads by its own metadata at first
        rows = threads.submit(usual.read, plan, worker)
        restarted = Process(f"{at.host}:{at.port}", log.tp.topic, closing).tracker()
        end = threads.submit(restarted.latest, second)
        until(lambda: "older" in str(worker.explain()))
        assert end.result(60) == second
        for i in others:
            cluster.resume(i)
        assert rows.result(90) == list(range(100, 170))
        log.write(range(170, 175))
        until(lambda: restarted.latest(second) != second)
        found = restarted.plan(second, restarted.latest(second))
        assert usual.read(found, worker) == list(range(170, 175))
        restarted.stop()
