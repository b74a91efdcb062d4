"""Stop members of real groups with SIGSTOP, and delete and recreate their topics.

In: a plan, a cluster of a soak. Out: a `GroupReport`. Each group has one topic, and members that
are processes (`group_member`). In each turn a source writes records to the topic, members are
stopped for longer than their sessions while they hold records, and the topic gets a partition. Once
each record was returned to a member, the topic is deleted and created again, while members still
hold records of the old one. librdkafka reads the committed offsets. Three things are judged: every
record of every topic was returned to a member; the group's committed offset never moves back while
the topic is the same; it is never beyond the records of that topic that were returned. Records that
were returned twice are counted.
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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.interop.other_client import settings

from odradek.common.types import TopicPartition
from odradek.compat.confluent_kafka import KafkaException
from odradek.compat.confluent_kafka import Producer as LikeConfluent
from odradek.simulation.checkers.history import CallKind, CallResult, History, Write
from odradek.testing import LocalCluster

ROOT = Path(__file__).resolve().parent.parent.parent
SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
FROZEN = (8.0, 20.0)
"""Seconds of a SIGSTOP. Sessions are 6 s (classic) and 10 s (KIP-848)."""
BY_HAND = ("record", "all", "later", "asyncio", "confluent")
"""Styles of members that hold records while they are stopped, and commit by themselves."""
STYLES: Mapping[str, tuple[str, ...]] = {
    "eager": ("aiokafka", "auto", "confluent"),
    "cooperative": ("all", "workers", "asyncio"),
    "consumer": ("record", "later", "workers"),
}
"""The styles of each group's members."""
THEIRS = ("confluent", "aiokafka")
"""Styles of members that use the interface of another library."""
KINDS: Mapping[str, Mapping[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", **SESSION},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **SESSION},
    "consumer": {"group.protocol": "consumer"},
}
WITHOUT_KIP_848 = "3."
"""Prefix of the versions whose brokers support group.protocol=consumer only if configured."""
WATCH_EVERY = 0.2
FLUSHED_WITHIN = 120.0
MADE_WITHIN = 90.0
"""Timeout in seconds of all attempts to create or delete a topic, or to add partitions."""
HANDED_OUT_WITHIN = 240.0
"""Seconds that members may take to read what is left of a topic, after the last SIGCONT."""
Span = tuple[float, float]
AWAY_BEFORE, AWAY_AFTER = 5.0, 30.0
"""Seconds before and after a fault of brokers in which a coordinator may not be loaded."""
AWAY = (0.0, 5.0)
"""Seconds for which a deleted topic doesn't exist."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Kinds of groups, and numbers and rates of records."""

    seed: int = 1
    kinds: tuple[str, ...] = tuple(KINDS)
    partitions: int = 4
    records: int = 400
    """Records of each topic."""
    rate: float = 40.0
    """Records a second of each group's topic."""
    folder: Path = ROOT / "build" / "soak-groups"
    """Folder of members' reports and logs."""


@dataclass(slots=True)
class GroupReport:
    """Result of all groups."""

    topics: int = 0
    records: int = 0
    handed_out: int = 0
    handed_out_again: int = 0
    frozen: int = 0
    grown: int = 0
    """Number of partitions that were added."""
    left_over: int = 0
    """Offsets of a deleted topic that a coordinator returned for the new one."""
    lost: int = 0
    """How often members were removed from their groups."""
    styles: dict[str, int] = field(default_factory=dict)
    """Records that polls returned, by style of the member."""
    refused: dict[str, int] = field(default_factory=dict)
    """Commits that raised, by type of error."""
    committed: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """Errors of polls, by type."""
    failures: list[str] = field(default_factory=list)


class MemberProcess:
    """The process of a member, and its reports."""

    def __init__(
        self, name: str, settings_: Mapping[str, Any], topic: str, style: str, folder: Path
    ) -> None:
        self.name, self.style = name, style
        self.frozen = False
        self.lines: list[dict[str, Any]] = []
        config = {**settings_, "client.id": name, "enable.auto.commit": style == "auto"}
        self.log = folder / f"{name}.log"
        told = json.dumps({"config": config, "topic": topic, "style": style})
        self._log = self.log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.group_member", told],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(
            target=self._read, args=(self.process.stdout,), name=name, daemon=True
        )
        self._reader.start()

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.lines.append(json.loads(line))

    def freeze(self, frozen: bool) -> None:
        """Stop the process, or let it continue."""
        self.frozen = frozen
        self.process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self, failures: list[str]) -> None:
        """Close stdin, and wait until the process has closed its client and ended."""
        self.freeze(False)
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._reader.join(10)
        self.process.stdout.close()  # type: ignore[union-attr]
        self._log.close()
        if status != 0:
            failures.append(f"{self.name} ({self.style}) ended with exit status {status}")


class GroupUnderTest:
    """One group, its topic, its members, and the committed offsets that an observer reads."""

    def __init__(
        self, kind: str, cluster: LocalCluster, plan: GroupPlan, proxy: str | None = None
    ) -> None:
        self.kind, self.plan = kind, plan
        self.group, self.topic = f"group-{kind}", f"topic-{kind}"
        self._theirs = cluster.librdkafka_config()
        self._admin = AdminClient(settings(self._theirs))
        self._rng = random.Random(f"{plan.seed}/{kind}")
        self.incarnation = -1
        self.failures: list[str] = []
        self.written: list[int] = []
        """Records of each incarnation."""
        self.frozen = self.grown = 0
        self.left_over = 0
        """Offsets of a deleted topic that a coordinator returned for the new one."""
        self._kept: dict[int, int] = {}
        """By partition: the group's committed offset in the deleted topic, if a broker kept it."""
        self._deleted: dict[int, float] = {}
        """Time of the deletion before each incarnation of the topic."""
        self.sent: list[tuple[int, Write]] = []
        """All writes with the topic's incarnation, for the history."""
        self._replication = min(3, len(cluster.broker_addresses))
        self._seen: dict[int, dict[int, int]] = {}
        """The last committed offsets of each incarnation that the observer has read."""
        self._sightings: list[tuple[float, int, int, int]] = []
        """Time, incarnation, partition and offset of each change. They are compared with the times
        of members' polls at the end of the run, because reports may arrive late."""
        self._watching = threading.Event()
        self.calm = threading.Event()
        """When set, the faults are over, and the next turn is the last one."""
        config = {
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "metadata.max.age.ms": 2000,
            **KINDS[kind],
        }
        ours = {**cluster.client_config(), **({} if proxy is None else {"proxy.url": proxy})}
        theirs = cluster.librdkafka_config()
        self.create()
        self.members = [
            MemberProcess(
                f"{kind}-{style}",
                {**(theirs if style in THEIRS else ours), **config},
                self.topic,
                style,
                plan.folder,
            )
            for style in STYLES[kind]
        ]
        self._over = threading.Event()
        self._observer = threading.Thread(
            target=self._observe, name=f"observer-{kind}", daemon=True
        )
        self._observer.start()

    # The topic

    def create(self) -> None:
        """Create the topic, and let the observer record its offsets."""
        new = NewTopic(self.topic, self.plan.partitions, self._replication)
        done = confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
        self._again(lambda: self._admin.create_topics([new])[self.topic].result(30), done)
        self.incarnation += 1
        self._watching.set()

    def recreate(self) -> None:
        """Delete the topic, and create it again within `AWAY` seconds."""
        self._watching.clear()
        self._kept.clear()
        self._deleted[self.incarnation + 1] = time.monotonic()
        done = confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
        self._again(lambda: self._admin.delete_topics([self.topic])[self.topic].result(30), done)
        time.sleep(self._rng.uniform(*AWAY))
        self.create()
        self._again(self._read_kept)

    def _read_kept(self) -> None:
        """Read which committed offsets of the deleted topic the group still has.

        Kafka before 4.1 stores offsets by the topic's name. A coordinator that was away when the
        topic was deleted keeps them, so members skip records of the new topic.
        """
        places = [
            confluent_kafka.TopicPartition(self.topic, p) for p in range(self.plan.partitions + 1)
        ]
        # Not with librdkafka's admin client, which ended the process by an assertion meanwhile.
        consumer = confluent_kafka.Consumer(settings(self._theirs, **{"group.id": self.group}))
        with closing(consumer):
            found: Any = consumer.committed(places, timeout=5)
        self._kept = {place.partition: place.offset for place in found if place.offset > 0}

    def _again(self, act: Callable[[], object], done: int = 0) -> None:
        """Repeat a request until it succeeds, because a topic can't be created during its deletion.

        `done` is the error code which shows that a request without an answer took effect, if any.
        """
        end, unanswered = time.monotonic() + MADE_WITHIN, False
        while True:
            try:
                act()
                return
            except (confluent_kafka.KafkaException, TimeoutError) as error:
                code = None if isinstance(error, TimeoutError) else error.args[0].code()
                if unanswered and code == done:
                    return
                unanswered = unanswered or code != done
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def place(self, incarnation: int, partition: int) -> TopicPartition:
        """Return a partition's name in the history, with the number of the topic's incarnation."""
        return TopicPartition(f"{self.topic}#{incarnation + 1}", partition)

    def write(self) -> None:
        """Write the records of this incarnation, and wait for their acknowledgements.

        librdkafka can't be the source: on Kafka 3.9, while brokers restarted, 2.16.0 acknowledged
        the first record of a new partition without an offset, and no log contained it.
        After half of the records the topic gets another partition, which is written, too.
        """
        plan = self.plan
        producer = LikeConfluent(
            settings(
                self._theirs,
                **{
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "topic.metadata.refresh.interval.ms": 500,
                },
            )
        )
        failed: list[str] = []
        begun, partitions = time.monotonic(), plan.partitions
        with closing(producer):
            for number in range(plan.records):
                time.sleep(max(0.0, begun + number / plan.rate - time.monotonic()))
                if number == plan.records // 2:
                    partitions += self._grow(partitions + 1)
                self._produce(producer, number, number % partitions, failed)
                producer.poll(0)
            producer.flush(FLUSHED_WITHIN)
        if failed:
            raise RuntimeError(f"the source failed: {failed[0]}")
        self.written.append(plan.records)

    def _grow(self, count: int) -> int:
        """Add a partition to the topic; return how many were added."""
        new = NewPartitions(self.topic, count)
        done = confluent_kafka.KafkaError.INVALID_PARTITIONS
        self._again(lambda: self._admin.create_partitions([new])[self.topic].result(30), done)
        self.grown += 1
        return 1

    def _produce(
        self, producer: LikeConfluent, number: int, partition: int, failed: list[str]
    ) -> None:
        """Send a record; the producer needs some time to learn of a new partition."""
        value = f"{self.kind}/{self.incarnation}/{number}"
        place = self.place(self.incarnation, partition)
        write = Write(place, value)
        sent = self.incarnation, write

        def give() -> None:
            write.invoked = time.monotonic()
            self.sent.append(sent)
            producer.produce(self.topic, value, partition=partition, on_delivery=delivered)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                write.offset, write.returned = message.offset(), time.monotonic()
            elif error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_ID:
                # A broker still described the deleted topic: the record was certainly not written.
                self.sent.remove(sent)
                give()
            else:
                failed.append(str(error))

        until = time.monotonic() + MADE_WITHIN
        while True:
            try:
                give()
                return
            except KafkaException as error:
                self.sent.remove(sent)
                unknown = error.args[0].code() == confluent_kafka.KafkaError._UNKNOWN_PARTITION
                if not unknown or time.monotonic() > until:
                    raise
            producer.poll(0.2)

    # Members

    def freeze_one(self) -> None:
        """Stop one member for `FROZEN` seconds, mostly longer than its session."""
        member = self._rng.choice(self.members)
        member.freeze(True)
        self.frozen += 1
        time.sleep(self._rng.uniform(*FROZEN))
        member.freeze(False)

    def turn(self, *, last: bool) -> None:
        """Write the records of one topic, freeze members meanwhile, and recreate the topic."""
        writer = threading.Thread(target=self._guarded, args=(self.write,), daemon=True)
        writer.start()
        while writer.is_alive():
            self.freeze_one()
        writer.join()
        end = time.monotonic() + HANDED_OUT_WITHIN
        while (left := self.left()) and time.monotonic() < end and not self.failures:
            time.sleep(0.1)
        if left and not self.failures:
            self.failures.append(
                f"{self.kind}: topic {self.incarnation}: {len(left)} of {self.plan.records} "
                f"records were handed to no member within {HANDED_OUT_WITHIN:.0f} s: {left[:10]}; "
                f"{self.described(left)}"
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

    def run(self) -> None:
        """Run turns; the last one is the one after `calm` is set."""
        with suppress(Exception):
            while not self.failures:
                last = self.calm.is_set()
                self._guarded(partial(self.turn, last=last))
                if last:
                    break
        self._over.set()
        for member in self.members:
            member.end(self.failures)
        self._observer.join()

    def handed(self) -> Counter[str]:
        """Return how often polls returned each value."""
        found: Counter[str] = Counter()
        for member in self.members:
            for line in list(member.lines):
                if line["kind"] == "got":
                    found.update(value for _, _, value in line["rows"])
        return found

    def left(self) -> list[str]:
        """Return the values that no member has received, except those below a `_kept` offset."""
        handed = self.handed()
        wanted = (f"{self.kind}/{self.incarnation}/{n}" for n in range(self.plan.records))
        left = [value for value in wanted if not handed[value]]
        if left and self._kept:
            skipped = {
                write.value
                for number, write in self.sent
                if number == self.incarnation
                and write.offset is not None
                and write.offset < self._kept.get(write.partition.partition, 0)
            }
            left = [value for value in left if value not in skipped]
        return left

    def described(self, left: Collection[str]) -> str:
        """Return where these values are, the committed offsets, and the owners of partitions."""
        places = {write.value: (write.partition.partition, write.offset) for _, write in self.sent}
        unread: dict[int, list[int | None]] = {}
        for value in left:
            if value in places:
                partition, offset = places[value]
                unread.setdefault(partition, []).append(offset)
        try:
            asked = self._admin.describe_consumer_groups([self.group], request_timeout=30)
            group: Any = asked[self.group].result(40)
            owners = {
                member.client_id: sorted(p.partition for p in member.assignment.topic_partitions)
                for member in group.members
            }
            state = f"{group.state.name}, members own {owners}"
        except (confluent_kafka.KafkaException, TimeoutError) as error:
            state = f"can't be described: {error}"
        committed = self._seen.get(self.incarnation, {})
        return f"offsets left by partition {unread}, committed {committed}, group {state}"

    # The observer

    def _observe(self) -> None:
        """Read the group's committed offsets with librdkafka every `WATCH_EVERY` seconds."""
        consumer = confluent_kafka.Consumer(settings(self._theirs, **{"group.id": self.group}))
        places = [
            confluent_kafka.TopicPartition(self.topic, p) for p in range(self.plan.partitions + 1)
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
            if before.get(partition) != offset:
                self._sightings.append((now, incarnation, partition, offset))
        before.update(offsets)

    def _place(self, incarnation: int, partition: int) -> str:
        return f"{self.kind}: topic {incarnation}, partition {partition}"

    def _check_sightings(self, faults: Iterable[Span]) -> None:
        """Find offsets that moved back, or were committed before their records were returned."""
        handed: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for member in self.members:
            for line in member.lines:
                for partition, offset, value in line.get("rows", ()):
                    incarnation = int(value.split("/")[1])
                    handed.setdefault((incarnation, partition), []).append((line["at"], offset + 1))
        last: dict[tuple[int, int], int] = {}
        for seen_at, incarnation, partition, offset in self._sightings:
            place = incarnation, partition
            ends = handed.get(place, [])
            end = max((end for at, end in ends if at <= seen_at), default=0)
            # Of any earlier topic: members may have read nothing of the last one, see `_kept`.
            earlier = [handed.get((n, partition), []) for n in range(incarnation)]
            old = max((end for read in earlier for _, end in read), default=0)
            if place not in last and end < offset <= old and self._was_away(incarnation, faults):
                self.left_over += 1
                continue
            before = last.get(place, 0)
            last[place] = offset
            what = f"{self._place(incarnation, partition)}: offset {offset} was committed, "
            if offset < before:
                self.failures.append(f"{what}though {before} was before (seen at {seen_at:.3f})")
            if offset > end:
                self.failures.append(
                    f"{what}but only {end} records were handed out (seen at {seen_at:.3f})"
                )

    def _was_away(self, incarnation: int, faults: Iterable[Span]) -> bool:
        """Return whether the group's coordinator may have been away when a topic was deleted.

        Such a coordinator keeps the deleted topic's offsets, and returns them for the new topic.
        """
        deleted = self._deleted.get(incarnation, 0.0)
        return any(a - AWAY_BEFORE <= deleted <= b + AWAY_AFTER for a, b in faults)

    def conclude(self, faults: Iterable[Span] = ()) -> None:
        """Judge the offsets, and write the members' reports; `faults` are those of brokers."""
        self._check_sightings(list(faults))
        folder = self.plan.folder
        for member in self.members:
            text = "".join(json.dumps(line) + "\n" for line in member.lines)
            (folder / f"{member.name}.{member.style}.jsonl").write_text(text)


def conclude(groups: Sequence[GroupUnderTest]) -> GroupReport:
    """Return the sum of all groups' reports."""
    report = GroupReport()
    refused: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    styles: Counter[str] = Counter()
    for group in groups:
        handed = group.handed()
        report.topics += group.incarnation + 1
        report.records += sum(group.written)
        report.handed_out += len(handed)
        report.handed_out_again += handed.total() - len(handed)
        report.frozen += group.frozen
        report.grown += group.grown
        report.left_over += group.left_over
        report.failures += group.failures
        for member, line in ((m, line) for m in group.members for line in m.lines):
            styles[member.style] += len(line.get("rows", ()))
            report.committed += line["kind"] == "committed"
            report.lost += line["kind"] == "lost"
            if line["kind"] in ("refused", "error"):
                counted = refused if line["kind"] == "refused" else errors
                counted[f"{group.kind}: {line['error'].split(':')[0]}"] += 1
    report.refused, report.errors, report.styles = dict(refused), dict(errors), dict(styles)
    return report


def add_to_history(history: History, groups: Iterable[GroupUnderTest]) -> None:
    """Add the writes and polls of groups to a history; each recreated topic is another one.

    Members of `Workers` finish the records of a partition by keys, in any order: their reads are
    judged by their group alone.
    """
    for group in groups:
        for incarnation, write in group.sent:
            made = history.invoke(CallKind.SEND, f"source-{group.kind}", incarnation)
            made.writes.append(write)
            made.invoked, made.returned = write.invoked, write.returned
            made.result = CallResult.INFO if write.returned is None else CallResult.OK
        for member in group.members:
            if member.style != "workers":
                for line in member.lines:
                    _add_line(history, group, member.name, line)


def _add_line(history: History, group: GroupUnderTest, name: str, line: Mapping[str, Any]) -> None:
    if line["kind"] in ("rebalanced", "lost"):
        made = history.invoke(CallKind.SUBSCRIBE, name, group=group.group)
        made.invoked = made.returned = line["at"]
        made.result = CallResult.OK
    elif line["kind"] == "got" and line["rows"]:
        made = history.invoke(CallKind.POLL, name, group=group.group)
        made.invoked = made.returned = line["at"]
        made.result = CallResult.OK
        for partition, offset, value in line["rows"]:
            _, incarnation, _ = value.split("/")
            made.saw(group.place(int(incarnation), partition), offset, value)
