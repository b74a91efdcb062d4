"""Run the exactly-once sink under random schedules of drivers, tasks and zombies.

In: a seed. Out: the records that read_committed returns, and violations. Each driver and each task
attempt has its own thread, but only one thread runs at a time: before each request, the thread
waits for the scheduler, which lets a randomly chosen thread continue. Drivers die or are replaced
while they still run, tasks fail and continue as zombies, batches are planned again with other tasks
or other rows, transactions time out, and responses are lost.
"""

from __future__ import annotations

import logging
import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.memory_producer import MemoryLog

from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.spark.options.option_table import STREAM
from odradek.spark.sink import exactly_once
from odradek.spark.sink.batch_commit import abort_batch, commit_batch
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.sink_clients import ProducerCache
from odradek.spark.sink.sink_errors import ReplayError
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import parse_sink_options
from odradek.spark.sink.sink_schema import SinkColumns

BATCHES = 2
ATTEMPTS = 6
COMMIT_STEPS = 14
"""A driver that is to die during its commit dies within this number of steps."""
ROWS = 6
OPTIONS = parse_sink_options(
    {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery": "exactly_once"}, STREAM
)


class DiedError(BaseException):
    """Raised in a process's thread when the process is killed."""


@dataclass
class Clock:
    at: float = 0.0

    def now(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        self.at += seconds


class Actor:
    """A process that the scheduler runs one step at a time."""

    def __init__(self, work: Callable[[], Any], run: str) -> None:
        self._work, self.run = work, run
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.killed = self.done = False
        self.frozen_until = 0
        """The scheduler's step number from which on the process may run."""
        self.ends_in = -1
        """Steps until the driver dies or is taken for dead; negative if neither will happen."""
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if self.killed:
                raise DiedError
            self.result = self._work()
        except BaseException as error:
            self.error = error
        self.done = True
        self._back.release()

    def resume(self) -> None:
        """Run the process for one step."""
        self._go.release()
        self._back.acquire()

    def step(self) -> None:
        """Return control to the scheduler; called in the actor's own thread."""
        if self.killed:
            raise DiedError
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise DiedError

    def kill(self) -> None:
        self.killed = True
        if not self.done:
            self.resume()


@dataclass
class Plan:
    """The rows of a batch and their division into tasks, in one run of the query."""

    batch: int
    run: str
    parts: list[list[str]]

    @property
    def rows(self) -> list[str]:
        return sorted(row for part in self.parts for row in part)


@dataclass
class Model:
    """A query whose drivers and tasks are run in a random order, with random faults."""

    seed: int
    complaints: list[str] = field(default_factory=list)
    refused: int = 0
    repeated: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.log = MemoryLog(Clock(), version=self.rng.choice((0, 2)))
        self.log.before = lambda *_: self._step()
        self.log.after = lambda *_: self._answer()
        self.log.dead = lambda: self.current is not None and self.current.killed
        self.log.late_markers = lambda: self.rng.random() < 0.3
        self.actors: list[Actor] = []
        self.idle: list[ProducerCache] = []
        """Producers of worker processes without a task, for reuse by later tasks."""
        self.current: Actor | None = None
        self.plans: dict[int, list[Plan]] = {}
        self.calm = False
        # Each number is the probability of a fault; with 0.0, that fault never happens.
        self.other_rows = self.rng.choice((0.0, 0.0, 0.3))
        self.other_plans = self.rng.choice((0.0, 0.5, 0.9))
        self.late = self.rng.choice((0.0, 0.0, 0.01, 0.05))
        self.lost_answers = self.rng.choice((0.0, 0.05))
        self.failures = self.rng.choice((0.0, 0.01, 0.03))
        self.deaths = self.rng.choice((0.3, 0.6, 0.9))
        self.cut_off = self.rng.choice((0.0, 0.0, 0.1, 0.5))
        self.log.outdated = self._outdated
        self.log.ends = self._ends
        self.commits: dict[str, int] = {}
        """By run: the number of transactions that had timed out at its first commit."""
        self.steps = 0

    # The scheduler

    def _step(self) -> None:
        assert self.current is not None
        self.current.ends_in -= self.current.ends_in > 0
        self.current.step()

    def _answer(self) -> None:
        if not self.calm and self.rng.random() < self.lost_answers:
            raise KafkaTimeoutError("no answer")

    def _outdated(self, group: str) -> dict[Any, Any] | None:
        """Sometimes return earlier offsets of a group, as a partitioned coordinator does."""
        if self.calm or self.rng.random() >= self.cut_off:
            return None
        return dict(self.rng.choice(self.log.former.get(group, []) or [{}]))

    def _ends(self, name: str, *, commit: bool) -> None:
        """Store the number of timed-out transactions at the first commit of each run."""
        if self.current is not None and commit:
            self.commits.setdefault(self.current.run, self.log.timeouts)

    def start(self, work: Callable[[], Any], plan: Plan) -> Actor:
        actor = Actor(work, plan.run)
        self.actors.append(actor)
        return actor

    def run_one(self) -> None:
        """Let a random process continue for one step."""
        if not self.calm and self.rng.random() < self.late:
            self.log.clock.at += self.rng.choice((10.0, 40.0, 1000.0))
        self.steps += 1
        awake = [a for a in self.actors if a.frozen_until <= self.steps]
        before = self.current
        self.current = self.rng.choice(awake or self.actors)
        self.current.resume()
        self.current = before
        self.actors = [a for a in self.actors if not a.done]

    def freeze(self, actor: Actor) -> None:
        """Stop a process for a random number of steps: a moment, or longer than a batch."""
        actor.frozen_until = self.steps + self.rng.choice((5, 50, 500, 5000))

    # Processes

    def task(self, plan: Plan, partition: int, attempt: int) -> Actor:
        columns = SinkColumns(("value",), "t")
        task = SinkTask(partition, attempt, plan.batch, "query", plan.run)

        def batches() -> Iterator[pa.RecordBatch]:
            rows = plan.parts[partition]
            if rows:
                yield pa.RecordBatch.from_pydict({"value": rows})

        def work() -> SinkCommit:
            clients = self.idle.pop() if self.idle else ProducerCache(self.log.make)
            found = TransactionalTask(
                *(OPTIONS, columns, task),
                clients=clients,
                prepared=self.log.prepared,
                clock=self.log.clock,
            ).write(batches())
            self.idle.append(clients)
            return found

        return self.start(work, plan)

    def driver(self, plan: Plan) -> Actor:
        """Start a driver that writes a batch, as one attempt of a run."""
        me: list[Actor] = []
        waves = self.rng.choice((1, 2, 4))
        given = {"make": self.log.make, "prepared": self.log.prepared, "clock": self.log.clock}

        def work() -> None:
            messages: list[SinkCommit | None] = [None] * len(plan.parts)
            try:
                left = list(range(len(plan.parts)))
                while left:
                    wave, left = left[:waves], left[waves:]
                    self._run_wave(plan, wave, messages, me[0])
                if not self.calm and self.rng.random() < self.deaths:
                    me[0].ends_in = self.rng.randint(1, COMMIT_STEPS)
                self._commit(plan, messages, given)
            except KafkaError:
                abort_batch(OPTIONS, messages, batch=plan.batch, **given)
                raise

        me.append(self.start(work, plan))
        return me[0]

    def _run_wave(
        self, plan: Plan, wave: list[int], messages: list[SinkCommit | None], me: Actor
    ) -> None:
        running = {p: self.task(plan, p, 0) for p in wave}
        attempts = dict.fromkeys(wave, 1)
        while running:
            if not self.calm and self.rng.random() < self.deaths / 100:
                me.ends_in = 0
            me.step()
            for partition, task in list(running.items()):
                if task.done and task.error is None:
                    messages[partition] = task.result
                    del running[partition]
                elif task.done or (not self.calm and self.rng.random() < self.failures):
                    if attempts[partition] == 4:
                        raise task.error if isinstance(task.error, KafkaError) else KafkaError("")
                    if not task.done and self.rng.random() < 0.3:
                        self._kill(task)
                    elif not task.done:
                        self.freeze(task)  # the frozen task continues as a zombie later
                    running[partition] = self.task(plan, partition, attempts[partition])
                    attempts[partition] += 1

    def _kill(self, actor: Actor) -> None:
        before = self.current
        self.current = actor
        actor.kill()
        self.current = before

    def _commit(self, plan: Plan, messages: list[SinkCommit | None], given: Any) -> None:
        try:
            commit_batch(OPTIONS, messages, batch=plan.batch, **given)
        except ReplayError as error:
            self.refused += 1
            late = self.log.timeouts
            self.log.settle()
            whole = self.visible(plan.batch) in [p.rows for p in self.plans[plan.batch]]
            # A batch is allowed to be incomplete if a transaction timed out after the first commit.
            if not whole and self.commits.get(plan.run) == late:
                self.complain(plan, f"it is refused after it has committed: {error}")
            elif not whole and not self.late:
                self.complain(plan, f"a part of its decided rows was aborted: {error}")
            raise
        self.log.settle()
        seen = self.visible(plan.batch)
        if not any(seen == other.rows for other in self.plans[plan.batch]):
            self.complain(plan, f"the batch is finished, but readers see {seen}")

    # The query's batches

    def plan(self, batch: int, number: int) -> Plan:
        """Plan a batch again; at random, use other tasks or other rows than before."""
        before = self.plans.setdefault(batch, [])
        if before and self.rng.random() >= self.other_plans:
            tasks = len(before[-1].parts)
        else:
            tasks = self.rng.randint(1, 5)
        kind = before[-1].rows[0].split("-")[1] if before else "x"
        if before and self.rng.random() < self.other_rows:
            kind = f"y{number}"
        rows = [f"{batch}-{kind}-{n}" for n in range(ROWS)]
        parts = [[row for n, row in enumerate(rows) if n % 4 % tasks == p] for p in range(tasks)]
        plan = Plan(batch, f"run{batch}.{number}", parts)
        before.append(plan)
        return plan

    def run(self) -> None:
        """Write all batches with faults; retry a batch without faults after `ATTEMPTS` failures."""
        for batch in range(BATCHES):
            self.calm = False
            done = any(self._attempt(self.plan(batch, n)) for n in range(ATTEMPTS))
            if not done and not self._finish(batch):
                self.complaints.append(f"seed {self.seed}: batch {batch} can't be finished")
                break
        self._run_out()
        self.log.clock.at += 10_000.0
        self.log.settle()
        self.check()

    def _attempt(self, plan: Plan) -> bool:
        driver = self.driver(plan)
        self._watch(driver)
        if driver.done and driver.error is None:
            return True
        if driver.done and not isinstance(driver.error, (KafkaError, DiedError)):
            raise AssertionError(f"seed {self.seed}") from driver.error
        self.repeated += 1
        self.check()
        return False

    def _finish(self, batch: int) -> bool:
        """Repeat the failed plans of a batch without faults; return whether one succeeds."""
        self._run_out()
        self.calm = True
        tried = [Plan(batch, f"calm{batch}.{n}", p.parts) for n, p in enumerate(self.plans[batch])]
        return any(self._attempt(plan) for plan in reversed(tried))

    def _run_out(self) -> None:
        """Run all processes that have not ended until they end."""
        while self.actors:
            self.run_one()

    def _watch(self, driver: Actor) -> None:
        """Run processes until the driver ends, dies, or is taken for dead."""
        while not driver.done and driver.ends_in != 0:
            self.run_one()
        if driver.done:
            return
        if self.rng.random() < 0.7:
            self._kill(driver)
        else:
            self.freeze(driver)  # the frozen driver continues in a later run
            driver.ends_in = -1
        for task in [a for a in self.actors if a is not driver and a.ends_in < 0]:
            if self.rng.random() < 0.5:
                self._kill(task)
            else:
                self.freeze(task)
        self.actors = [a for a in self.actors if not a.done]

    # Checks

    def visible(self, batch: int) -> list[str]:
        return sorted(v for v in self.log.values() if v.startswith(f"{batch}-"))

    def check(self) -> None:
        """Report a violation if the visible rows of a batch aren't a subset of one plan's rows."""
        for batch, plans in self.plans.items():
            seen = Counter(self.visible(batch))
            if not any(seen <= Counter(plan.rows) for plan in plans):
                self.complain(plans[-1], f"readers see {sorted(seen.elements())}")

    def complain(self, plan: Plan, text: str) -> None:
        self.complaints.append(f"seed {self.seed}, batch {plan.batch}, {plan.run}: {text}")

    def close(self) -> None:
        for actor in self.actors:
            self._kill(actor)


def quick_digest(batch: pa.RecordBatch) -> int:
    """Return a cheaper digest than the real one, which would take a third of the tests' time."""
    return sum(zlib.crc32(value.encode()) for value in batch.column("value").to_pylist())


def played(seed: int) -> Model:
    """Run a model with random decisions from the seed, and return it."""
    model = Model(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactly_once, "digest", quick_digest)
        patch.setattr(logging.getLogger("odradek.spark"), "disabled", True)
        try:
            model.run()
        finally:
            model.close()
    return model
