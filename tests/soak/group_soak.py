"""Members of real groups that are stopped with SIGSTOP, and topics that are deleted and recreated.

In: a plan. Out: a `GroupReport`. Each group has one topic and members that are programs of their
own (`group_member`). Turn by turn a source writes records to the topic, members are stopped for
longer than their sessions while they hold records, and when every record was handed to a member the
topic is deleted and created again, under members that still hold records of the old one.
librdkafka writes the records and reads the committed offsets, so nothing is judged by the client
that is tested. Judged are: every record of every topic was handed to a member (nothing lost); the
offset of a group never goes back while its topic is the same; it is never beyond what was handed
out of that topic. Records that were handed out twice are counted.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.other_client import settings
from tests.soak.soak import SESSIONS

from odradek.testing import LocalCluster
from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent.parent
SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
FROZEN = (8.0, 20.0)
"""Seconds of a SIGSTOP. Sessions are 6 s (classic) and 10 s (KIP-848)."""
BY_HAND = ("record", "all", "later", "asyncio")
"""Styles of members that hold records while they are stopped, and commit them themselves."""
STYLES = (*BY_HAND, "auto", "workers")
KINDS: Mapping[str, Mapping[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", **SESSION},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **SESSION},
    "consumer": {"group.protocol": "consumer"},
}
WITHOUT_KIP_848 = "3."
"""How the versions begin whose brokers offer group.protocol=consumer only if configured to."""
REFUSED_BY = 10
"""Freezes after which commits must have been refused; otherwise the run shows nothing."""
WATCH_EVERY = 0.2
HANDED_OUT_WITHIN = 120.0
"""Seconds that members may take to read what is left of a topic, after the last SIGCONT."""
AWAY = (0.0, 5.0)
"""Seconds for which a deleted topic doesn't exist."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How long, and with what."""

    seconds: float
    seed: int = 1
    kafka: str = DEFAULT_VERSION
    kinds: tuple[str, ...] = tuple(KINDS)
    members: int = 3
    """Of each group; each has a style of its own."""
    partitions: int = 4
    records: int = 400
    """Of each topic."""
    rate: float = 40.0
    """Records a second of each group's topic."""
    folder: Path = ROOT / "build" / "soak-groups"
    """Where members' reports and logs are kept."""


@dataclass(slots=True)
class GroupReport:
    """Result of a run."""

    seed: int = 0
    kafka: str = ""
    seconds: float = 0.0
    topics: int = 0
    records: int = 0
    handed_out: int = 0
    handed_out_again: int = 0
    frozen: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Commits that raised, by type of error."""
    committed: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """Errors of polls, by type."""
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was lost and no offset moved where it must not."""
        return not self.failures


class MemberProcess:
    """One member: its process, and what it has reported."""

    def __init__(
        self, name: str, settings_: Mapping[str, Any], topic: str, style: str, folder: Path
    ) -> None:
        self.name, self.style = name, style
        self.frozen = False
        self.lines: list[dict[str, Any]] = []
        config = {**settings_, "client.id": name, "enable.auto.commit": style == "auto"}
        told = json.dumps({"config": config, "topic": topic, "style": style})
        self._log = (folder / f"{name}.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.group_member", told],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), name=name)
        self._reader.start()

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.lines.append(json.loads(line))

    def freeze(self, frozen: bool) -> None:
        """Stop the process, or let it continue."""
        self.frozen = frozen
        self.process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self, failures: list[str]) -> None:
        """Close stdin, and wait for an orderly end."""
        self.freeze(False)
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._reader.join(10)
        self._log.close()
        if status != 0:
            failures.append(f"{self.name} ({self.style}) ended with exit status {status}")


class GroupUnderTest:
    """One group, its topic, its members, and what an observer sees of its offsets."""

    def __init__(self, kind: str, cluster: LocalCluster, plan: GroupPlan) -> None:
        self.kind, self.plan = kind, plan
        self.group, self.topic = f"group-{kind}", f"topic-{kind}"
        self._theirs = cluster.librdkafka_config()
        self._admin = AdminClient(settings(self._theirs))
        self._rng = random.Random(f"{plan.seed}/{kind}")
        self.incarnation = -1
        self.failures: list[str] = []
        self.written: list[int] = []
        """Records of each incarnation."""
        self.frozen = 0
        self._seen: dict[int, dict[int, int]] = {}
        """The committed offsets of each incarnation, as the observer saw them last."""
        self._sightings: list[tuple[float, int, int, int]] = []
        """Time, incarnation, partition and offset of each. They are compared with the times at
        which members were handed records when the run is over: reports may arrive late."""
        self._watching = threading.Event()
        config = {
            **cluster.client_config(),
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "metadata.max.age.ms": 2000,
            **KINDS[kind],
        }
        self.create()
        by_hand = self._rng.choice(BY_HAND)
        others = [style for style in STYLES if style != by_hand]
        styles = [by_hand, *self._rng.sample(others, plan.members - 1)]
        self.members = [
            MemberProcess(f"{kind}-{number}", config, self.topic, style, plan.folder)
            for number, style in enumerate(styles)
        ]
        self._over = threading.Event()
        self._observer = threading.Thread(target=self._observe, name=f"observer-{kind}")
        self._observer.start()

    # The topic

    def create(self) -> None:
        """Create the topic, and start the observer's book of its offsets."""
        new = NewTopic(self.topic, self.plan.partitions, 1)
        self._again(lambda: self._admin.create_topics([new])[self.topic].result(30))
        self.incarnation += 1
        self._watching.set()

    def recreate(self) -> None:
        """Delete the topic and create it again after a while."""
        self._watching.clear()
        self._again(lambda: self._admin.delete_topics([self.topic])[self.topic].result(30))
        time.sleep(self._rng.uniform(*AWAY))
        self.create()

    def _again(self, act: Callable[[], object]) -> None:
        """Try until the cluster takes it: a topic that is being deleted can't be created yet."""
        end = time.monotonic() + 60
        while True:
            try:
                act()
                return
            except confluent_kafka.KafkaException:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def write(self) -> None:
        """Write the records of this incarnation, and wait for their acknowledgements."""
        plan = self.plan
        producer = confluent_kafka.Producer(
            settings(self._theirs, **{"enable.idempotence": True, "linger.ms": 5})
        )
        failed: list[str] = []
        begun = time.monotonic()
        for number in range(plan.records):
            time.sleep(max(0.0, begun + number / plan.rate - time.monotonic()))
            producer.produce(
                self.topic,
                f"{self.incarnation}/{number}",
                partition=number % plan.partitions,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            producer.poll(0)
        producer.flush(60)
        if failed:
            raise RuntimeError(f"the source failed: {failed[0]}")
        self.written.append(plan.records)

    # Members

    def freeze_one(self) -> None:
        """Stop one member for a while, most often for longer than its session."""
        member = self._rng.choice(self.members)
        member.freeze(True)
        self.frozen += 1
        time.sleep(self._rng.uniform(*FROZEN))
        member.freeze(False)

    def turn(self, *, last: bool) -> None:
        """Write the records of one topic, freeze members meanwhile, and recreate the topic."""
        writer = threading.Thread(target=self._guarded, args=(self.write,))
        writer.start()
        while writer.is_alive():
            self.freeze_one()
        writer.join()
        end = time.monotonic() + HANDED_OUT_WITHIN
        while (left := self.left()) and time.monotonic() < end and not self.failures:
            time.sleep(0.1)
        if left:
            self.failures.append(
                f"{self.kind}: topic {self.incarnation}: {len(left)} of {self.plan.records} "
                f"records were handed to no member within {HANDED_OUT_WITHIN:.0f} s: {left[:10]}"
            )
        if last:
            return
        holder = self._rng.choice(self.members)
        freeze = self._rng.random() < 0.5  # it holds records of the old topic when it wakes
        if freeze:
            holder.freeze(True)
            self.frozen += 1
        self.recreate()
        if freeze:
            holder.freeze(False)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.failures.append(f"{self.kind}: {error!r}")

    def run(self, seconds: float) -> None:
        """Turn after turn."""
        end = time.monotonic() + seconds
        with suppress(Exception):
            while not self.failures:
                last = time.monotonic() > end
                self._guarded(partial(self.turn, last=last))
                if last:
                    break
        self._over.set()
        for member in self.members:
            member.end(self.failures)
        self._observer.join()
        self._conclude()

    def handed(self) -> Counter[str]:
        """Return how often each value was handed out."""
        found: Counter[str] = Counter()
        for member in self.members:
            for line in list(member.lines):
                if line["kind"] == "got":
                    found.update(value for _, _, value in line["rows"])
        return found

    def left(self) -> list[str]:
        """Return the values of this topic that no member was handed."""
        handed = self.handed()
        wanted = (f"{self.incarnation}/{n}" for n in range(self.plan.records))
        return [value for value in wanted if not handed[value]]

    # The observer

    def _observe(self) -> None:
        """Read the group's committed offsets again and again, with another client."""
        consumer = confluent_kafka.Consumer(settings(self._theirs, **{"group.id": self.group}))
        places = [
            confluent_kafka.TopicPartition(self.topic, p) for p in range(self.plan.partitions)
        ]
        while not self._over.wait(WATCH_EVERY):
            incarnation, watching = self.incarnation, self._watching.is_set()
            try:
                found: Any = consumer.committed(places, timeout=5)
            except confluent_kafka.KafkaException:
                continue
            same = self._watching.is_set() and self.incarnation == incarnation
            if watching and same:
                self._saw(incarnation, {c.partition: c.offset for c in found if c.offset >= 0})
        consumer.close()

    def _saw(self, incarnation: int, offsets: Mapping[int, int]) -> None:
        before, now = self._seen.setdefault(incarnation, {}), time.monotonic()
        for partition, offset in offsets.items():
            if before.get(partition) == offset:
                continue
            self._sightings.append((now, incarnation, partition, offset))
            if offset < before.get(partition, 0):
                self.failures.append(
                    f"{self._place(incarnation, partition)}: the committed offset went back from "
                    f"{before[partition]} to {offset} (seen at {now:.3f})"
                )
        before.update(offsets)

    def _place(self, incarnation: int, partition: int) -> str:
        return f"{self.kind}: topic {incarnation}, partition {partition}"

    def _check_sightings(self) -> None:
        """No offset was committed before the record before it was handed out."""
        handed: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for member in self.members:
            for line in member.lines:
                for partition, offset, value in line.get("rows", ()):
                    incarnation = int(value.partition("/")[0])
                    handed.setdefault((incarnation, partition), []).append((line["at"], offset + 1))
        for seen_at, incarnation, partition, offset in self._sightings:
            ends = handed.get((incarnation, partition), [])
            end = max((end for at, end in ends if at <= seen_at), default=0)
            if offset > end:
                self.failures.append(
                    f"{self._place(incarnation, partition)}: offset {offset} was committed, but "
                    f"only {end} records were handed out (seen at {seen_at:.3f})"
                )

    def _conclude(self) -> None:
        self._check_sightings()
        folder = self.plan.folder
        for member in self.members:
            text = "".join(json.dumps(line) + "\n" for line in member.lines)
            (folder / f"{member.name}.{member.style}.jsonl").write_text(text)


def run(plan: GroupPlan, say: Callable[[str], None]) -> GroupReport:
    """Run all groups beside each other on one broker."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    begun, old = time.monotonic(), plan.kafka.startswith(WITHOUT_KIP_848)
    if old and "consumer" in plan.kinds:
        say(f"without group.protocol=consumer, which Kafka {plan.kafka} doesn't offer by default")
    with LocalCluster(brokers=1, version=plan.kafka, config=SESSIONS) as cluster:
        kinds = [k for k in plan.kinds if k != "consumer" or not old]
        groups = [GroupUnderTest(kind, cluster, plan) for kind in kinds]
        threads = [threading.Thread(target=g.run, args=(plan.seconds,)) for g in groups]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            threads[0].join(10)
            say(
                f"{time.monotonic() - begun:6.0f} s  "
                + ", ".join(
                    f"{g.kind}: {g.incarnation + 1} topics, {g.frozen} freezes, "
                    f"{len(g.left())} records not read yet"
                    for g in groups
                )
            )
            if not threads[0].is_alive():
                for thread in threads:
                    thread.join()
    return conclude(plan, groups, time.monotonic() - begun)


def conclude(plan: GroupPlan, groups: list[GroupUnderTest], seconds: float) -> GroupReport:
    """Add up what all groups did."""
    report = GroupReport(plan.seed, plan.kafka, round(seconds, 1))
    refused: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for group in groups:
        handed = group.handed()
        report.topics += group.incarnation + 1
        report.records += sum(group.written)
        report.handed_out += len(handed)
        report.handed_out_again += handed.total() - len(handed)
        report.frozen += group.frozen
        report.failures += group.failures
        for line in (line for member in group.members for line in member.lines):
            report.committed += line["kind"] == "committed"
            if line["kind"] in ("refused", "error"):
                counted = refused if line["kind"] == "refused" else errors
                counted[f"{group.kind}: {line['error'].split(':')[0]}"] += 1
    report.refused, report.errors = dict(refused), dict(errors)
    if not report.frozen or report.topics <= len(groups):
        report.failures.append("nothing was frozen or recreated: this run shows nothing")
    if report.frozen > REFUSED_BY and not report.refused:
        report.failures.append("no commit was refused after a freeze: this run shows nothing")
    return report


def as_json(report: GroupReport) -> str:
    """Return the report as a JSON document."""
    return json.dumps({"ok": report.ok, **asdict(report)}, indent=1)
