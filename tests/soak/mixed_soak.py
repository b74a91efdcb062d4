"""Groups of real brokers with members of five clients, which join, close, restart and are killed.

In: a plan with a seed. Out: a `MixedReport`. Each group has one assignor (or KIP-848) and places
for members; the member of a place is a program of Odradek, confluent-kafka, aiokafka or
kafka-python (`mixed_member`), or a Java consumer, static or dynamic. Step by step members join,
close in order, restart, are killed or work on a batch beyond `max.poll.interval.ms`, and partitions
and topics are added. After each step records are written to all partitions. The soak judges: in
time each partition has exactly one owner and all records are read; a record isn't read again if a
member of Odradek read it and then closed or gave the partition back in order; no committed offset
moves back or is beyond the log end, and after orderly closes it is the log end. Two faults of other
clients are only noted: librdkafka's leader doesn't notice that a topic grows to which only other
members subscribe; kafka-python's consumer doesn't always join again after a refused commit, so that
partitions to which only it subscribes have no owner.
"""

from __future__ import annotations

import json
import random
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
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.interop.group_members import Jvm
from tests.interop.other_client import settings
from tests.soak.group_soak import ROOT, WITHOUT_KIP_848
from tests.soak.mixed_ledger import (
    OURS,
    Ledger,
    Member,
    at_fault,
    known_to_group,
    last_leader,
)
from tests.soak.soak import SESSIONS

from odradek.testing import LocalCluster
from odradek.testing.jars import DEFAULT_VERSION

JAVA = "org.apache.kafka.clients.consumer."
CLASSIC = {
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
}
POLL_INTERVAL = 8.0
KINDS: Mapping[str, tuple[str, ...]] = {
    "range": (*OURS, "java", "confluent", "aiokafka", "kafka-python"),
    "roundrobin": (*OURS, "java", "confluent", "aiokafka", "kafka-python"),
    "sticky": (*OURS, "java", "aiokafka", "kafka-python"),
    "cooperative-sticky": (*OURS, "java", "confluent", "kafka-python"),
    "consumer": (*OURS, "java", "confluent"),
}
"""The clients that take part, by assignor; `consumer` is KIP-848."""
JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
ACTIONS = ("join", "join", "close", "restart", "restart", "kill", "hold", "partitions", "topic")
MOST_PARTITIONS = 8
SESSION_OVER = {"consumer": 12.0}
"""Seconds after which a member that was killed is no longer in its group; 8.0 by default."""
SETTLED_WITHIN = 75.0
"""Seconds after the last fault in which a group has to read everything."""
OVERLONG = (9.0, 14.0)
"""Duration in seconds of a batch that exceeds `max.poll.interval.ms`."""
BETWEEN = (0.0, 1.5)
"""Seconds between two actions of one step."""
AT_EACH_STEP = 6
"""Number of records that each step writes to each partition."""


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """Duration, kinds of groups and their sizes."""

    seconds: float
    seed: int = 1
    kafka: str = DEFAULT_VERSION
    kinds: tuple[str, ...] = tuple(KINDS)
    places: int = 4
    folder: Path = ROOT / "build" / "soak-mixed"
    """Folder of events and logs."""


@dataclass(slots=True)
class MixedReport:
    """Result of a run."""

    seed: int = 0
    kafka: str = ""
    seconds: float = 0.0
    steps: int = 0
    actions: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    """Members that were started, by client."""
    records: int = 0
    read: dict[str, int] = field(default_factory=dict)
    """Records read, by client."""
    read_again: dict[str, int] = field(default_factory=dict)
    """Records that were read a second time, by the client that had read them first."""
    slowest: float = 0.0
    """Seconds until a group had read everything after a step."""
    notes: list[str] = field(default_factory=list)
    """Descriptions of faults that only other clients have caused."""
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no fault of Odradek was found."""
        return not self.failures


class MixedGroup:
    """One group with its topics and its members."""

    def __init__(self, kind: str, cluster: LocalCluster, jvm: Jvm, plan: MixedPlan) -> None:
        self.kind, self.plan = kind, plan
        self.group = f"mixed-{kind}"
        self.failures: list[str] = []
        self.notes: list[str] = []
        self.actions: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.steps = 0
        self.slowest = 0.0
        self.ledger = Ledger(self.group)
        self._theirs = cluster.librdkafka_config()
        self._config = cluster.client_config()
        self._admin = AdminClient(settings(self._theirs))
        self._source = confluent_kafka.Producer(
            settings(
                self._theirs,
                **{"enable.idempotence": True, "topic.metadata.refresh.interval.ms": 500},
            )
        )
        self._witness = confluent_kafka.Consumer(
            settings(self._theirs, **{"group.id": self.group, "enable.auto.commit": False})
        )
        self._jvm = jvm
        self._broker_log = partial(cluster.logs, 0)
        self._rng = random.Random(f"{plan.seed}/{kind}")
        self._growing = False
        """Partitions are added in this step. A static leader of another client that returns to the
        group doesn't notice them (KIP-814), so only Odradek returns to static places meanwhile."""
        self._serial = 0
        self._changed = threading.Condition()
        self._log = (plan.folder / f"{kind}.jsonl").open("w")
        self.places: list[Member | None] = [None] * plan.places
        self._before: dict[int, Member] = {}
        """The last static member of each place."""
        self._processes: dict[Member, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        self._create(f"{kind}-a", 3)

    # Reports of members

    def _heard(self, member: Member, kind: str, at: float, said: Mapping[str, Any]) -> None:
        with self._changed:
            if self._log.closed:  # the group's run is over
                return
            self._log.write(json.dumps({"at": at, "member": member.name, "kind": kind, **said}))
            self._log.write("\n")
            orderly = member.disorderly_at is None
            if kind == "read":
                for partition, offset in said["rows"]:
                    self.ledger.read(member, at, partition, offset)
            else:
                member.heard(kind, at, said)
            if kind == "refused" and member.ours and orderly:
                self.failures.append(f"{member}: {said['error']}")
            self._changed.notify_all()

    def _note(self, what: str, **said: Any) -> None:
        with self._changed:
            at = time.monotonic()
            self._log.write(json.dumps({"at": at, "kind": what, **said}) + "\n")

    # Members

    def _start(self, place: int, client: str, static: bool, topics: list[str]) -> None:
        self._serial += 1
        name = f"{self.kind}-{place}-{self._serial}"
        member = Member(name, client, f"{self.group}-{place}" if static else "", topics)
        config: dict[str, Any] = {
            **self._config,
            "group.id": self.group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "metadata.max.age.ms": 2000,
            "max.poll.interval.ms": int(POLL_INTERVAL * 1000),
            "enable.auto.commit": client != "ours" or self._rng.random() < 0.5,
            "auto.commit.interval.ms": 1000,
        }
        if static:
            config["group.instance.id"] = member.static
        if self.kind == "consumer":
            config["group.protocol"] = "consumer"
        else:
            strategy = JAVA + JAVA_NAMES[self.kind] if client == "java" else self.kind
            config |= {**CLASSIC, "partition.assignment.strategy": strategy}
        self._note("start", member=name, client=client, static=member.static, topics=topics)
        self.started[client] += 1
        self.places[place] = member
        if client == "java":
            words = (
                f"{k}={str(v).lower() if v in (True, False) else v}" for k, v in config.items()
            )
            self._jvm.listeners[name] = lambda what, said: self._heard_java(member, what, said)
            self._jvm.say("start", name, ",".join(topics), *words)
            return
        told = json.dumps({"client": client, "config": config, "topics": topics})
        with (self.plan.folder / f"{name}.{client}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.mixed_member", told],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._processes[member] = process
        reader = threading.Thread(target=self._read, args=(member, process.stdout), daemon=True)
        reader.start()
        self._threads.append(reader)

    def _read(self, member: Member, stdout: IO[str]) -> None:
        for line in stdout:
            with suppress(json.JSONDecodeError):  # the last line of a program that was killed
                said = json.loads(line)
                self._heard(member, said.pop("kind"), said.pop("at"), said)
        self._heard(member, "ended", time.monotonic(), {})

    def _heard_java(self, member: Member, what: str, words: list[str]) -> None:
        at = time.monotonic()
        if what == "read":
            self._heard(member, what, at, {"rows": [[words[0], int(words[1])]]})
        elif what == "error":
            self._heard(member, what, at, {"error": " ".join(words)})
        elif what in ("assigned", "revoked", "lost"):
            self._heard(member, what, at, {"partitions": words})
        else:
            self._heard(member, "ended" if what == "stopped" else what, at, {})

    def _close(self, member: Member) -> None:
        """Ask a member to close its consumer in order."""
        self._note("close", member=member.name)
        member.closing = True
        if member.client == "java":
            self._jvm.say("stop", member.name)
        else:
            with suppress(OSError):
                self._processes[member].stdin.close()  # type: ignore[union-attr]

    def _await_end(self, member: Member, timeout: float = 60.0) -> None:
        with self._changed:
            ended = self._changed.wait_for(lambda: member.ended, timeout)
        process = self._processes.pop(member, None)
        if not ended:
            text = f"{member} didn't end within {timeout:g} s of its close"
            (self.failures if member.ours else self.notes).append(text)
        if process is not None:
            if not ended:
                process.kill()
            status = process.wait()
            if status > 0 and member.ours and ended:  # below 0: it was killed
                self.failures.append(f"{member} ended with exit status {status}: {member.trouble}")

    def _vacate(self, place: int) -> Member:
        """Close the member of a place, wait for its end, and return it."""
        member = self.places[place]
        assert member is not None
        self._close(member)
        self._await_end(member)
        self.places[place] = None
        if member.static:
            self._before[place] = member
        return member

    def _fill(self, place: int) -> None:
        """Start a member; a static place keeps its topics, unless Odradek returns to it."""
        client = self._rng.choice(KINDS[self.kind])
        before = self._before.get(place)
        if self._rng.random() < 0.25 or (before is not None and self._growing):
            client = "ours"
        static = before is not None or self._rng.random() < 0.5
        topics = self._topics_for(client)
        if before is not None and client not in OURS:
            topics = [t for t in before.topics if not t.startswith("^")]
            if not topics:
                client, topics = "ours", self._topics_for("ours")
        if client == "aiokafka" and not set(self.ledger.topics()).issuperset(topics):
            client = "ours"  # aiokafka doesn't start with a topic that doesn't exist
        self._start(place, client, static, topics)

    def _topics_for(self, client: str) -> list[str]:
        rng = self._rng
        if client in OURS and rng.random() < 0.15:
            return [f"^{self.kind}-[abc]$" if self.kind != "consumer" else f"^{self.kind}-[abc]"]
        more = [t for t in (f"{self.kind}-b", f"{self.kind}-c") if rng.random() < 0.4]
        return [f"{self.kind}-a", *more]

    def live(self) -> list[Member]:
        return [m for m in self.places if m is not None]

    # Actions

    def _join(self) -> None:
        free = [n for n, m in enumerate(self.places) if m is None]
        if free:
            self._fill(self._rng.choice(free))

    def _close_one(self) -> None:
        if len(self.live()) > 1:
            self._vacate(self._any())

    def _restart(self) -> None:
        if self.live():
            place = self._any()
            self._vacate(place)
            self._fill(place)

    def _kill(self) -> None:
        """Kill a process; members of other clients return once its session is over."""
        chosen = [n for n, m in enumerate(self.places) if m is not None and m.client != "java"]
        if not chosen:
            return
        place = self._rng.choice(chosen)
        member = self.places[place]
        assert member is not None
        self._note("kill", member=member.name)
        member.closing = True
        member.disorderly(time.monotonic())
        self._processes[member].kill()
        self._await_end(member)
        self.places[place] = None
        if member.static:
            self._before[place] = member
            if self._rng.random() < 0.5:
                self._start(place, "ours", True, self._topics_for("ours"))
                return
        time.sleep(SESSION_OVER.get(self.kind, 8.0))
        self._fill(place)

    def _hold(self) -> None:
        """Let a member work on a batch for longer than `max.poll.interval.ms`."""
        if not self.live():
            return
        member = self._rng.choice(self.live())
        seconds = self._rng.uniform(*OVERLONG)
        self._note("hold", member=member.name, seconds=seconds)
        member.disorderly(time.monotonic())
        member.held.clear()
        if member.client == "java":
            self._jvm.say("hold", member.name, str(int(seconds * 1000)))
        else:
            stdin = self._processes[member].stdin
            assert stdin is not None
            with suppress(OSError):
                stdin.write(f"hold {seconds:.3f}\n")
                stdin.flush()

    def _add_partitions(self) -> None:
        topic = self._rng.choice(self.ledger.topics())
        count = sum(p.rpartition("-")[0] == topic for p in self.ledger.ends)
        if count < MOST_PARTITIONS:
            self._note("partitions", topic=topic, count=count + 1)
            new = NewPartitions(topic, count + 1)
            self._admin.create_partitions([new])[topic].result(30)
            self.ledger.create(topic, [count])

    def _add_topic(self) -> None:
        for topic in (f"{self.kind}-b", f"{self.kind}-c"):
            if topic not in self.ledger.topics():
                self._note("topic", topic=topic)
                self._create(topic, self._rng.randint(1, 3))
                return

    def _any(self) -> int:
        return self._rng.choice([n for n, m in enumerate(self.places) if m is not None])

    def _create(self, topic: str, count: int) -> None:
        self._admin.create_topics([NewTopic(topic, count, 1)])[topic].result(30)
        self.ledger.create(topic, range(count))

    # Steps

    def step(self) -> None:
        """Do one to four actions, and judge the group after them."""
        self.steps += 1
        by_name: dict[str, Callable[[], None]] = {
            "join": self._join,
            "close": self._close_one,
            "restart": self._restart,
            "kill": self._kill,
            "hold": self._hold,
            "partitions": self._add_partitions,
            "topic": self._add_topic,
        }
        chosen = self._rng.choices(ACTIONS, k=self._rng.choice((1, 1, 2, 3)))
        if not self.live() or (len(self.live()) == 1 and self._rng.random() < 0.7):
            chosen.insert(0, "join")
        self._growing = not {"partitions", "topic"}.isdisjoint(chosen)
        for action in chosen:
            self.actions[action] += 1
            self._write(2)
            by_name[action]()
            time.sleep(self._rng.uniform(*BETWEEN))
            self._replace_ended()
        self._settle(", ".join(chosen))

    def _replace_ended(self) -> None:
        """Note members that ended by themselves, and fill their places."""
        for place, member in enumerate(self.places):
            if member is not None and member.ended:
                text = f"step {self.steps}: {member} ended by itself: {member.trouble}"
                (self.failures if member.ours else self.notes).append(text)
                if (process := self._processes.pop(member, None)) is not None:
                    process.wait()
                self.places[place] = None
                time.sleep(SESSION_OVER.get(self.kind, 8.0))
                self._fill(place)

    def _write(self, count: int) -> None:
        failed: list[str] = []
        for partition in self.ledger.ends:
            topic, _, number = partition.rpartition("-")
            for _ in range(count):
                with self._changed:
                    offset = self.ledger.write(partition)
                self._produce(topic, int(number), offset, failed)
        left = self._source.flush(60)
        if failed or left:
            raise RuntimeError(f"the source failed: {left} left, {failed[:1]}")

    def _produce(self, topic: str, partition: int, offset: int, failed: list[str]) -> None:
        """Send a record; librdkafka needs some time to learn of a new partition."""
        until = time.monotonic() + 30
        while True:
            try:
                self._source.produce(
                    topic,
                    f"{offset}",
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                )
                return
            except confluent_kafka.KafkaException as error:
                unknown = error.args[0].code() == confluent_kafka.KafkaError._UNKNOWN_PARTITION
                if not unknown or time.monotonic() > until:
                    raise
            self._source.poll(0.2)

    def _settle(self, what: str) -> None:
        """Wait until each partition has one owner and everything was read."""
        for member in self.live():
            if not member.held.wait(60):
                self.notes.append(f"step {self.steps}: {member} didn't report the end of its batch")
                member.held.set()
        self._write(AT_EACH_STEP)
        begun = time.monotonic()
        until = begun + SETTLED_WITHIN
        with self._changed:
            while (left := self.ledger.left(self.live())) and time.monotonic() < until:
                self._changed.wait(min(1.0, max(0.0, until - time.monotonic())))
                if any(m.ended for m in self.live()):
                    self._replace_ended_outside()
        self.slowest = max(self.slowest, time.monotonic() - begun)
        if left:
            self._blame(what, left)
        self._look_at_commits()

    def _replace_ended_outside(self) -> None:
        self._changed.release()
        try:
            self._replace_ended()
        finally:
            self._changed.acquire()

    def _blame(self, what: str, left: Mapping[str, str]) -> None:
        """Report a group that didn't settle, with its state and its members' reports."""
        described, assigned = self._describe()
        leader = last_leader(self._broker_log(), self.group, self.live())
        unread = [p for p, text in left.items() if not text.startswith("0 ")]
        text = (
            f"{self.group}, step {self.steps} ({what}): after {SETTLED_WITHIN:g} s {dict(left)}; "
            f"the group: {described}, led by {leader}"
        )
        self._note("unsettled", text=text)
        known = known_to_group(unread, self.live(), assigned)
        ours = at_fault(
            leader, known, {"": self.ledger.ends} if assigned is None else assigned, self.live()
        )
        (self.failures if ours else self.notes).append(text)
        for place in [n for n, m in enumerate(self.places) if m is not None]:
            self._vacate(place)
        self._before.clear()
        time.sleep(SESSION_OVER.get(self.kind, 8.0))
        self._start(0, "ours", False, [f"{self.kind}-{t}" for t in "abc"])

    def _describe(self) -> tuple[str, dict[str, list[str]] | None]:
        """Return the group as its coordinator describes it, and partitions by its members."""
        with suppress(Exception):
            asked = self._admin.describe_consumer_groups([self.group])
            found: Any = asked[self.group].result(10)
            members = {
                m.client_id: [f"{p.topic}-{p.partition}" for p in m.assignment.topic_partitions]
                for m in found.members
            }
            return f"{found.state}, {members}", members
        return "not described", None

    def _look_at_commits(self, *, final: bool = False) -> None:
        """Compare the committed offsets with the earlier ones, and with the end offsets."""
        places = [
            confluent_kafka.TopicPartition(t, int(n))
            for t, _, n in (p.rpartition("-") for p in self.ledger.ends)
        ]
        for found in self._witness.committed(places, timeout=30):
            partition, offset = f"{found.topic}-{found.partition}", max(0, found.offset)
            with self._changed:
                faults = self.ledger.committed(partition, offset, final=final)
            self.failures += [f"step {self.steps}: {text}" for text in faults]

    def run(self, seconds: float) -> None:
        """Take steps for this time; then close all members and judge."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self.step()
            for place in [n for n, m in enumerate(self.places) if m is not None]:
                self._vacate(place)
            self._look_at_commits(final=True)
        except Exception as error:
            self.failures.append(f"{self.group}, step {self.steps}: {error!r}")
            raise
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()
            self._conclude()

    def _conclude(self) -> None:
        self.failures += self.ledger.read_again()
        self._witness.close()
        self._log.close()


def run(plan: MixedPlan, say: Callable[[str], None]) -> MixedReport:
    """Run all groups at the same time on one broker."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    begun, old = time.monotonic(), plan.kafka.startswith(WITHOUT_KIP_848)
    config = {**SESSIONS, "auto.create.topics.enable": "false"}
    jvm = Jvm()
    try:
        with LocalCluster(brokers=1, version=plan.kafka, config=config) as cluster:
            kinds = [k for k in plan.kinds if k != "consumer" or not old]
            groups = [MixedGroup(kind, cluster, jvm, plan) for kind in kinds]
            threads = [threading.Thread(target=g.run, args=(plan.seconds,)) for g in groups]
            for thread in threads:
                thread.start()
            told: set[str] = set()
            while any(thread.is_alive() for thread in threads):
                next(t for t in threads if t.is_alive()).join(15)
                progress = ", ".join(f"{g.kind}: {g.steps} steps" for g in groups)
                say(f"{time.monotonic() - begun:6.0f} s  {progress}")
                for text in (t for g in groups for t in (*g.failures, *g.notes)):
                    if text not in told:
                        told.add(text)
                        say(f"  {text}")
    finally:
        jvm.close()
    report = MixedReport(plan.seed, plan.kafka, round(time.monotonic() - begun, 1))
    actions: Counter[str] = Counter()
    members: Counter[str] = Counter()
    read: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for group in groups:
        report.steps += group.steps
        report.slowest = round(max(report.slowest, group.slowest), 1)
        report.records += sum(group.ledger.ends.values())
        actions += group.actions
        members += group.started
        read.update(m.client for reads in group.ledger.reads.values() for _, m, _ in reads)
        again.update(first.client for first, *_ in group.ledger.again())
        report.failures += group.failures
        report.notes += group.notes
    report.actions, report.members = dict(actions), dict(members)
    report.read, report.read_again = dict(read), dict(again)
    if idle := [c for k in kinds for c in KINDS[k] if members[c] and not read[c]]:
        report.failures.append(f"{idle[0]} has read nothing: this run shows nothing of it")
    return report


def as_json(report: MixedReport) -> str:
    """Return the report as a JSON document."""
    return json.dumps({"ok": report.ok, **asdict(report)}, indent=1)
