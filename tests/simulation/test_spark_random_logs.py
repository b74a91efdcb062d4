"""Random changes of a log under a Spark query: which records it delivers, and how often (R-ID-6).

Each value is written once, so a delivered row is judged by its value and offset. Without loss
allowed, a query ends with `DataLossError` only if records were lost, and skips and repeats nothing
before. With loss allowed, it delivers each record of the final log once.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.simulation.test_spark_log_changes import Query
from tests.volume import some

from odradek.common.errors import KafkaError
from odradek.simulation.brokers.disturbances import (
    left_logs,
    lost_values,
    recreate_topic,
    unclean_election,
)
from odradek.spark.problems import DataLossError
from odradek.testing.simulated import KafkaSimulation

STEPS = 30


class RandomQuery:
    """A query, workers that keep their clients, and a log that changes."""

    def __init__(self, simulation: KafkaSimulation, rng: random.Random, *, fails: bool) -> None:
        self.simulation, self.cluster, self.rng = simulation, simulation.cluster, rng
        limit = {"maxOffsetsPerTrigger": "7"} if rng.random() < 0.3 else {}
        self.query = Query(simulation, failOnDataLoss=str(fails), outageTolerance="600s", **limit)
        self.workers = [self.query.worker, self.query.new_worker()]
        self.pending: dict[str, Any] | None = None
        self.serial = 0
        self.losses = 0
        self.happened: list[str] = []

    # Faults and batches

    def write(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            self.simulation.send("t", b"%d" % self.serial)
            self.serial += 1
        self.simulation.advance(self.rng.choice((0.1, 2.0)))

    def freeze(self) -> None:
        leader = self.cluster.leader("t", 0)
        if leader is not None and not any(b.zombie for b in self.cluster.brokers.values()):
            frozen, seconds = self.rng.choice((0.0, 3.0)), self.rng.choice((2.0, 8.0, 20.0))
            self.cluster.zombie_leader(leader.id, frozen, seconds)
            self.simulation.advance(self.rng.choice((0.1, 3.0)))

    def elect(self) -> None:
        self.cluster.hand_over("t", 0)
        self.simulation.advance(0.2)

    def cut(self) -> None:
        self.losses += 1
        unclean_election(self.cluster, "t", 0, self.rng.randrange(1, 6))
        self.simulation.advance(0.2)

    def recreate(self) -> None:
        self.losses += 1
        recreate_topic(self.cluster, "t")
        self.simulation.advance(1.0)

    def restart(self) -> None:
        some_broker = self.rng.choice(list(self.cluster.brokers.values()))
        self.query.driver.config = (
            {"bootstrap.servers": str(some_broker.address)} if self.rng.random() < 0.5 else {}
        )
        self.query.restart_driver()

    def batch(self) -> None:
        """Plan or repeat a batch; an error other than a loss ends this attempt only."""
        query = self.query
        query.worker = self.rng.choice(self.workers)
        try:
            if self.pending is None:
                end = query.journal()
                self.pending = end if end != query.offset else None
                if self.rng.random() < 0.2:
                    return  # the driver dies before the batch, or is slow
            if self.pending is not None:
                query.finish(self.pending)
                self.pending = None
        except DataLossError:
            if query.options.fail_on_data_loss:
                raise
            self.attempt_failed()
        except KafkaError:
            self.attempt_failed()

    def attempt_failed(self) -> None:
        self.workers = [self.query.new_worker(), self.query.new_worker()]
        self.query.restart_driver()

    def step(self) -> None:
        actions = {
            self.write: 8, self.batch: 8, self.freeze: 2, self.elect: 1, self.cut: 1.5,
            self.recreate: 0.5, self.restart: 1.5,
        }  # fmt: skip
        [chosen] = self.rng.choices(list(actions), list(actions.values()))
        self.happened.append(f"{self.simulation.now:.1f} {chosen.__name__}")
        chosen()

    def drain(self) -> None:
        """End all faults, and read to the end of the log."""
        self.cluster.heal()
        self.simulation.advance(30.0)
        quiet = 0
        while quiet < 2:
            before, pending = self.query.offset, self.pending
            self.batch()
            quiet = quiet + 1 if (self.query.offset, self.pending) == (before, pending) else 0
            self.simulation.advance(2.0)

    # The judge

    def ever_written(self) -> set[bytes | None]:
        log = self.cluster.topics["t"].partitions[0].log
        found: set[bytes | None] = {*log.values(log.batches), *lost_values(self.cluster, "t", 0)}
        for old in left_logs(self.cluster, "t", 0):
            found |= set(old.values(old.batches))
        return found

    def judge(self, *, whole: bool) -> None:
        rows = self.query.rows
        story = "\n".join(self.happened)
        twice = {value: n for (_, value), n in Counter(rows).items() if n > 1}
        values = Counter(value for _, value in rows)
        twice |= {value: n for value, n in values.items() if n > 1}
        assert not twice, f"delivered twice: {twice}\n{story}"
        assert set(values) <= self.ever_written(), story
        if whole:
            there = {(row[0], row[4]) for row in self.cluster.records("t", 0)}
            assert there <= set(rows), f"not delivered: {sorted(there - set(rows))}\n{story}"


def run_schedule(seed: int, *, fails: bool) -> None:
    rng = random.Random(seed)
    with KafkaSimulation(brokers=3, seed=seed) as simulation:
        simulation.create_topic("t", partitions=1)
        run = RandomQuery(simulation, rng, fails=fails)
        lost = ""
        try:
            for _ in range(STEPS):
                run.step()
            run.drain()
        except DataLossError as error:
            lost = str(error)
        story = "\n".join([lost, *run.happened])
        assert run.losses or not lost, story
        run.judge(whole=not lost)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("seed", some(range(40), 4))
def test_no_schedule_skips_or_repeats_a_record(seed: int, fails: bool) -> None:
    run_schedule(seed, fails=fails)
