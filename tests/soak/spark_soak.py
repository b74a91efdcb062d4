"""Run a Spark pipeline on real brokers under random faults, and count every record.

In: a cluster of three brokers, a plan. Out: a `SparkReport`. A producer of confluent-kafka writes
numbered records. Odradek's source and sink copy them exactly once to another topic, from which its
source writes Parquet files, in executor processes (`spark_job`). Meanwhile parts of Spark are
killed, brokers are killed, paused and moved, queries are restarted from their checkpoints. At the
end confluent-kafka (read_committed) and plain Spark count every key.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.interop.other_client import read_all, settings
from tests.soak.spark_driver import Driver, Part

from odradek.testing import LocalCluster

SOURCE, TARGET = "in", "out"
MASTER = "local-cluster[2,1,2048]"
FAULTS = (
    *("driver", "driver and JVM", "executor", "executor", "worker", "worker", "planner"),
    *("broker kill", "broker kill", "broker pause", "move", "restart", "restart"),
)
EXCUSES = {"driver", "driver and JVM", "executor", "planner"}
"""Faults after which a query may fail, to continue from its checkpoint: the driver is a part of the
query, and an executor can end between Spark's permission to commit and the commit."""
PARTS: dict[str, Part] = {"executor": "executor", "worker": "worker", "planner": "planner"}
SHOWN = 20
_EXCEPTION = re.compile(r"(: )?(Caused by: )?(\w+\.)*\w+(Error|Exception): ")
ATTEMPTS = 3
"""How many drivers in a row may end by themselves before the queries commit a batch."""


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """Numbers, durations and kinds of faults, and settings of the pipeline."""

    faults: int
    folder: Path
    seed: int = 1
    kinds: tuple[str, ...] = FAULTS
    """The kinds of faults. All of them occur, in a random order, before one is repeated."""
    seconds: float = math.inf
    """Seconds after which the faults end, whatever their number."""
    stages: tuple[str, ...] = ("copy", "land")
    """The queries; without `copy`, `land` reads the source's topic."""
    master: str = MASTER
    settings: Mapping[str, str] = field(default_factory=dict)
    """Additional settings of Spark."""
    partitions: int = 4
    rate: float = 100.0
    """Records per second that the feeder writes."""
    limit: int = 1000
    """The largest number of records in a micro-batch."""
    every: str = "500 milliseconds"
    quiet: tuple[float, float] = (0.5, 4.0)
    """Seconds between progress and the next fault."""
    hurry: float = 0.25
    """Share of faults that begin before the queries have recovered from the last fault."""
    pause: tuple[float, float] = (3.0, 15.0)
    """Seconds of a SIGSTOP."""
    away: tuple[float, float] = (0.5, 6.0)
    """Seconds until a killed broker is started again."""
    outage: float = 0.0
    """Seconds without any broker, once, after half of the faults; no query may fail then."""
    patience: float = 240.0
    """Seconds within which each query must commit a batch again."""
    drain: float = 240.0
    """Seconds that the queries may take to process the remaining records."""


@dataclass(slots=True)
class SparkReport:
    """Result of a run."""

    seed: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    """Visible records in the source's topic and in each target."""
    batches: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    """Restarts from a checkpoint after a failure, by query and fault."""
    longest_recovery: dict[str, float] = field(default_factory=dict)
    """Seconds from the beginning of a fault until every query has committed a batch begun since."""
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures


class Feeder(threading.Thread):
    """Writes records with the keys 0, 1, 2 … by confluent-kafka's producer."""

    def __init__(self, config: Mapping[str, str], rate: float) -> None:
        super().__init__(name="feeder")
        self._config, self._rate = config, rate
        self.stopping = threading.Event()
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []

    def run(self) -> None:
        producer = Producer(
            settings(
                dict(self._config),
                **{"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 0},
            )
        )

        def done(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(int(message.key()))
            else:
                self.errors.append(str(error))

        begun = time.monotonic()
        while not self.stopping.is_set():
            while self.sent < (time.monotonic() - begun) * self._rate:
                key = str(self.sent).encode()
                producer.produce(SOURCE, b"value of " + key, key, on_delivery=done)
                self.sent += 1
            producer.poll(0.02)
        if left := producer.flush(60):
            self.errors.append(f"{left} records were never acknowledged")


class SparkSoak:
    """One run of the pipeline and the faults, and its judgement."""

    def __init__(self, cluster: LocalCluster, plan: SparkPlan, say: Callable[[str], None]) -> None:
        self.cluster, self.plan, self._report_line = cluster, plan, say
        self.report = SparkReport(seed=plan.seed)
        self._begun = time.monotonic()
        self._feeder = Feeder(cluster.librdkafka_config(), plan.rate)
        self._drivers: list[Driver] = []
        self._faults: Counter[str] = Counter()
        self._batches: Counter[str] = Counter()
        self._restarts: Counter[str] = Counter()
        self._recent: set[str] = set()
        """Faults since all queries last committed a batch."""
        self._told = 0
        self._ended = 0
        """Number of drivers that ended by themselves since all queries last committed a batch."""

    def run(self) -> SparkReport:
        """Create the topics, run the pipeline and faults, and judge."""
        for topic in (SOURCE, TARGET):
            self.cluster.create_topic(topic, partitions=self.plan.partitions)
        self._begun = time.monotonic()
        self._feeder.start()
        try:
            self._guard("the soak itself", self._all_trouble)
            self._guard("working off the rest", self._drain)
        finally:  # also after Ctrl-C
            self._feeder.stopping.set()
            for driver in self._drivers:
                driver.kill_all()
        self._guard("the judgement itself", self._judge)
        self._conclude()
        return self.report

    def _guard(self, what: str, step: Callable[[], None]) -> None:
        """Take a step; if it raises, report a failure and continue with the judgement."""
        try:
            step()
        except Exception as error:
            self._fail(f"{what}: {error!r}")

    def _all_trouble(self) -> None:
        """Start a driver and cause all faults; then stop the feeder."""
        try:
            self._start_driver()
            self._progress("start", time.monotonic())
            self._trouble()
        finally:
            self._feeder.stopping.set()
            self._feeder.join()

    # The driver

    @property
    def _driver(self) -> Driver:
        return self._drivers[-1]

    def _start_driver(self) -> None:
        plan = self.plan
        self._told = 0
        self._drivers.append(
            Driver(
                {
                    "folder": str(plan.folder),
                    "master": plan.master,
                    "settings": dict(plan.settings),
                    "stages": plan.stages,
                    "config": self.cluster.client_config(),
                    "source": SOURCE,
                    "target": TARGET,
                    "limit": plan.limit,
                    "every": plan.every,
                }
            )
        )

    def _progress(self, fault: str, since: float) -> None:
        """Wait until every query has committed a batch that began after the fault.

        A batch that was under way may succeed although the process that plans the next one is gone.
        """
        asked = time.time()
        deadline = time.monotonic() + self.plan.patience
        while any(self._driver.begun.get(name, 0.0) < asked for name in self.plan.stages):
            self._note_failures(fault)
            if not self._driver.alive:
                self._revive(fault)
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"no progress for {self.plan.patience:.0f} s after {fault}: "
                    f"{self._driver.batches}; {self._driver.failures[-3:]}"
                )
            time.sleep(0.1)
        self._note_failures(fault)
        self._recent.clear()
        self._ended = 0
        took = round(time.monotonic() - since, 1)
        longest = self.report.longest_recovery
        longest[fault] = max(took, longest.get(fault, 0.0))

    def _revive(self, fault: str) -> None:
        """Start another driver after one ended by itself."""
        told = f"the driver ended by itself after {fault}"
        (self._say if self._recent & EXCUSES else self._fail)(told)
        self._restarts[f"driver, after {fault}"] += 1
        self._ended += 1
        if self._ended > ATTEMPTS:
            raise AssertionError(f"the driver ends by itself again and again: {fault}")
        self._leave()
        self._start_driver()

    def _note_failures(self, fault: str) -> None:
        """Report failed queries; they are failures of the soak unless the faults excuse them."""
        for query, text in self._driver.failures[self._told :]:
            self._told += 1
            self._restarts[f"{query}, after {fault}"] += 1
            told = f"{query} failed after {fault}: {reason(text)}"
            if self._recent & EXCUSES:
                self._say(told)
            else:
                self._fail(told)

    # Faults

    def _trouble(self) -> None:
        plan = self.plan
        for number, kind in enumerate(drawn(plan)):
            rng = random.Random(f"{plan.seed}/{number}")
            if plan.outage and number == plan.faults // 2:
                self._outage()
            time.sleep(rng.uniform(*plan.quiet))
            if time.monotonic() - self._begun > plan.seconds:
                return
            hurried = rng.random() < plan.hurry and number < plan.faults - 1
            self._say(f"fault {number + 1}: {kind}")
            since = time.monotonic()
            done = self._do(kind, rng)
            self._faults[done] += 1
            if not hurried:
                self._progress(done, since)

    def _do(self, kind: str, rng: random.Random) -> str:
        """Cause a fault, and return its kind: another one if there was no process to kill."""
        if not self._driver.alive:
            self._revive("what came before")
        self._recent.add(kind)
        if kind not in PARTS:
            self._harm(kind, rng)
        elif not self._kill_part(kind, rng):
            absent, kind = kind, rng.choice([k for k in self.plan.kinds if k not in PARTS])
            self._say(f"for {self.plan.patience:.0f} s there was no {absent}; a {kind} instead")
            self._recent.add(kind)
            self._harm(kind, rng)
        return kind

    def _harm(self, kind: str, rng: random.Random) -> None:
        cluster, plan = self.cluster, self.plan
        if kind == "driver":
            self._leave()
            self._driver.kill_all()
            self._start_driver()
        elif kind == "driver and JVM":
            self._leave()
            self._driver.kill_driver()  # executors remain, and notice the driver's end later
            self._start_driver()
        elif kind == "restart":
            self._driver.tell(f"restart {rng.choice(plan.stages)}")
        elif kind == "move":
            cluster.move()
        else:
            broker = rng.choice(cluster.running)
            if kind == "broker kill":
                cluster.kill(broker)
                time.sleep(rng.uniform(*plan.away))
                cluster.start(broker)
            else:
                cluster.pause(broker)
                time.sleep(rng.uniform(*plan.pause))
                cluster.resume(broker)

    def _leave(self) -> None:
        """Add the reports of a driver that is about to be replaced."""
        self._note_failures("what came before")
        self._batches.update(self._driver.batches)

    def _kill_part(self, kind: str, rng: random.Random) -> bool:
        """Kill one process of this kind as soon as one exists."""
        deadline = time.monotonic() + self.plan.patience
        while time.monotonic() < deadline:
            if not self._driver.alive:
                self._revive(kind)
            if found := self._driver.parts(PARTS[kind]):
                with contextlib.suppress(ProcessLookupError):  # the process has ended meanwhile
                    os.kill(rng.choice(found), signal.SIGKILL)
                    return True
            time.sleep(0.05)
        return False

    def _outage(self) -> None:
        """Stop all brokers for `outage` seconds; no query may fail."""
        self._progress("what came before", time.monotonic())
        self._say(f"outage of {self.plan.outage:.0f} s")
        self._faults["outage"] += 1
        failed, since = len(self._driver.failures), time.monotonic()
        for broker in self.cluster.running:
            self.cluster.kill(broker)
        time.sleep(self.plan.outage)
        self.cluster.move()  # starts all brokers at once, at other addresses
        self._progress("outage", since)
        if len(self._driver.failures) > failed or not self._driver.alive:
            self._fail(f"a query failed in an outage: {self._driver.failures[failed:]}")

    # The end

    def _drain(self) -> None:
        """Process the remaining records without faults; the driver ends by itself then."""
        for _ in range(3):
            self._driver.tell("finish")
            self._driver.ended(self.plan.drain)
            self._note_failures("the last fault")
            if self._driver.said.get("finished", {}).get("ok"):
                return
            self._say("the driver didn't finish; another one")
            self._leave()
            self._driver.kill_all()
            self._start_driver()
        raise AssertionError("the pipeline didn't work off the rest")

    def _judge(self) -> None:
        """Count every key in each topic and in the Parquet files."""
        feeder, plan = self._feeder, self.plan
        for error in feeder.errors[:SHOWN]:
            self._fail(f"the feeder: {error}")
        source = self._keys(SOURCE)
        self._compare("the feeder's topic", source, map(str, sorted(feeder.acknowledged)), {})
        wanted = [str(n) for n in range(feeder.sent)]
        places: dict[str, Counter[str]] = {}
        if "copy" in plan.stages:
            places["the exactly-once topic"] = self._keys(TARGET)
        places["Parquet"] = Counter(self._driver.said["counted"]["keys"])  # counted by plain Spark
        for place, found in places.items():
            self._compare(place, found, wanted, source)

    def _keys(self, topic: str) -> Counter[str]:
        """Return the keys that confluent-kafka reads with read_committed, its default."""
        rows = read_all(
            self.cluster.librdkafka_config(), topic, self.plan.partitions, self.plan.drain
        )
        return Counter((r.key or b"").decode() for rs in rows.values() for r in rs)

    def _compare(
        self, place: str, found: Counter[str], wanted: Iterable[str], source: Mapping[str, int]
    ) -> None:
        self.report.records[place] = found.total()
        lost = [key for key in wanted if key not in found]
        twice = [key for key, times in found.items() if times > 1]
        foreign = [key for key in found if source and key not in source]
        for what, keys in (("lost", lost), ("more than once", twice), ("never sent", foreign)):
            if keys:
                self._fail(f"{place}: {len(keys)} records are {what}: {sorted(keys)[:SHOWN]}")
        if not found:
            self._fail(f"{place} is empty: it shows nothing")

    def _conclude(self) -> None:
        report = self.report
        if self._drivers:
            self._batches.update(self._driver.batches)
        report.seconds = round(time.monotonic() - self._begun, 1)
        report.faults = dict(self._faults)
        report.batches = dict(self._batches)
        report.restarts = dict(self._restarts)

    def _fail(self, text: str) -> None:
        self._say(f"FAILURE: {text}")
        self.report.failures.append(text)

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._begun
        done = dict(self._batches + self._drivers[-1].batches) if self._drivers else {}
        self._report_line(f"{elapsed:6.0f} s  {self._feeder.sent} sent; batches {done}  {text}")


def drawn(plan: SparkPlan) -> Iterator[str]:
    """Yield kinds of faults: all of them in a random order, then all in another order."""
    rng = random.Random(plan.seed)
    coming: list[str] = []
    for _ in range(plan.faults):
        coming = coming or rng.sample(plan.kinds, len(plan.kinds))
        yield coming.pop()


def reason(text: str) -> str:
    """Return the last line of Spark's text with a Python exception, or its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _EXCEPTION.match(line)]
    return (errors[-1] if errors else lines[0] if lines else "no text")[:600]


def run(plan: SparkPlan, say: Callable[[str], None]) -> SparkReport:
    """Start a cluster, and run a soak on it."""
    with LocalCluster(brokers=3) as cluster:
        return SparkSoak(cluster, plan, say).run()


def as_json(report: SparkReport) -> str:
    """Return the report as a JSON document."""
    return json.dumps({"ok": report.ok, **asdict(report)}, indent=1)
