"""Random runs of a whole group: members that come and go, brokers that fail, and every checker.

In: a seed. Out: a `GroupOutcome`: what was violated, if anything, and what the run cost. Flow of a
run: a topic is written to while members of one group, of a protocol and settings that the seed
gives, join, stop polling, leave and die, and faults happen; at `heal_at` all faults end; then the
members that live must share all partitions out and read them to their ends within `SETTLED_WITHIN`.
Must not: read a clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from odradek.common.config import CONSUMER
from odradek.record import BatchBuilder
from odradek.simulation.call_checkers import Complaints, listening
from odradek.simulation.checkers import Checkers, Violation
from odradek.simulation.cluster import SimulatedCluster
from odradek.simulation.faults import VERBS, Fault, Scope, Stage, heal, plan
from odradek.simulation.group_checkers import GroupLedger
from odradek.simulation.group_workload import Habits, MemberDriver
from odradek.simulation.link import Mode
from odradek.simulation.partition_log import check_batch
from odradek.simulation.sasl_runs import listener, random_session
from odradek.simulation.schedule import Client
from odradek.simulation.topics import NO_LEADER
from odradek.simulation.virtual_time import derived_rng
from odradek.simulation.workload import TOPIC
from odradek.simulation.world import World

GROUP_ID = "g"
SETTLED_WITHIN = 120.0
"""Virtual seconds after the last fault: a session, a rebalance and a request that hangs."""
LEFT_WITHIN = 20.0
"""The poll and the commit under way end first."""
LOOK_EVERY = 0.5
FAULTS = {
    "crash": 3, "bounce": 4, "restart": 2, "stop": 2, "pause": 3, "blackhole": 2, "repair": 5,
    "move_leader": 8, "go_silent": 1, "half_open": 2, "partition": 3, "accept_then_reset": 1,
    "throttle": 1, "move": 1, "stale_metadata": 1, "change_link": 1, "slow_handshake": 1,
}  # fmt: skip
"""Verbs and how often they are drawn: coordinators die and move more often than elsewhere."""
STRATEGIES = (
    None, "range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky,range"
)  # fmt: skip
ENDS = ("stay", "stay", "leave", "die", "pause", "return")


LONG = (2.0, 9.0)
"""Seconds for which a process is stopped: shorter than a session, or longer."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """One member: when it comes, and what becomes of it."""

    client: Client
    habits: Habits
    end: str = "stay"
    at: float = 0.0
    seconds: float = 0.0
    """How long it doesn't poll, or is away."""


@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """One run, as data."""

    seed: int
    members: tuple[MemberPlan, ...]
    faults: tuple[Fault, ...] = ()
    brokers: int = 3
    partitions: int = 3
    mode: Mode = "messages"
    heal_at: float = 20.0
    initial_rebalance_delay: float = 0.0
    strict_epochs: bool = False
    """Brokers as before KIP-1251."""
    coordinators: int = 2
    """Partitions of `__consumer_offsets`."""
    freezes: tuple[tuple[int, float, float], ...] = ()
    """Members by number whose processes are stopped: when, and for how long."""
    wishes: tuple[tuple[int, float, str], ...] = ()
    """Members by number that ask for a rebalance ("rejoin"), or subscribe anew ("subscribe")."""
    grows: tuple[tuple[float, int], ...] = ()
    """When the topic gets partitions more, and how many."""

    @property
    def calm(self) -> bool:
        """Everybody comes and goes in order, and no broker fails: nothing is read twice then."""
        ends = {m.end for m in self.members} <= {"stay", "leave"}
        return ends and not self.faults and not self.freezes

    def __str__(self) -> str:
        size = f"{self.brokers} brokers, {self.partitions} partitions, {self.mode}"
        delay = f"initial delay {self.initial_rebalance_delay} s"
        lines = [f"seed {self.seed}: {size}, {delay}; faults end at {self.heal_at} s"]
        for member in self.members:
            client = member.client
            fate = f"{member.end} at {member.at} s ({member.seconds} s)"
            lines.append(f"  {client.name} from {client.start} s, {fate}: {dict(client.config)}")
        lines += [f"  member-{i} is stopped at {at} s for {n} s" for i, at, n in self.freezes]
        lines += [f"  member-{i} at {at} s: {wish}" for i, at, wish in self.wishes]
        lines += [f"  {count} partitions more at {at} s" for at, count in self.grows]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What came of one run."""

    schedule: GroupSchedule
    violation: str | None
    seconds: float
    handed: int
    again: int
    generation: int
    steps: int
    trace: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return self.violation is None


def random_group(seed: int) -> GroupSchedule:
    """Everything that a seed gives."""
    rng = derived_rng(seed, "group")
    heal_at = round(rng.uniform(6.0, 20.0), 3)
    common: dict[str, Any] = {"group.id": GROUP_ID, "auto.offset.reset": "earliest"}
    if rng.random() < 0.4:
        common["group.protocol"] = "consumer"
        if rng.random() < 0.5:
            common["group.remote.assignor"] = rng.choice(["uniform", "range"])
    else:
        common["session.timeout.ms"] = rng.choice([6000, 7000, 10000])
        common["heartbeat.interval.ms"] = rng.choice([300, 1000, 2000])
        strategy = rng.choice(STRATEGIES)
        if strategy is not None:
            common["partition.assignment.strategy"] = strategy
    common["max.poll.interval.ms"] = rng.choice([10000, 15000, 60000])
    common["request.timeout.ms"] = rng.choice([3000, 5000, 30000])
    common["fetch.max.wait.ms"] = rng.choice([500, 2000])
    more = derived_rng(seed, "group/more")
    grows = [(round(more.uniform(0.5, heal_at), 3), more.randint(1, 3))] * (more.random() < 0.2)
    if grows:  # by default a leader looks every five minutes
        common["metadata.max.age.ms"] = more.choice([2000, 20000])
    # A static leader that comes back is told to skip the assignment (KIP-814), and can't know that
    # the topic has grown since that was made: nobody would have the new partitions for a while.
    static = 0.0 if grows else 0.25
    members = tuple(_member(rng, i, common, heal_at, static) for i in range(rng.randint(1, 4)))
    names = tuple(m.client.name for m in members)
    partitions = rng.randint(1, 5)
    scope = Scope(3, max(2, partitions), names)
    faults = [
        _fault(rng, round(rng.uniform(1.0, heal_at), 3), scope)
        for _ in range(rng.choice([0, 1, 2, 3, 5, 8]))
    ]
    freezes = [
        (
            more.randrange(len(members)),
            round(more.uniform(0.5, heal_at), 3),
            more.choice([2.0, 9.0]),
        )
        for _ in range(more.choice([0, 0, 0, 1, 2]))
    ]
    wishes = [
        (
            more.randrange(len(members)),
            round(more.uniform(0.5, heal_at), 3),
            more.choice(("rejoin", "subscribe")),
        )
        for _ in range(more.choice([0, 0, 0, 1, 3]))
    ]
    if more.random() < 0.15:
        members = tuple(replace(m, habits=replace(m.habits, raises=True)) for m in members)
    return GroupSchedule(
        seed,
        members,
        tuple(sorted(faults, key=lambda f: f.at)),
        freezes=tuple(freezes),
        wishes=tuple(wishes),
        strict_epochs=more.random() < 0.5,
        grows=tuple(grows),
        partitions=partitions,
        mode="bytes" if rng.random() < 0.1 else "messages",
        heal_at=heal_at,
        initial_rebalance_delay=rng.choice([0.0, 0.0, 0.5, 3.0]),
    )


def _member(
    rng: random.Random, number: int, common: dict[str, Any], heal_at: float, static: float
) -> MemberPlan:
    config = dict(common)
    commits = rng.random() < 0.3
    if commits:
        config["enable.auto.commit"] = False
    else:
        config["auto.commit.interval.ms"] = rng.choice([300, 1000, 5000])
    if rng.random() < static:
        config["group.instance.id"] = f"instance-{number}"
    start = 0.0 if number == 0 or rng.random() < 0.3 else round(rng.uniform(0.0, heal_at / 2), 3)
    habits = Habits(
        poll=rng.choice([0.2, 1.0, 3.0]),
        work=rng.choice([0.05, 0.3, 2.0]),
        most=rng.choice([1, 10, 500]),
        commits=commits,
        pattern=TOPIC if rng.random() < 0.1 else None,
    )
    return MemberPlan(
        Client(f"member-{number}", CONSUMER, 0, start, config),
        habits,
        "stay" if number == 0 else rng.choice(ENDS),
        round(rng.uniform(start, heal_at), 3),
        round(rng.choice([1.0, 8.0, 14.0]) * rng.uniform(0.5, 1.5), 3),
    )


def _fault(rng: random.Random, at: float, scope: Scope) -> Fault:
    name = rng.choices(list(FAULTS), list(FAULTS.values()))[0]
    arguments = {
        key: argument.draw(rng, scope)
        for key, argument in VERBS[name].arguments.items()
        if not argument.optional or rng.random() < 0.7
    }
    return Fault(at, name, arguments)


@dataclass(slots=True)
class GroupRun:
    """One schedule in its world."""

    schedule: GroupSchedule
    mode: Mode | None = None
    world: World = field(init=False)
    ledger: GroupLedger = field(init=False)
    drivers: list[MemberDriver] = field(default_factory=list)
    _stage: Stage = field(init=False)
    _checkers: Checkers = field(init=False)
    _complaints: Complaints = field(default_factory=Complaints)
    _written: int = 0

    def __post_init__(self) -> None:
        schedule = self.schedule
        self.world = World(schedule.seed)
        cluster = SimulatedCluster(self.world, schedule.brokers)
        cluster.groups.partitions = schedule.coordinators
        settings = cluster.group_settings
        settings.initial_rebalance_delay = schedule.initial_rebalance_delay
        settings.strict_epochs = schedule.strict_epochs
        settings.consumer_session_timeout, settings.consumer_heartbeat_interval = 6.0, 1.0
        cluster.create_topic(TOPIC, schedule.partitions)
        if (session := random_session(schedule.seed)) is not None:
            cluster.sasl = listener(self.world, session, schedule.heal_at)
        self._stage = Stage(self.world, cluster)
        self.ledger = GroupLedger(GROUP_ID, cluster)
        self._checkers = Checkers(self.world)
        for member in schedule.members:
            self._plan(member)
        for fault in schedule.faults:
            plan(fault, self._stage)
        for at, count in schedule.grows:
            self._grow(at, count)
        self.write(self.world.rng("writer"))

    # The schedule

    def _plan(self, member: MemberPlan) -> None:
        def begin(client: Client = member.client) -> MemberDriver:
            driver = MemberDriver(
                self._stage,
                client,
                self.mode or self.schedule.mode,
                self._checkers,
                self.ledger,
                member.habits,
            )
            self.drivers.append(driver)
            return driver

        def start() -> None:
            driver = begin()
            if member.end == "leave":
                self.world.at(member.at, driver.leave)
            elif member.end == "pause":
                self.world.at(member.at, lambda: driver.stop_polling(member.seconds))
            elif member.end in ("die", "return"):
                self.world.at(member.at, driver.die)
            if member.end == "return":
                self.world.at(member.at + member.seconds, begin)
            for number, at, seconds in self.schedule.freezes:
                if self.schedule.members[number] is member:
                    self.world.at(at, partial(driver.freeze, seconds))
            for number, at, wish in self.schedule.wishes:
                if self.schedule.members[number] is member:
                    self.world.at(at, driver.rejoin if wish == "rejoin" else driver.subscribe_anew)

        self.world.at(member.client.start, start)

    def _grow(self, at: float, count: int) -> None:
        self.world.at(at, lambda: self._stage.cluster.add_partitions(TOPIC, count))

    def write(self, rng: random.Random) -> None:
        """Append some records now, and again until the faults end."""
        if self.world.now >= self.schedule.heal_at:
            return
        for partition in self._stage.cluster.topics[TOPIC].partitions:
            if partition.leader != NO_LEADER and rng.random() < 0.4:
                builder = BatchBuilder(1 << 16, None)
                for _ in range(rng.randint(1, 4)):
                    self._written += 1
                    builder.append(None, b"%d" % self._written, (), 0)
                data = bytes(builder.build())
                stored = partition.log.append(data, check_batch(data), partition.leader_epoch)
                partition.log.commit(stored)
        self.world.after(rng.uniform(0.05, 0.6), lambda: self.write(rng))

    # The run

    def play(self) -> None:
        """Run to the end; raises the first `Violation`."""
        with listening(self._complaints):
            self._advance(self.schedule.heal_at)
            heal(self._stage)
            self._settle()
            for driver in self.drivers:
                driver.leave()
            self._advance(self.world.now + LEFT_WITHIN)
            for driver in self.drivers:
                if not driver.over:
                    raise Violation(f"{driver.name} hasn't left: {driver.explain()}")
            self.ledger.verify(TOPIC)
            if self.schedule.calm and self.ledger.again:
                raise Violation(f"{self.ledger.again} records were handed out twice")
            self._nobody_left()

    def _advance(self, until: float) -> None:
        while self.world.now < until:
            self.world.run_until(min(until, self.world.now + LOOK_EVERY))
            self.verify()

    def _settle(self) -> None:
        """R-GR-1 and the rest: every partition has one owner, and is read to its end."""
        back = [m.at + m.seconds for m in self.schedule.members if m.end == "return"]
        back += [at + seconds for _, at, seconds in self.schedule.freezes]
        self._advance(max(self.world.now, *back, 0.0) + 0.1)
        end = self.world.now + SETTLED_WITHIN
        for driver in self.drivers:
            driver.hurry()
        while missing := self.ledger.settled(TOPIC):
            if self.world.now >= end:
                who = "; ".join(self._explain(d) for d in self.drivers if not d.over)
                raise Violation(f"{SETTLED_WITHIN:.0f} s after the last fault {missing}: {who}")
            self._advance(self.world.now + LOOK_EVERY)

    @staticmethod
    def _explain(driver: MemberDriver) -> str:
        membership = driver.group.membership
        state = membership.state if membership is not None else None
        return (
            f"{driver.explain()}, {state} {driver.identity}, owns "
            f"{sorted(p.partition for p in driver.engine.subscription.partitions)}, "
            f"errors {driver.errors[-2:]}"
        )

    def _nobody_left(self) -> None:
        """Who left in order isn't a member any more; static members stay for a session."""
        end = self.world.now + 30.0
        while self.world.now < end:
            shard = self.ledger.shard()
            group = shard.groups.get(GROUP_ID) if shard is not None else None
            if group is not None and not group.members:
                return
            self.world.advance(1.0)
        raise Violation(f"members stay behind: {group}")

    def verify(self) -> None:
        """Raise the first violation found so far."""
        for driver in self.drivers:
            driver.look()
            if driver.wire.violations:
                raise driver.wire.violations[0]
            if driver.calls.violations and not driver.died:
                raise driver.calls.violations[0]
        self.ledger.look()
        self._checkers.verify()
        if self._complaints.violations:
            raise self._complaints.violations[0]

    def lines(self) -> list[str]:
        """The traces of all members, in the order of time."""
        events = [
            (event.at, number, serial, host.name, event)
            for number, host in enumerate(self.world.hosts.values())
            for serial, event in enumerate(host.trace.events)
        ]
        events.sort(key=lambda e: e[:3])
        return [f"{at!r} {name} {event}" for at, _, _, name, event in events]


def run_group(
    schedule: GroupSchedule, *, mode: Mode | None = None, trace: bool = False
) -> GroupOutcome:
    """Run a schedule; `trace` keeps every member's events."""
    run = GroupRun(schedule, mode)
    violation = None
    try:
        run.play()
    except AssertionError as found:  # a violation, or virtual time that doesn't move on
        violation = f"{type(found).__name__}: {found}"
    return GroupOutcome(
        schedule,
        violation,
        run.world.now,
        run.ledger.handed,
        run.ledger.again,
        max((d.newest_generation for d in run.drivers), default=-1),
        sum(h.steps for h in run.world.hosts.values()),
        tuple(run.lines()) if trace else (),
    )
