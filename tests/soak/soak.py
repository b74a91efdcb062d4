"""Minutes of random kills, pauses and moves against real brokers, and a judgement of what remains.

In: a cluster of three, a plan. Out: a `Report`: what was done and whether anything was lost,
doubled or out of order. Beside each other run an idempotent producer, for each group protocol a
read-process-write chain with transactions and a group of readers that come and go, and the trouble.
At the end another client reads everything with read_committed, ours too, and the history of all
is judged by `odradek.simulation.history_check`.
"""

from __future__ import annotations

import json
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.interop.other_client import read_all, settings
from tests.soak.chain import Tally
from tests.soak.workers import GroupReader, Member, Source, Worker

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition
from odradek.simulation.history import History, Outcome
from odradek.simulation.history_check import check
from odradek.testing import LocalCluster

SOURCE = "in"
TROUBLES = ("kill", "kill", "pause", "move", "roll")
PROGRESS = 10.0
OTHER_CLIENT = 60.0
"""Seconds for which the other client's errors may be those of a cluster that settles down."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how hard."""

    seconds: float
    seed: int = 1
    rate: float = 150.0
    """Records a second into the chains."""
    partitions: int = 6
    protocols: tuple[str, ...] = ("classic", "consumer")
    members: int = 2
    readers: int = 2
    """Of each group that only reads."""
    pause: float = 20.0
    """Seconds of a SIGSTOP."""
    quiet: tuple[float, float] = (6.0, 15.0)
    """Seconds between two troubles."""
    disorder: float = 25.0
    """Seconds, on average, until a member leaves or is replaced."""
    troubles: tuple[str, ...] = TROUBLES
    """Each comes once, in a random order, before any comes again."""
    drain: float = 180.0
    """Seconds that the chains may take to work off what is left."""


@dataclass(slots=True)
class Report:
    """What came of it."""

    seconds: float = 0.0
    seed: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    """Visible records by topic, as the other client counted them."""
    chains: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: dict[str, dict[str, int]] = field(default_factory=dict)
    """What calls raised, by class: workers went on."""
    transactions: dict[str, int] = field(default_factory=dict)
    longest_silence: float = 0.0
    """Seconds without an acknowledgement of the source."""
    rss_mb: int = 0
    failures: list[str] = field(default_factory=list)
    """What makes it fail: anomalies, what wasn't worked off, workers that broke down."""

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing twice, order kept, all worked off."""
        return not self.failures


class Soak:
    """One run."""

    def __init__(self, cluster: LocalCluster, plan: Plan, report: Callable[[str], None]) -> None:
        self.cluster, self.plan = cluster, plan
        self.history = History()
        self.report = Report(seed=plan.seed)
        self._say = report
        self._rng = random.Random(plan.seed)
        self._begun = time.monotonic()
        self._troubles: Counter[str] = Counter()
        self._logs: dict[str, set[tuple[TopicPartition, int]]] = {}
        servers = cluster.bootstrap_servers
        self.source = Source(servers, self.history, SOURCE, plan.partitions, plan.rate)
        self.tallies = {protocol: Tally() for protocol in plan.protocols}
        self.members = [
            Member(
                servers,
                self.history,
                protocol,
                number,
                self.tallies[protocol],
                source=SOURCE,
                disorder=plan.disorder,
            )
            for protocol in plan.protocols
            for number in range(plan.members)
        ]
        self.readers = [
            GroupReader(
                servers,
                self.history,
                protocol,
                number,
                topic=f"out-{protocol}",
                disorder=plan.disorder,
            )
            for protocol in plan.protocols
            for number in range(plan.readers)
        ]
        self.topics = [SOURCE, *(f"out-{protocol}" for protocol in plan.protocols)]

    @property
    def workers(self) -> list[Worker]:
        """All threads."""
        return [self.source, *self.members, *self.readers]

    def run(self) -> Report:
        """From the first topic to the judgement."""
        for topic in self.topics:
            self.cluster.create_topic(topic, partitions=self.plan.partitions)
        self._begun = time.monotonic()
        over = threading.Event()
        progress = threading.Thread(target=self._progress, args=(over,), name="progress")
        progress.start()
        try:
            for worker in self.workers:
                worker.start()
            self._trouble()
            self._wind_down()
        except Exception as error:  # what was seen until then is worth a judgement
            self.report.failures.append(f"the soak itself: {error!r}")
        finally:
            over.set()
            for worker in self.workers:
                worker.stopping.set()
            for worker in self.workers:
                worker.join()
            progress.join()
        self._judge()
        return self.report

    # Trouble

    def _trouble(self) -> None:
        plan, rng = self.plan, self._rng
        end = self._begun + plan.seconds
        coming: list[str] = []
        while True:
            quiet = rng.uniform(*plan.quiet)
            if time.monotonic() + quiet > end:
                time.sleep(max(0.0, end - time.monotonic()))
                return
            time.sleep(quiet)
            broker = rng.choice(sorted(self.cluster.running))
            coming = coming or rng.sample(plan.troubles, len(plan.troubles))
            kind = coming.pop()
            self._troubles[kind] += 1
            all_of_them = kind in ("move", "roll")
            self._say(self._line(kind if all_of_them else f"{kind} of broker {broker}"))
            if kind == "kill":
                self.cluster.kill(broker)
                time.sleep(rng.uniform(1.0, 6.0))
                self.cluster.start(broker)
            elif kind == "pause":
                self.cluster.pause(broker)
                time.sleep(plan.pause)
                self.cluster.resume(broker)
            elif kind == "roll":
                for one in sorted(self.cluster.running):
                    self.cluster.stop(one)
                    self.cluster.start(one)
            else:
                self.cluster.move()

    def _progress(self, over: threading.Event) -> None:
        while not over.wait(PROGRESS):
            self._say(self._line(""))

    def _line(self, trouble: str) -> str:
        chains = ", ".join(
            f"{protocol}: {t.counts['committed']} committed {t.counts['aborted']} aborted "
            f"{t.counts['rebalances']} rebalances"
            for protocol, t in self.tallies.items()
        )
        elapsed = time.monotonic() - self._begun
        return f"{elapsed:6.0f} s  {self.source.sent} sent; {chains}  {trouble}".rstrip()

    # The end

    def _wind_down(self) -> None:
        """No trouble any more: the source ends, the chains work off what is left."""
        for worker in (*self.members, *self.readers):
            worker.calm.set()
        self.source.stopping.set()
        self.source.join()
        end = time.monotonic() + self.plan.drain
        while (left := self._left()) and time.monotonic() < end and not self._broken():
            time.sleep(1.0)
        if left:
            self.report.failures.append(f"not worked off: {left}")
        for member in self.members:
            member.stopping.set()
        for member in self.members:
            member.join()
        self._logs = {topic: self._read(topic) for topic in self.topics}
        while (unread := self._unread()) and time.monotonic() < end and not self._broken():
            time.sleep(1.0)
        self.report.failures += [f"no reader of its group has read {u}" for u in unread[:20]]

    def _broken(self) -> bool:
        return any(worker.failure is not None for worker in self.workers)

    def _left(self) -> str:
        """What the chains' groups haven't committed yet, as another client sees it."""
        found = []
        for protocol in self.plan.protocols:
            for partition, (committed, end) in self._offsets(f"chain-{protocol}").items():
                if committed < end:
                    found.append(f"chain-{protocol} {partition} {committed} of {end}")
        return ", ".join(found)

    def _offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """Committed offset and end of the source's partitions; librdkafka doesn't try again."""
        deadline = time.monotonic() + OTHER_CLIENT
        while True:
            try:
                return self._offsets_once(group)
            except confluent_kafka.KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)

    def _offsets_once(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        servers = self.cluster.bootstrap_servers
        consumer = confluent_kafka.Consumer(settings(servers, **{"group.id": group}))
        places = [confluent_kafka.TopicPartition(SOURCE, p) for p in range(self.plan.partitions)]
        try:
            committed: list[Any] = consumer.committed(places, timeout=30)
            return {
                TopicPartition(c.topic, c.partition): (
                    max(0, c.offset),
                    consumer.get_watermark_offsets(c, timeout=30)[1],
                )
                for c in committed
            }
        finally:
            consumer.close()

    def _read(self, topic: str) -> set[tuple[TopicPartition, int]]:
        """Everything, by another client; noted."""
        found = set()
        rows = read_all(
            self.cluster.bootstrap_servers, topic, self.plan.partitions, timeout=self.plan.drain
        )
        for index, partition_rows in rows.items():
            reading = self.history.reading("confluent-kafka", TopicPartition(topic, index))
            reading.complete = True
            for row in partition_rows:
                reading.saw(row.offset, (row.value or b"").decode())
                found.add((TopicPartition(topic, index), row.offset))
        self.report.records[topic] = len(found)
        return found

    def _unread(self) -> list[str]:
        """What no member of a group of readers has read."""
        missing = []
        for protocol in self.plan.protocols:
            group = [r for r in self.readers if r.name.startswith(f"reader-{protocol}-")]
            for partition, offset in sorted(self._logs[f"out-{protocol}"]):
                if not any(offset in r.seen.get(partition, ()) for r in group):
                    missing.append(f"{protocol}: {partition} at {offset}")
        return missing

    def _read_ours(self, topic: str) -> None:
        """Everything again, by our own client."""
        partitions = [TopicPartition(topic, p) for p in range(self.plan.partitions)]
        with Consumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            readings = {p: self.history.reading("odradek", p) for p in partitions}
            deadline = time.monotonic() + self.plan.drain
            while any(consumer.position(p) < ends[p] for p in partitions):
                for record in consumer.poll(1.0):
                    place = TopicPartition(record.topic, record.partition)
                    readings[place].saw(record.offset, bytes(record.value or b"").decode())
                if time.monotonic() > deadline:
                    self.report.failures.append(f"our own reader of {topic} doesn't get to the end")
                    return
        for reading in readings.values():
            reading.complete = True

    def _compare(self) -> None:
        """Our own reader, the groups' offsets, and what the whole history says."""
        for topic in self.topics:
            self._read_ours(topic)
        for protocol in self.plan.protocols:
            ends = self._offsets(f"chain-{protocol}").items()
            self.history.group_ends(f"chain-{protocol}", [(p, c) for p, (c, _) in ends])
        self.report.failures += [str(anomaly) for anomaly in check(self.history)[:50]]

    def _judge(self) -> None:
        report = self.report
        for worker in self.workers:
            if worker.failure is not None:
                report.failures.append(f"{worker.name}: {worker.failure!r}")
        if self._logs:
            try:
                self._compare()
            except Exception as error:
                report.failures.append(f"the judgement itself: {error!r}")
        report.seconds = round(time.monotonic() - self._begun, 1)
        report.troubles = dict(self._troubles)
        report.chains = {p: dict(t.counts) for p, t in self.tallies.items()}
        report.errors = {f"chain-{p}": dict(t.errors) for p, t in self.tallies.items()}
        report.errors["source"] = dict(self.source.errors)
        for reader in self.readers:
            report.errors[reader.name] = dict(reader.errors)
        outcomes = Counter(t.outcome for t in self.history.transactions if t.group)
        report.transactions = {outcome.value: outcomes[outcome] for outcome in Outcome}
        report.longest_silence = round(self.source.longest_silence, 2)
        report.rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def run(plan: Plan, say: Callable[[str], None], keep: Path | None = None) -> Report:
    """A cluster of its own, and a soak on it; where it fails the history is kept as JSON lines."""
    with LocalCluster(brokers=3) as cluster:
        soak = Soak(cluster, plan, say)
        report = soak.run()
    if keep is not None and not report.ok:
        path = keep.with_suffix(".history.jsonl")
        path.write_text("".join(f"{line}\n" for line in soak.history.lines()))
        say(f"the history is in {path}")
    return report


def as_json(report: Report) -> str:
    """The report as a JSON document."""
    return json.dumps({"ok": report.ok, **asdict(report)}, indent=1)
