"""Runs of a whole group: members come and go, brokers fail, and all books must agree.

In: a schedule of members or processors. Out: nothing, or the first `Violation`. Flow: topics are
written to while members join, stop polling, are stopped, leave and die, and faults happen; at
`heal_at` all faults end; then the members that live (one at least) must share all partitions out
and read them to their ends within `SETTLED_WITHIN`; they leave; the books are compared. Processors
(read, process, write) are judged by `history_check` besides. Must not: read a clock.
"""

from __future__ import annotations

import random
from collections import Counter

from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.simulation.brokers.partition_log import check_batch
from odradek.simulation.brokers.topics import NO_LEADER
from odradek.simulation.checkers.call_checkers import listening
from odradek.simulation.checkers.group_checkers import GroupLedger
from odradek.simulation.checkers.history import History, TransactionOutcome
from odradek.simulation.checkers.history_check import check
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.faults.verbs import heal
from odradek.simulation.runs.group_workload import MemberDriver
from odradek.simulation.runs.processing_workload import ProcessorDriver
from odradek.simulation.runs.runs import Run
from odradek.simulation.runs.schedule import (
    GROUP_ID,
    GROUPED,
    PROCESSOR,
    TOPIC,
    Schedule,
    ScheduledClient,
    settings,
)
from odradek.simulation.world.client_host import HostMaker
from odradek.simulation.world.link import Mode

SETTLED_WITHIN = 120.0
"""Virtual seconds after the last fault: a session, a rebalance and a request that hangs."""
LEFT_WITHIN = 20.0
"""The poll and the commit under way end first."""
LOOK_EVERY = 0.5
ORDERLY = frozenset(("leave", "grow_topic"))
"""Verbs after which nothing need be read twice."""


class Seat:
    """A member's place in the schedule: who sits there may die, and another one comes."""

    def __init__(self, run: GroupRun, client: ScheduledClient) -> None:
        self.run, self.client = run, client
        self.driver: MemberDriver | None = None

    def begin(self) -> None:
        """Somebody comes."""
        run = self.run
        self.driver = run.member(self.client)
        run.drivers.append(self.driver)

    @property
    def taken(self) -> MemberDriver | None:
        """Who is there and hasn't left."""
        return None if self.driver is None or self.driver.over else self.driver

    def leave(self) -> None:
        """It closes in order."""
        if self.taken is not None:
            self.taken.leave()

    def die(self, back: float | None = None) -> None:
        """It is killed, and perhaps started anew."""
        if self.taken is not None:
            self.taken.die()
            if back is not None:
                self.run.wait_for(back)
                self.run.world.after(back, self.begin)

    def stop_polling(self, seconds: float) -> None:
        """Its application is busy."""
        if self.taken is not None:
            self.taken.stop_polling(seconds)

    def freeze(self, seconds: float) -> None:
        """It is stopped, and goes on."""
        if self.taken is not None:
            self.run.wait_for(seconds)
            self.taken.freeze(seconds)

    def rejoin(self) -> None:
        """It asks for a rebalance."""
        if self.taken is not None:
            self.taken.rejoin()

    def subscribe_anew(self) -> None:
        """It unsubscribes and subscribes."""
        if self.taken is not None:
            self.taken.subscribe_anew()


class GroupRun(Run):
    """One schedule of a group in its world."""

    def prepare(self) -> None:
        """Books, and records that are written from now on."""
        cluster, schedule = self.stage.cluster, self.schedule
        groups = cluster.group_settings
        groups.consumer_session_timeout, groups.consumer_heartbeat_interval = 6.0, 1.0
        self.processes = any(c.kind == PROCESSOR for c in schedule.clients)
        self.inputs = list(schedule.topics) if self.processes else [TOPIC, *schedule.topics]
        self.ledger = GroupLedger(GROUP_ID, cluster)
        self.history = History()
        self.members: list[MemberDriver] = []
        self.incarnations: Counter[str] = Counter()
        self._written = 0
        self._busy_until = 0.0
        self.world.at(0.0, lambda: self.write(self.world.rng("writer")))

    def _plan(self, client: ScheduledClient) -> None:
        seat = self.stage.members[client.name] = Seat(self, client)
        self.world.at(client.start, seat.begin)

    def member(self, client: ScheduledClient) -> MemberDriver:
        """Make a member."""
        common = (self.stage, client, self.mode, self.checkers, self.ledger, self.inputs)
        if client.kind == PROCESSOR:
            made: MemberDriver = ProcessorDriver(
                *common, self.history, self._incarnation, self.drivers.append
            )
        else:
            made = MemberDriver(*common)
        self.members.append(made)
        return made

    def _incarnation(self, name: str) -> int:
        self.incarnations[name] += 1
        return self.incarnations[name]

    def wait_for(self, seconds: float) -> None:
        """Somebody is away for so long."""
        self._busy_until = max(self._busy_until, self.world.now + seconds)

    def write(self, rng: random.Random) -> None:
        """Append some records now, and again until the faults end."""
        if self.world.now >= self.schedule.heal_at:
            return
        for topic in self.inputs:
            for partition in self.stage.cluster.topics[topic].partitions:
                if partition.leader != NO_LEADER and rng.random() < 0.4:
                    self.append(TopicPartition(topic, partition.index), rng.randint(1, 4))
        self.world.after(rng.uniform(0.05, 0.6), lambda: self.write(rng))

    def append(self, place: TopicPartition, count: int) -> None:
        """Have so many records more in a log."""
        partition = self.stage.cluster.topics[place.topic].partitions[place.partition]
        builder = BatchBuilder(1 << 16, None)
        values = [str(self._written + n) for n in range(1, count + 1)]
        self._written += count
        for value in values:
            builder.append(None, value.encode(), (), 0)
        data = bytes(builder.build())
        stored = partition.log.append(data, check_batch(data), partition.leader_epoch)
        partition.log.commit(stored)
        for offset, value in enumerate(values, stored.base_offset):
            made = self.history.sent("source", place, value)
            made.outcome, made.writes[0].offset = TransactionOutcome.COMMITTED, offset

    # The run

    def play(self) -> None:
        """Run to the end; raises the first `Violation`."""
        with listening(self.complaints):
            self._advance(self._until())
            heal(self.stage)
            self._settle()
            for driver in self.members:
                driver.leave()
            self._advance(self.world.now + LEFT_WITHIN)
            for driver in self.members:
                if not driver.over:
                    raise Violation(f"{driver.name} hasn't left: {driver.explain()}")
            for topic in self.inputs:
                self.ledger.verify(topic)
            if self._calm and self.ledger.again:
                raise Violation(f"{self.ledger.again} records were handed out twice")
            self._nobody_left()
            self.verify()
            if self.processes:
                self._judge()

    @property
    def _calm(self) -> bool:
        """Everybody comes and goes in order, and no broker fails: nothing is read twice then.

        (Processors may run out of time behind the markers of their last transactions, and abort.)
        """
        habits = [c.habits for c in self.schedule.clients]
        schedule = self.schedule
        orderly = {f.verb for f in schedule.faults} <= ORDERLY and not schedule.link.loss
        # (In a run with SASL nobody may be taken in for a while.)
        calm = orderly and schedule.session is None and not self.processes
        return calm and not any(h.get("raises") for h in habits)

    def _advance(self, until: float) -> None:
        while self.world.now < until:
            self.world.run_until(min(until, self.world.now + LOOK_EVERY))
            self.verify()
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Who was refused for good, by order of the schedule, is started anew by its keeper."""
        for seat in self.stage.members.values():
            driver = seat.taken
            if driver is not None and driver.engine.ended is not None:
                if not driver.rightly_ended():
                    raise Violation(f"{driver.name} has ended: {driver.engine.ended!r}")
                driver.die()
                seat.begin()

    def _settle(self) -> None:
        """R-GR-1 and the rest: every partition has one owner, and is read to its end."""
        self._advance(max(self.world.now, self._busy_until) + 0.1)
        seats = self.stage.members.values()
        end = self.world.now + SETTLED_WITHIN
        while missing := self._missing():
            free = [seat for seat in seats if seat.taken is None]
            if free and not any(driver.stays for driver in self.members):
                free[0].begin()
            for driver in self.members:
                driver.hurry()
            if self.world.now >= end:
                who = "; ".join(self._explain(d) for d in self.members if not d.over)
                raise Violation(f"{SETTLED_WITHIN:.0f} s after the last fault {missing}: {who}")
            self._advance(self.world.now + LOOK_EVERY)

    def _missing(self) -> str:
        for topic in self.inputs:
            if missing := self.ledger.settled(topic):
                return missing
            committed = self.ledger.committed(topic) if self.processes else {}
            for partition in self.stage.cluster.topics[topic].partitions if self.processes else ():
                end, found = partition.log.high_watermark, committed.get(partition.index, 0)
                if found < end:
                    return f"{topic}-{partition.index} is committed up to {found} of {end}"
        return ""

    @staticmethod
    def _explain(driver: MemberDriver) -> str:
        membership = driver.group.membership
        state = membership.state if membership is not None else None
        owned = sorted(str(p) for p in driver.engine.subscription.partitions)
        return (
            f"{driver.explain()}, {state} {driver.identity}, owns {owned}, "
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
        super().verify()
        self.ledger.look()

    # Read, process, write

    def _judge(self) -> None:
        """Each record's output is there once, in order, and the history can have happened."""
        # (Transactions of the dead end by their time-out; then there is nothing left open.)
        self.world.advance(
            max(settings(c)["transaction.timeout.ms"] for c in self._writers()) + 5.0
        )
        for topic in (TOPIC, *self.inputs):
            for partition in self.stage.cluster.topics[topic].partitions:
                reading = self.history.reading("all", TopicPartition(topic, partition.index))
                reading.complete = True
                for row in partition.log.visible_rows():
                    reading.saw(row[0], bytes(row[4] or b"").decode())
        self._each_once()
        shard = self.ledger.shard()
        if shard is not None:
            stable = shard.committed(GROUP_ID).stable
            self.history.group_ends(GROUP_ID, [(p, c.offset) for p, c in stable.items()])
        anomalies = check(self.history)
        if anomalies:
            raise Violation("; ".join(map(str, anomalies[:3])))

    def _writers(self) -> list[ScheduledClient]:
        return [c.writer for c in self.schedule.clients if c.kind == PROCESSOR]

    def _each_once(self) -> None:
        """What was made of each record is seen once, and in the order of its partition."""
        wanted = {
            f"{topic}/{partition.index}/{row[0]}"
            for topic in self.inputs
            for partition in self.stage.cluster.topics[topic].partitions
            for row in partition.log.visible_rows()
        }
        seen: Counter[str] = Counter()
        for partition in self.stage.cluster.topics[TOPIC].partitions:
            last: dict[str, int] = {}
            for row in partition.log.visible_rows():
                source = bytes(row[4] or b"").decode().split(" ")[0]
                seen[source] += 1
                place, _, offset = source.rpartition("/")
                if int(offset) < last.get(place, -1):
                    raise Violation(
                        f"{TOPIC}-{partition.index} at {row[0]}: what was made of {source} is "
                        f"behind that of {last[place]}"
                    )
                last[place] = int(offset)
        for source in sorted(wanted | seen.keys()):
            if seen[source] != 1 or source not in wanted:
                raise Violation(f"what was made of {source} is there {seen[source]} times")


def run_of(schedule: Schedule, *, mode: Mode | None = None, hosts: HostMaker | None = None) -> Run:
    """The run of a schedule, with or without a group."""
    grouped = any(client.kind in GROUPED for client in schedule.clients)
    return (GroupRun if grouped else Run)(schedule, mode=mode, hosts=hosts)
