"""Run clients for minutes or an hour under random faults of real brokers, and judge their history.

In: a cluster of three brokers, a plan. Out: a `Report` of the faults and of records that were lost,
duplicated or out of order. At the same time run idempotent producers, and for each group protocol a
read-process-write chain with transactions and a group of readers that join and leave; the faults
are in `troubles`. Some of these programs may be tasks of one event loop with asyncio clients, some
of whose polls are cancelled. `run` adds groups of processes, a copy and admin clients
(`companions`).
At the end librdkafka and Odradek read all topics with read_committed. Then the history is judged
(`judgement`), the kinds of events are counted (`coverage`), and the growth of processes is compared
with bounds (`slopes`).
"""

from __future__ import annotations

import random
import resource
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.soak import group_soak
from tests.soak.chain import Tally
from tests.soak.companions import Companions, styles
from tests.soak.coverage import EVENTS, Coverage
from tests.soak.group_soak import WITHOUT_KIP_848, GroupPlan
from tests.soak.judgement import Judge
from tests.soak.troubles import MORE_TROUBLES, TROUBLES, Troubles
from tests.soak.ways import InLoop, InThreads, Way
from tests.soak.witness import ClusterWitness
from tests.soak.workers import Administrator, GroupReader, Member, Source, Worker

from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation
from odradek.testing import LocalCluster
from odradek.testing.jars import DEFAULT_VERSION

SOURCE = "in"
SESSIONS = {
    # A member that couldn't leave its group keeps its partitions for a session, which each new
    # coordinator starts again: with Kafka's 45 s and a fault every 15 s, it would never end.
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "3000",
}
SECURED: dict[str, Any] = {
    "security": "SASL_SSL",
    "mechanisms": ["SCRAM-SHA-512"],
    "users": {"alice": "alice-secret"},
}
REAUTHENTICATION = {"connections.max.reauth.ms": "10000"}
"""Sessions end after 10 s, so that clients authenticate again during faults (KIP-368)."""
EXPIRING: dict[str, Any] = {
    "security": "SASL_PLAINTEXT",
    "mechanisms": ["SCRAM-SHA-512", "OAUTHBEARER"],
    "users": {"alice": "alice-secret"},
}
"""Passwords and tokens without TLS, because the proxy has to read requests."""
PROXIED = ("lose answers", "answers lost", "produce answers lost", "transaction answers lost")
"""Kinds of faults and events that need the proxy, and so connections without TLS."""
PROGRESS = 10.0
SEEN_WITHIN = 120.0
"""Seconds after the last fault within which a poll has to return each record: a member whose
session has to end first (10 s) and a coordinator that loads its log are below 60 s."""


class SharedHistory(History):
    """A history of clients in several threads: numbers and times are in one order."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._lock = threading.RLock()

    def now(self) -> float:
        with self._lock:
            return super().now()

    def invoke(self, *args: Any, **options: Any) -> Operation:
        with self._lock:
            return super().invoke(*args, **options)


@dataclass(frozen=True, slots=True)
class Plan:
    """Durations, rates and numbers of programs."""

    seconds: float
    seed: int = 1
    rate: float = 150.0
    """Records per second that the sources write."""
    partitions: int = 6
    protocols: tuple[str, ...] = ("classic", "consumer")
    members: int = 2
    readers: int = 2
    """Members of each group that only reads."""
    asyncio: int = 0
    """Additional members of each chain and group that are tasks of an event loop. If it isn't 0, a
    producer in the event loop sends half of the records."""
    pause: float = 20.0
    """Duration of a SIGSTOP in seconds."""
    quiet: tuple[float, float] = (6.0, 15.0)
    """Seconds between two faults."""
    disorder: float = 25.0
    """Seconds, on average, until a member of a chain leaves or is replaced."""
    reader_disorder: float = 25.0
    """Seconds, on average, until a member of a group that only reads leaves."""
    troubles: tuple[str, ...] = (*TROUBLES, *MORE_TROUBLES)
    """The kinds of faults. All of them occur, in a random order, before one is repeated."""
    rounds: int | None = None
    """If given, the faults end when each kind has occurred this many times."""
    victims: tuple[str, ...] = ()
    """Names of the workers whose brokers are killed and paused; by default all."""
    drain: float = 180.0
    """Seconds that the chains may take to process the rest."""
    kafka: str = DEFAULT_VERSION
    """The version of the brokers that `run` starts."""
    secured: bool = False
    """Whether the brokers that `run` starts require TLS and a password."""


@dataclass(slots=True)
class Report:
    """Result of a run."""

    seconds: float = 0.0
    trouble_seconds: float = 0.0
    """Seconds from the start to the end of the faults."""
    seed: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    """Visible records by topic, as librdkafka counted them."""
    chains: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: dict[str, dict[str, int]] = field(default_factory=dict)
    """Exceptions of calls, by class, after which the workers continued."""
    transactions: dict[str, int] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    """Records that each group of readers read again, after members were lost."""
    groups: dict[str, Any] = field(default_factory=dict)
    """Result of the groups of processes."""
    coverage: dict[str, int] = field(default_factory=dict)
    """Number of each kind of fault and event."""
    slopes: dict[str, dict[str, float]] = field(default_factory=dict)
    """Growth per hour by kind of resource and process."""
    course: dict[str, Any] = field(default_factory=lambda: {"faults": [], "series": {}})
    """For the picture: faults with begin and end, and series of points, in seconds."""
    asyncio: dict[str, int] = field(default_factory=dict)
    """Operations of the clients in the event loop; the run fails if a kind is missing."""
    longest_silence: float = 0.0
    """The longest time without an acknowledgement of a source, in seconds."""
    rss_mb: int = 0
    lost_groups: dict[str, str] = field(default_factory=dict)
    """Groups whose offsets Kafka's own coordinator has lost, with the reason. The faults end then;
    no step waits for these groups, and nothing that depends on their offsets is judged."""
    failures: list[str] = field(default_factory=list)
    """Reasons to fail: anomalies, unprocessed records, workers that raised exceptions."""

    @property
    def ok(self) -> bool:
        """Whether no record was lost, duplicated, out of order or unprocessed."""
        return not self.failures


class Soak:
    """One run."""

    def __init__(
        self,
        cluster: LocalCluster,
        plan: Plan,
        report: Callable[[str], None],
        companions: Companions | None = None,
    ) -> None:
        self.cluster, self.plan = cluster, plan
        self.companions = companions
        self.history = SharedHistory(time.monotonic)
        self.report = Report(seed=plan.seed)
        self._say = report
        self._rng = random.Random(plan.seed)
        self._begun = time.monotonic()
        config = cluster.client_config()
        in_loop = config if companions is None else companions.loop_config()
        self.loop = InLoop()
        threads = InThreads()
        ways: list[Way] = [threads, self.loop] if plan.asyncio else [threads]
        rate = plan.rate / len(ways)
        configs: dict[Way, dict[str, Any]] = {threads: config, self.loop: in_loop}
        self.sources = [
            Source(configs[way], self.history, way, SOURCE, plan.partitions, rate) for way in ways
        ]
        self.tallies = {protocol: Tally() for protocol in plan.protocols}
        self.members = [
            Member(
                configs[way],
                self.history,
                way,
                protocol,
                number,
                self.tallies[protocol],
                source=SOURCE,
                disorder=plan.disorder,
            )
            for protocol in plan.protocols
            for way, count in ((threads, plan.members), (self.loop, plan.asyncio))
            for number in range(count)
        ]
        self.readers = [
            GroupReader(
                configs[way],
                self.history,
                way,
                protocol,
                number,
                topic=f"out-{protocol}",
                disorder=plan.reader_disorder,
            )
            for protocol in plan.protocols
            for way, count in ((threads, plan.readers), (self.loop, plan.asyncio))
            for number in range(count)
        ]
        self.topics = [SOURCE, *(f"out-{protocol}" for protocol in plan.protocols)]
        self._chains = [f"chain-{protocol}" for protocol in plan.protocols]
        self._witness = ClusterWitness(cluster, SOURCE, plan.partitions, plan.drain)
        self._judge = Judge(self.history, self._witness, self.topics)
        self.admins = [
            Administrator(configs[way], way, self.topics, self._chains)
            for way in ways
            if companions is not None
        ]
        self.troubles = self._new_troubles(config)
        self._course: dict[str, list[tuple[float, float]]] = {}

    def _new_troubles(self, config: dict[str, Any]) -> Troubles:
        return Troubles(
            self.cluster,
            self._rng,
            [*self.sources, *self.members, *self.readers],
            pause=self.plan.pause,
            victims=self.plan.victims,
            proxy=None if self.companions is None else self.companions.proxy,
            topics=self.topics,
            config=config,
        )

    @property
    def workers(self) -> list[Worker]:
        """All programs of this process."""
        return [*self.sources, *self.members, *self.readers, *self.admins]

    def run(self) -> Report:
        """Create the topics, run programs and faults, and judge."""
        for topic in self.topics:
            self.cluster.create_topic(topic, partitions=self.plan.partitions)
        self._begun = time.monotonic()
        over = threading.Event()
        progress = threading.Thread(target=self._progress, args=(over,), name="progress")
        progress.start()
        with self.loop:
            try:
                for worker in self.workers:
                    worker.start()
                if self.companions is not None:
                    self.companions.clients = len(self.workers)
                    self.companions.start(SOURCE, self.plan.partitions)
                self._trouble()
                self.report.trouble_seconds = round(time.monotonic() - self._begun, 1)
                self._wind_down()
            except Exception as error:  # the history until then can be judged
                self.report.failures.append(f"the soak itself: {error!r}")
            finally:
                over.set()
                if self.companions is not None:
                    self.companions.calm()
                for worker in self.workers:
                    worker.stopping.set()
                for worker in self.workers:
                    worker.join()
                progress.join()
        self._conclude()
        return self.report

    # Faults

    def _trouble(self) -> None:
        plan, rng = self.plan, self._rng
        end = self._begun + plan.seconds
        rounds = 0
        coming: list[str] = []
        while coming or rounds != plan.rounds:
            quiet = rng.uniform(*plan.quiet)
            if time.monotonic() + quiet > end:
                time.sleep(max(0.0, end - time.monotonic()))
                return
            time.sleep(quiet)
            if not coming:
                coming = rng.sample(plan.troubles, len(plan.troubles))
                rounds += 1
            self.troubles.cause(coming.pop(), lambda line: self._say(self._line(line)))
            if lost := self._lost():
                self._say(self._line(f"the faults end, as Kafka itself has lost groups: {lost}"))
                return

    def _progress(self, over: threading.Event) -> None:
        said: set[str] = set()
        while not over.wait(PROGRESS):
            self._say(self._line(""))
            self._say_failures(said)
            at = round(time.monotonic() - self._begun, 1)
            acknowledged = sum(source.acknowledged for source in self.sources)
            self._note_course("acknowledged", at, acknowledged)
            for protocol, tally in self.tallies.items():
                done = tally.counts["records"]
                self._note_course(f"processed, {protocol}", at, done)
                self._note_course(f"lag, {protocol}", at, max(0, acknowledged - done))

    def _say_failures(self, said: set[str]) -> None:
        """Print each failure at once: the report may be an hour away, or lost."""
        groups = () if self.companions is None else self.companions.groups
        failed = [f"{w.name}: {w.failure!r}" for w in self.workers if w.failure is not None]
        for failure in (*failed, *(text for group in groups for text in group.failures)):
            if failure not in said:
                said.add(failure)
                self._say(self._line(f"FAILED: {failure}"))

    def _note_course(self, name: str, at: float, value: float) -> None:
        self._course.setdefault(name, []).append((at, value))

    def _line(self, trouble: str) -> str:
        chains = ", ".join(
            f"{protocol}: {t.counts['committed']} committed {t.counts['aborted']} aborted "
            f"{t.counts['rebalances']} rebalances"
            for protocol, t in self.tallies.items()
        )
        elapsed = time.monotonic() - self._begun
        sent = sum(source.sent for source in self.sources)
        return f"{elapsed:6.0f} s  {sent} sent; {chains}  {trouble}".rstrip()

    # The end

    def _lost(self) -> dict[str, str]:
        readers = [f"readers-{protocol}" for protocol in self.plan.protocols]
        others = [] if self.companions is None else [g.group for g in self.companions.groups]
        self.report.lost_groups |= self._witness.lost_groups([*self._chains, *readers, *others])
        return self.report.lost_groups

    def _wind_down(self) -> None:
        """End the faults and the sources, and let the chains process the rest."""
        self.history.note(CallKind.HEAL, "cluster")
        if self.companions is not None:
            self.companions.calm()
        for worker in (*self.members, *self.readers):
            worker.calm.set()
        for admin in self.admins:
            admin.stopping.set()
        for source in self.sources:
            source.stopping.set()
        for source in self.sources:
            source.join()
        end = time.monotonic() + self.plan.drain
        while (left := self._left()) and self._may_go_on(end):
            time.sleep(0.2)
        if left:
            self.report.failures.append(f"not worked off: {left}")
        for member in self.members:
            member.stopping.set()
        for member in self.members:
            member.join()
        self._judge.read()
        while (unread := self._unread()) and self._may_go_on(end):
            time.sleep(0.1)
        self.report.failures += [f"no reader of its group has read {u}" for u in unread[:20]]
        if self.companions is not None:
            self.companions.judge_copy(self._witness, SOURCE)

    def _left(self) -> str:
        """Return the partitions that chains haven't processed, except chains that Kafka lost."""
        lost = self._lost()
        return self._judge.not_worked_off(chain for chain in self._chains if chain not in lost)

    def _may_go_on(self, end: float) -> bool:
        broken = any(worker.failure is not None for worker in self.workers)
        return time.monotonic() < end and not broken

    def group(self, protocol: str) -> list[GroupReader]:
        """Return the members of a group that only reads."""
        return [reader for reader in self.readers if reader.protocol == protocol]

    def _unread(self) -> list[str]:
        """Return the places of records that no member of a group of readers has read."""
        return [
            place
            for protocol in self.plan.protocols
            if f"readers-{protocol}" not in self.report.lost_groups
            for place in self._judge.unread(
                f"out-{protocol}", [reader.seen for reader in self.group(protocol)]
            )
        ]

    def _conclude(self) -> None:
        report = self.report
        for worker in self.workers:
            if worker.failure is not None:
                report.failures.append(f"{worker.name}: {worker.failure!r}")
        self.coverage = Coverage(required(self.plan, self.companions))
        if self.companions is not None:
            self._conclude_companions(self.companions)
        try:
            chains = [c for c in self._chains if c not in report.lost_groups]
            # Records of a lost group's topic remain unread.
            within = None if report.lost_groups else SEEN_WITHIN
            self._judge.compare(chains, within, report.lost_groups)
        except Exception as error:
            report.failures.append(f"the judgement itself: {error!r}")
        report.failures += self._judge.failures
        report.records = self._judge.records
        report.seconds = round(time.monotonic() - self._begun, 1)
        report.troubles = dict(self.troubles.counts)
        report.chains = {p: dict(t.counts) for p, t in self.tallies.items()}
        report.errors = {f"chain-{p}": dict(t.errors) for p, t in self.tallies.items()}
        for source in self.sources:
            report.errors[source.name] = dict(source.errors)
        for reader in self.readers:
            report.errors[reader.name] = dict(reader.errors)
        for protocol in self.plan.protocols:
            group = self.group(protocol)
            places = {(p, offset) for r in group for p, seen in r.seen.items() for offset in seen}
            report.repeats[protocol] = sum(r.count for r in group) - len(places)
            report.chains[protocol]["readers lost partitions"] = sum(r.lost for r in group)
        outcomes = Counter(t.result for t in self.history.transactions if t.group)
        report.transactions = {result.value: outcomes[result] for result in CallResult}
        report.longest_silence = round(max(s.longest_silence for s in self.sources), 2)
        if self.plan.asyncio:
            self._conclude_loop()
        self._cover()
        report.rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    def _conclude_companions(self, companions: Companions) -> None:
        """Judge the groups of processes and the copy, and add their operations to the history."""
        report = self.report
        groups = companions.join((a, b) for _, a, b in self.troubles.times)
        group_soak.add_to_history(self.history, companions.groups)
        report.groups = asdict(groups)
        lost = tuple(f"{g.kind}: " for g in companions.groups if g.group in report.lost_groups)
        report.failures += [f for f in groups.failures if not f.startswith(lost)]
        report.failures += [*companions.failures, *companions.growing()]
        report.slopes = companions.samples.judged()
        companions.cover(self.coverage, groups)
        for admin in self.admins:
            report.errors[admin.name] = dict(admin.errors)
            report.failures += [*admin.late, *admin.wrong]
        for process, series in companions.samples.series.items():
            for kind, points in series.items():
                self._course[f"{kind}, {process}"] = points

    def _cover(self) -> None:
        """Count the events that workers of this process have met."""
        report, coverage = self.report, self.coverage
        found = {
            **self.troubles.counts,
            "rebalances": sum(t.counts["rebalances"] for t in self.tallies.values()),
            "partitions lost": sum(reader.lost for reader in self.readers),
            "zombies fenced": sum(t.counts["fenced"] for t in self.tallies.values()),
            "transactions aborted": sum(t.counts["aborted"] for t in self.tallies.values()),
            "answers throttled": sum(source.throttled for source in self.sources),
            "partitions moved": self.troubles.moved,
            "admin calls": sum(admin.answered for admin in self.admins),
            "polls cancelled": self.loop.cancelled["polls cancelled"],
        }
        if self.companions is not None:
            found["tokens fetched again"] = max(0, self.companions.tokens - self._clients_in_loop())
        for kind, count in found.items():
            coverage.add(kind, count)
        report.coverage = dict(coverage.counts)
        times = [(kind, a - self._begun, b - self._begun) for kind, a, b in self.troubles.times]
        report.course = {"faults": times, "series": self._course}

    def _clients_in_loop(self) -> int:
        """Return how many clients were created in the event loop: each fetches a first token."""
        return self.loop.made

    def _conclude_loop(self) -> None:
        """Report the operations of the clients in the event loop, and fail if a kind is missing."""
        prefix = self.loop.prefix
        mine = [
            t
            for t in self.history.transactions
            if t.client.startswith(prefix) and t.result is CallResult.OK
        ]
        readers = [reader for reader in self.readers if reader.way is self.loop]
        self.report.asyncio = {
            "records acknowledged": sum(t.group is None for t in mine),
            "transactions committed": sum(t.group is not None for t in mine),
            "records read by groups": sum(reader.count for reader in readers),
            "polls cancelled": self.loop.cancelled["polls cancelled"],
        }
        self.report.failures += [
            f"the event loop has no {what}, so they can't be judged"
            for what, count in self.report.asyncio.items()
            if not count
        ]


def required(plan: Plan, companions: Companions | None) -> list[str]:
    """Return the kinds of faults and events that a long run of a plan has to hit."""
    kinds = [*dict.fromkeys(plan.troubles), *EVENTS]
    if companions is None:
        return [*dict.fromkeys(plan.troubles)]
    if companions.proxy is None:
        kinds = [k for k in kinds if k not in (*PROXIED, "tokens fetched again")]
    if not plan.asyncio:
        kinds = [k for k in kinds if k not in ("polls cancelled", "tokens fetched again", *PROXIED)]
    return [*kinds, *(f"records handed to {style}" for style in styles(companions.plan))]


def run(plan: Plan, say: Callable[[str], None], keep: Path) -> Report:
    """Run a whole soak on a cluster of its own.

    If it fails, the history is kept as JSON lines, and the logs of the brokers.
    """
    if plan.secured:  # the proxy can't read what is encrypted
        plan = replace(plan, troubles=tuple(t for t in plan.troubles if t not in PROXIED))
    if plan.kafka.startswith(WITHOUT_KIP_848):
        say(f"without group.protocol=consumer, which Kafka {plan.kafka} doesn't offer")
        plan = replace(plan, protocols=tuple(p for p in plan.protocols if p != "consumer"))
    kinds = [k for k in group_soak.KINDS if k != "consumer" or "consumer" in plan.protocols]
    folder = keep.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    groups = GroupPlan(plan.seed, tuple(kinds), folder=folder)
    with LocalCluster(
        brokers=3,
        version=plan.kafka,
        config=SESSIONS | REAUTHENTICATION,
        **(SECURED if plan.secured else EXPIRING),
    ) as cluster:
        with Companions(cluster, groups, proxied=not plan.secured) as companions:
            soak = Soak(cluster, plan, say, companions)
            report = soak.run()
        if not report.ok:
            for broker in range(3):
                keep.with_suffix(f".broker-{broker}.log").write_text(cluster.logs(broker))
    if report.ok:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        path = keep.with_suffix(".history.jsonl")
        path.write_text("".join(f"{line}\n" for line in soak.history.lines()))
        say(f"the history is in {path}, members' reports and clients' events in {folder}")
    return report


def as_dict(report: Report) -> dict[str, Any]:
    """Return the report for JSON documents, without the points of its picture."""
    found = {"ok": report.ok, **asdict(report)}
    del found["course"]
    return found
