"""Spark queries while logs change randomly: delivered records, and how often (R-ID-6).

A row is checked by topic id, partition, offset and value: the id is the one that its batch was
planned with, and no other log may have the row. Without loss allowed, a query ends with
`DataLossError` only if records were lost, and otherwise delivers all records that a log ever had
below its end. With loss allowed, it delivers each record of the final logs once.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.test_spark_log_changes import Query, without_epochs
from tests.volume import some

from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.simulation.brokers.broker_faults import (
    delete_records,
    grow_topic,
    recreate_topic,
    unclean_election,
)
from odradek.simulation.logs.partition_log import PartitionLog, StoredBatch
from odradek.simulation.logs.topics import SimulatedTopic
from odradek.spark.checkpoint_errors import DataLossError
from odradek.spark.driver.discovery import UnconfirmedObservation
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.tasks.worker_clients import ClientCache, known_topic_id
from odradek.testing.simulated import KafkaSimulation

STEPS = 30
ATTEMPTS = 3
"""Attempts of a task before its batch fails and the query restarts."""
QUIET = 3
"""Batches without new records after which a query has read all."""

BY_NAME = {FetchRequest.API_KEY: (4, 12)}
"""Versions of Kafka 2.8 to 3.0: topics have ids, but fetches contain names."""

IdRow = tuple[str | None, int, int, bytes | None]
"""Topic id, partition, offset and value."""


class Worker:
    """A worker process. It keeps its client between tasks, and unconfirmed losses in a batch."""

    def __init__(self, query: RandomRows) -> None:
        self.query = query
        self.clients = ClientCache(self._consumer, clock=query.driver, after=_never)
        self.batch: dict[str, Any] | None = None
        self.doubt: UnconfirmedObservation | None = None

    def _consumer(self, config: Any, _: Any) -> Any:
        return self.query.new_worker(**config)

    def run(self, wanted: KafkaOffsetRange, topic_id: str | None, attempt: int) -> list[IdRow]:
        """Run one attempt of a task, as `task._read_range` does."""
        query = self.query
        if self.batch is not query.end:
            self.batch, self.doubt = query.end, UnconfirmedObservation(query.options, query.driver)
        config = dict(query.driver.config)
        client = self.clients.connect(config, fresh=attempt > 0)
        known = known_topic_id(client, wanted.tp.topic)
        if None not in (known, topic_id) and known != topic_id:
            client = self.clients.connect(config, fresh=True)
        query.worker, query.doubt = client, self.doubt
        try:
            rows = query.task(wanted, topic_id)
        except KafkaError:
            self.clients.drop(client)
            raise
        finally:
            self.clients.release(client)
        return [(topic_id, wanted.tp.partition, offset, value) for offset, value in rows]


def _never(_seconds: float, _action: Callable[[], None]) -> None:
    """Never run the action, so idle clients stay open."""


class RandomRows(Query):
    """A query whose tasks run in several workers and attempts."""

    def __init__(self, simulation: KafkaSimulation, rng: random.Random, **options: str) -> None:
        super().__init__(simulation, **options)
        self.rng = rng
        self.workers = [Worker(self), Worker(self)]
        self.id_rows: list[IdRow] = []
        self.end: dict[str, Any] | None = None

    def run(self, end: dict[str, Any]) -> None:
        """Run a journalled batch to its end."""
        self.end = end
        plan = self.tracker.plan(self.offset, end)
        found: list[IdRow] = []
        for wanted in plan.ranges:
            found += self._attempts(wanted, plan.topic_ids.get(wanted.tp.topic))
        self.id_rows += found
        self.offset = end
        self.simulation.advance(1.0)

    def _attempts(self, wanted: KafkaOffsetRange, topic_id: str | None) -> list[IdRow]:
        for attempt in range(ATTEMPTS):
            try:
                return self.rng.choice(self.workers).run(wanted, topic_id, attempt)
            except KafkaError:
                if attempt + 1 == ATTEMPTS:
                    raise
        raise AssertionError

    def ended(self) -> None:
        """Replace the driver and the workers."""
        self.workers = [Worker(self), Worker(self)]
        self.restart_driver()


class RandomQuery:
    """A query, and the logs that change while it runs."""

    def __init__(self, simulation: KafkaSimulation, rng: random.Random, *, fails: bool) -> None:
        self.simulation, self.cluster, self.rng = simulation, simulation.cluster, rng
        self.fails = fails
        self.partitions = rng.choice((1, 2, 3))
        simulation.create_topic("t", partitions=self.partitions)
        options = {}
        if rng.random() < 0.3:
            options["maxOffsetsPerTrigger"] = "7"
        if rng.random() < 0.2:
            options["maxRecordsPerPartition"] = "4"
        self.query = RandomRows(
            simulation, rng, failOnDataLoss=str(fails), outageTolerance="600s", **options
        )
        self.without_epochs = rng.random() < 0.25
        """Whether offsets have the JVM connector's form, which can't show a truncation."""
        self.pending: dict[str, Any] | None = None
        self.first: dict[str, Any] | None = None
        """The first journalled end, at which the query starts."""
        self.frozen = False
        self.losses_left = rng.choice((0, 1, 2)) if fails else STEPS
        self.futures: list[Any] = []
        self.happened: list[str] = []

    # Faults, which may happen in the middle of a batch

    def partition(self) -> int:
        found = self.cluster.topics.get("t")
        return self.rng.randrange(len(found.partitions)) if found is not None else 0

    def freeze(self) -> None:
        found = self.cluster.topics.get("t")
        if found is None or any(b.zombie for b in self.cluster.brokers.values()):
            return
        leader = self.cluster.leader("t", self.partition())
        if leader is not None:
            frozen, seconds = self.rng.choice((0.0, 3.0)), self.rng.choice((2.0, 8.0, 20.0))
            self.cluster.zombie_leader(leader.id, frozen, seconds)

    def elect(self) -> None:
        if "t" in self.cluster.topics:
            self.cluster.hand_over("t", self.partition())

    def cut(self) -> None:
        unclean_election(self.cluster, "t", self.partition(), self.rng.randrange(1, 4))

    def recreate(self) -> None:
        after = self.rng.choice((0.0, 0.0, 1.0, 15.0))
        recreate_topic(self.cluster, "t", self.rng.randint(1, self.partitions), after)

    def retain(self) -> None:
        delete_records(self.cluster, "t", self.partition(), self.rng.choice((0.3, 0.7, 1.0)))

    def grow(self) -> None:
        if "t" in self.cluster.topics and self.partitions < 4:
            self.partitions += 1
            grow_topic(self.cluster, "t", 1)

    def bounce(self) -> None:
        self.cluster.bounce(self.rng.choice(list(self.cluster.brokers)), after=3.0)

    def fault(self) -> None:
        faults = {self.freeze: 4, self.elect: 2, self.grow: 0.5, self.bounce: 0.5}
        losses = {self.cut: 4, self.recreate: 3, self.retain: 1}
        if self.without_epochs:
            del losses[self.cut]
        if self.losses_left:
            faults |= losses
        [chosen] = self.rng.choices(list(faults), list(faults.values()))
        self.losses_left -= chosen in losses
        self.happened.append(f"{self.simulation.now:.1f} {chosen.__name__}")
        chosen()

    # Steps

    def write(self) -> None:
        for _ in range(self.rng.choice((1, 5, 20, 50))):
            value = b"%d" % len(self.futures)
            self.futures.append(self.simulation.send("t", value, key=value))
        self.simulation.advance(self.rng.choice((0.1, 2.0)))

    def fault_now(self) -> None:
        """Cause a fault just after a batch, often followed by writes before the next plan."""
        if self.rng.random() < 0.5:
            self.batch()
        self.fault()
        self.simulation.advance(self.rng.choice((0.1, 0.2, 1.0, 3.0)))
        if self.rng.random() < 0.8:
            self.write()
        if any(b.zombie for b in self.cluster.brokers.values()) and self.rng.random() < 0.5:
            self.batch()
            self.restart()
            self.batch()

    def fault_later(self) -> None:
        self.simulation.after(self.rng.choice((0.01, 0.1, 1.0, 5.0, 12.0)), self.fault)

    def restart(self) -> None:
        """Start a new driver, which often asks one broker first: a stale broker if possible."""
        brokers = list(self.cluster.brokers.values())
        met = next((b for b in brokers if b.zombie), self.rng.choice(brokers))
        self.query.driver.config = (
            {"bootstrap.servers": str(met.address)} if self.rng.random() < 0.5 else {}
        )
        self.query.restart_driver()
        self.frozen = self.rng.random() < 0.2
        if self.frozen:
            self.query.tracker.freeze()

    def batch(self) -> None:
        """Plan or repeat a batch; errors other than a loss only end this attempt."""
        query = self.query
        try:
            if self.pending is None:
                end = query.journal()
                if end == query.offset:
                    if self.frozen:
                        self.restart()
                    return
                self.pending = without_epochs(end) if self.without_epochs else end
                self.first = self.first or end
                if self.rng.random() < 0.2:
                    return  # a slow driver, or one that fails before the batch
            query.run(self.pending)
            self.pending = None
        except DataLossError:
            if self.fails:
                raise
            self.attempt_failed()
        except KafkaError:
            self.attempt_failed()

    def attempt_failed(self) -> None:
        self.happened.append(f"{self.simulation.now:.1f} attempt failed")
        self.query.ended()
        self.frozen = False

    def step(self) -> None:
        actions = {
            self.write: 5, self.batch: 8, self.fault_now: 8, self.fault_later: 2.5,
            self.restart: 2.5,
        }  # fmt: skip
        [chosen] = self.rng.choices(list(actions), list(actions.values()))
        self.happened.append(f"{self.simulation.now:.1f} {chosen.__name__}")
        chosen()

    def drain(self) -> None:
        """End all faults, and read to the ends of the logs."""
        self.simulation.advance(13.0)  # after the last fault, and the recreation of topics
        self.simulation.advance(16.0)
        self.cluster.heal()
        assert self.simulation.run_while(lambda: not all(f.done() for f in self.futures), 200.0)
        self.simulation.advance(40.0)  # the driver describes topics every 30 s
        quiet = 0
        for _ in range(200):
            before = self.query.offset, self.pending
            self.batch()
            quiet = quiet + 1 if (self.query.offset, self.pending) == before else 0
            self.simulation.advance(2.0)
            if quiet == QUIET:
                return
        raise AssertionError("the query doesn't reach the ends of the logs")

    # Checks

    def topics(self) -> Iterator[tuple[bool, SimulatedTopic]]:
        """Return all topics that the query may have read, and whether they still exist."""
        for old in self.cluster.deleted:
            yield False, old
        for there in self.cluster.topics.values():
            yield True, there

    def logs(self) -> Iterator[tuple[bool, str, int, PartitionLog]]:
        for there, topic in self.topics():
            if topic.name == "t":
                for partition in topic.partitions:
                    yield there, str(UUID(bytes=topic.id)), partition.index, partition.log

    def judge(self) -> None:
        rows, ever = Counter(self.query.id_rows), Counter[IdRow]()
        for _, topic_id, index, log in self.logs():
            for batches in (log.batches, log.lost):
                ever.update(in_log(topic_id, index, log, batches))
        assert not rows - ever, f"delivered too often, or from another log: {rows - ever}"
        values, written = (Counter(row[3] for row in c.elements()) for c in (rows, ever))
        assert not values - written, f"delivered twice: {values - written}"

    def judge_end(self) -> None:
        """Check the delivered records of a query that has read to the ends of the logs."""
        rows = set(self.query.id_rows)
        begins = (self.first or {}).get("from", {}).get("t", {})
        for there, topic_id, index, log in self.logs():
            if there or self.fails:
                now = set(in_log(topic_id, index, log, log.batches))
                first = begins.get(str(index), 0) if self.fails else log.start_offset
                wanted = {row for row in now if there and row[2] >= first}
                assert wanted <= rows, f"not delivered: {sorted(wanted - rows)}"
                here = {row for row in rows if row[:2] == (topic_id, index)}
                kept = now if there else set()
                assert not self.fails or here <= kept, f"lost silently: {sorted(here - kept)}"

    def judge_loss(self, error: DataLossError) -> None:
        """Check a loss that ended the query: each partition that it names has lost records."""
        named = {int(n) for n in re.findall(r"\bt-(\d+)", str(error))}
        if re.search(r"topic t was deleted", str(error)) or not named:
            assert self.cluster.deleted
            return
        for index in named:
            assert self.cluster.deleted or self.has_lost(index), f"t-{index} has lost nothing"

    def has_lost(self, index: int) -> bool:
        tp, rows = TopicPartition("t", index), set(self.query.id_rows)
        ends = (self.pending or self.query.offset).get("o", {}).get("t", {})
        end = ends.get(str(tp.partition), 0)
        for _, topic_id, found, log in self.logs():
            if found == index:
                cut = set(in_log(topic_id, index, log, log.lost))
                aged = [
                    row
                    for row in in_log(topic_id, index, log, log.batches)
                    if row[2] < log.start_offset
                ]
                if any(row in rows or row[2] < end for row in cut) or set(aged) - rows:
                    return True
        return False


def in_log(
    topic_id: str, index: int, log: PartitionLog, batches: list[StoredBatch]
) -> Iterator[IdRow]:
    for batch in batches:
        if batch.committed:
            for row in log._rows(batch):
                yield topic_id, index, row[0], row[4]


def run_schedule(seed: int, *, fails: bool) -> None:
    rng = random.Random(seed)
    versions = BY_NAME if seed % 4 == 1 else {}
    with KafkaSimulation(brokers=3, seed=seed, versions=versions) as simulation:
        run = RandomQuery(simulation, rng, fails=fails)
        lost = ""
        try:
            try:
                for _ in range(STEPS):
                    run.step()
                run.drain()
            except DataLossError as error:
                lost = str(error)
                run.judge_loss(error)
            run.judge()
            if not lost:
                run.judge_end()
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), lost, *run.happened])) from error


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("seed", some(range(40), 4))
def test_no_record_is_skipped_or_repeated_in_any_schedule(seed: int, fails: bool) -> None:
    run_schedule(seed, fails=fails)
