"""Run a whole group: members join and leave, brokers fail, and all checks must hold.

In: a schedule of members or processors. Out: nothing, or the first `Violation`. First, records are
written while members join, stop polling, hang, leave and die, and faults are injected; at `heal_at`
all faults end. Then the live members (at least one) must own all partitions and read them to their
ends within `SETTLED_WITHIN`. Finally they leave, and their records and commits are compared with
the logs. `history_check` also judges processors (read, process, write). Must not read a clock.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

from odradek.common.types import TopicPartition
from odradek.record.columns import Row
from odradek.record.reference import encode
from odradek.simulation.checkers.call_checkers import listening
from odradek.simulation.checkers.group_checkers import GroupLedger
from odradek.simulation.checkers.history_check import Kind, check
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.logs.partition_log import check_batch
from odradek.simulation.logs.topics import SimulatedPartition
from odradek.simulation.runs.group_workload import MemberDriver
from odradek.simulation.runs.held_records import HoldingDriver
from odradek.simulation.runs.processing_workload import ProcessorDriver
from odradek.simulation.runs.runs import EXPIRY_INTERVAL, Run
from odradek.simulation.runs.schedule import (
    GROUP_ID,
    GROUPED,
    PROCESSOR,
    TOPIC,
    Schedule,
    ScheduledClient,
    settings,
)
from odradek.simulation.world.link import Mode
from odradek.simulation.world.world import HostMaker

SETTLED_WITHIN = 120.0
"""Virtual seconds for the last rebalance: a session timeout, the rebalance, a request timeout."""
LEFT_WITHIN = 20.0
"""Seconds within which a member must have left, after its current poll and commit."""
LOOK_EVERY = 0.5
SOURCE = 1_000_000
"""The first producer id of the transactions that write input records."""
OWNED_WITHIN = 35.0
"""Seconds beyond the members' timeouts until each partition of a stable group has an owner.

A restarted static member requests a description of its group, which may be late by 25 s."""
ORDERLY = frozenset(("leave", "grow_topic", "quiet"))
"""Faults after which no record may be returned twice."""
REPEATS = frozenset(("raises", "retries", "besides", "holds"))
"""Behaviours of an application that allow `poll` to return a record twice.

An application that holds records may do so for longer than `max.poll.interval.ms`, and lose its
partitions."""
GENTLE = ORDERLY | {"rejoin", "subscribe_anew", "slow_api"}
"""Faults after which each commit of an orderly close is accepted in time, unless responses are
delayed by more than `SLOW` seconds."""
SLOW = 5.0
BEATS = frozenset(("Heartbeat", "ConsumerGroupHeartbeat"))
"""Requests whose responses report a rebalance.

If none arrives within `request.timeout.ms`, the group removes the member after its rebalance
timeout.
"""


class Seat:
    """A client in the schedule; if its member dies or leaves, another member may replace it."""

    def __init__(self, run: GroupRun, client: ScheduledClient) -> None:
        self.run, self.client = run, client
        self.driver: MemberDriver | None = None

    def begin(self) -> None:
        """Start a member for this client."""
        run = self.run
        self.driver = run.member(self.client)
        run.drivers.append(self.driver)

    @property
    def taken(self) -> MemberDriver | None:
        """The client's member, if it was started and hasn't left or died."""
        return None if self.driver is None or self.driver.over else self.driver

    def leave(self, back: float | None = None) -> None:
        """Close the member in an orderly way, and perhaps start another one afterwards."""
        if self.taken is None:
            return
        self.taken.leave()
        if back is not None:
            self.run.wait_for(back)
            self.run.world.after(back, lambda: self._follow(self.driver))

    def _follow(self, left: MemberDriver | None) -> None:
        """Start the next member once `left` is closed, unless `left` was killed or the run ends."""
        if left is None or self.driver is not left or left.died or self.run.ending:
            return
        if self.taken is None:
            self.begin()
        else:
            self.run.world.after(LOOK_EVERY, lambda: self._follow(left))

    def die(self, back: float | None = None) -> None:
        """Kill the member's process, and perhaps start another member."""
        if self.taken is not None:
            self.taken.die()
            if back is not None:
                self.run.wait_for(back)
                self.run.world.after(back, self.begin)

    def stop_polling(self, seconds: float) -> None:
        """Let the member's application stop polling for this many seconds."""
        if self.taken is not None:
            self.run.work_for(seconds)
            self.taken.stop_polling(seconds)

    def freeze(self, seconds: float) -> None:
        """Stop the member's process for this many seconds."""
        if self.taken is not None:
            self.run.wait_for(seconds)
            self.run.work_for(seconds + self.taken.works_after_a_stop)
            self.taken.freeze(seconds)

    def rejoin(self) -> None:
        """Let the member request a rebalance."""
        if self.taken is not None:
            self.taken.rejoin()

    def subscribe_anew(self) -> None:
        """Let the member unsubscribe and subscribe again."""
        if self.taken is not None:
            self.taken.subscribe_anew()


class GroupRun(Run):
    """The run of one group's schedule in a simulation."""

    def prepare(self) -> None:
        """Create the group's checker, and begin to write records."""
        cluster, schedule = self.stage.cluster, self.schedule
        groups = cluster.group_settings
        groups.configure(consumer_session_timeout=6.0, consumer_heartbeat_interval=1.0)
        self.processes = any(c.kind == PROCESSOR for c in schedule.clients)
        self.inputs = list(schedule.topics) if self.processes else [TOPIC, *schedule.topics]
        configs = [c.config for c in schedule.clients]
        self.ledger = GroupLedger(
            GROUP_ID,
            cluster,
            hits=self.stage.hits,
            by_id=any(c.get("group.protocol") == "consumer" for c in configs),
            latest=any(c.get("auto.offset.reset") == "latest" for c in configs),
            gentle=self._gentle,
            by_name="release" in schedule.cluster,
            warnings=lambda: self.complaints.repeats,
        )
        self._orphans: dict[TopicPartition, tuple[int, float]] = {}
        """By partition without an owner: the group's generation, and since when it has no owner."""
        groups.observers.append(self.ledger.commits)
        self.members: list[MemberDriver] = []
        self.incarnations: Counter[str] = Counter()
        self._written = 0
        self._busy_until = 0.0
        self.works_until = 0.0
        """Time until which some applications don't poll, and so can't close their consumers."""
        self.ending = False
        self.world.at(0.0, lambda: self.write(self.world.rng("writer")))

    def _plan(self, client: ScheduledClient) -> None:
        seat = self.stage.members[client.name] = Seat(self, client)
        self.world.at(client.start, seat.begin)

    def member(self, client: ScheduledClient) -> MemberDriver:
        """Create a member for a client of the schedule."""
        common = (self.stage, client, self.mode, self.checkers, self.ledger, self.inputs)
        if client.kind == PROCESSOR:
            made: MemberDriver = ProcessorDriver(*common, self._incarnation, self.drivers.append)
        else:
            made = (HoldingDriver if client.habits.get("holds") else MemberDriver)(*common)
        self.members.append(made)
        return made

    def _incarnation(self, name: str) -> int:
        self.incarnations[name] += 1
        return self.incarnations[name]

    def wait_for(self, seconds: float) -> None:
        """Note that a member is away for this many seconds."""
        self._busy_until = max(self._busy_until, self.world.now + seconds)

    def work_for(self, seconds: float) -> None:
        """Note that an application neither polls nor closes its consumer for this many seconds."""
        self.works_until = max(self.works_until, self.world.now + seconds)

    def write(self, rng: random.Random) -> None:
        """Append some records now, and again until the faults end."""
        if self.world.now >= self.schedule.heal_at:
            return
        if self.world.now < self.stage.quiet_until:
            self.world.at(self.stage.quiet_until, lambda: self.write(rng))
            return
        for topic in self.inputs:
            there = self.stage.cluster.topics.get(topic)
            for partition in there.partitions if there is not None else ():
                leader = self.stage.cluster.brokers.get(partition.leader)
                writable = leader is not None and leader.zombie is None
                if writable and rng.random() < 0.4:
                    self.append(TopicPartition(topic, partition.index), rng.randint(1, 4))
        self.world.after(rng.uniform(0.05, 0.6), lambda: self.write(rng))

    def append(self, place: TopicPartition, count: int) -> None:
        """Append `count` records to a log."""
        partition = self.stage.cluster.topics[place.topic].partitions[place.partition]
        values = [str(self._written + n) for n in range(1, count + 1)]
        rows: list[Row] = [(n, 0, 0, None, v.encode(), ()) for n, v in enumerate(values)]
        duration = self.schedule.cluster.get("source_transactions")
        producer = -1 if duration is None else SOURCE + self._written
        self._written += count
        data = encode(
            rows,
            producer_id=producer,
            producer_epoch=-1 if duration is None else 0,
            base_sequence=-1 if duration is None else 0,
            transactional=duration is not None,
        )
        stored = partition.log.append(data, check_batch(data), partition.leader_epoch)
        partition.log.commit(stored)
        if duration is not None:
            seconds = self.world.rng(f"source/{producer}").uniform(0.0, duration)
            self.world.after(seconds, lambda: self._end_transaction(partition, producer))
        place = self.ledger.place(place)
        for offset, value in enumerate(values, stored.base_offset):
            self.ledger.births[value.encode()] = place
            self.history.sent("source", place, value, offset)

    def _end_transaction(self, partition: SimulatedPartition, producer: int) -> None:
        """Append the marker that commits a transaction, once the partition has a leader.

        The log of a deleted topic gets it at once, because `_judge` reads committed records.
        """
        leader = self.stage.cluster.brokers.get(partition.leader)
        topics = self.stage.cluster.topics.values()
        exists = any(partition is p for t in topics for p in t.partitions)
        if exists and (leader is None or leader.zombie is not None):
            self.world.after(0.2, lambda: self._end_transaction(partition, producer))
            return
        log = partition.log
        log.commit(log.append_marker(producer, 0, partition.leader_epoch, 0, commit=True))

    # The run

    def play(self) -> None:
        """Run to the end; raises the first `Violation`."""
        with listening(self.complaints):
            self._advance(self._until())
            self.heal()
            self._settle()
            self.ending = True
            for driver in self.members:
                driver.leave()
            self._advance(max(self.world.now, self.works_until) + LEFT_WITHIN)
            for driver in self.members:
                if not driver.over:
                    raise Violation(f"{driver.name} hasn't left: {driver.explain()}")
            for topic in self.inputs:
                self.ledger.verify(topic)
            if self._calm and self.ledger.again:
                raise Violation(f"{self.ledger.again} records were returned twice")
            self._nobody_left()
            self._all_committed()
            self.verify()
            self._judge()

    @property
    def _calm(self) -> bool:
        """Whether no record may be returned twice: all changes are orderly and no broker fails.

        (Processors may time out after the markers of their last transactions, and abort.)
        """
        habits = [c.habits for c in self.schedule.clients]
        calm = self._has_only(ORDERLY) and not self.processes
        return calm and not any(h.get(name) for h in habits for name in REPEATS)

    @property
    def _gentle(self) -> bool:
        """Whether no fault refuses commits, or makes the group forget a live member."""
        schedule = self.schedule
        slow = [f.arguments for f in schedule.faults if f.verb == "slow_api"]
        beats = [late["seconds"] for late in slow if late["api"] in BEATS]
        waits = min(settings(client)["request.timeout.ms"] for client in schedule.clients)
        in_time = all(late["seconds"] <= SLOW for late in slow) and max(beats, default=0.0) < waits
        return self._has_only(GENTLE) and in_time

    def _has_only(self, verbs: Collection[str]) -> bool:
        schedule = self.schedule
        only = {f.verb for f in schedule.faults} <= {*verbs} and not schedule.link.loss
        # With SASL, brokers may refuse all credentials for some time.
        return only and schedule.session is None

    def _advance(self, until: float) -> None:
        while self.world.now < until:
            self.world.run_until(min(until, self.world.now + LOOK_EVERY))
            self.verify()
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Restart members that ended with a fatal error that the schedule injected."""
        for seat in self.stage.members.values():
            driver = seat.taken
            if driver is not None and driver.engine.ended is not None:
                if not driver.rightly_ended():
                    raise Violation(f"{driver.name} has ended: {driver.engine.ended!r}")
                driver.die()
                seat.begin()

    def _settle(self) -> None:
        """Wait until every partition has one owner and is read to its end (R-GR-1)."""
        self._advance(max(self.world.now, self._busy_until) + 0.1)
        seats = self.stage.members.values()
        end = self.world.now + SETTLED_WITHIN + self._found_within
        while missing := self._missing():
            free = [seat for seat in seats if seat.taken is None]
            if free and not any(driver.stays for driver in self.members):
                free[0].begin()
            for driver in self.members:
                driver.hurry()
            orphan = self._orphan()
            if orphan or self.world.now >= end:
                who = "; ".join(self._explain(d) for d in self.members if not d.over)
                what = orphan or f"{SETTLED_WITHIN:.0f} s or more after the last fault {missing}"
                raise Violation(f"{what}: {who}")
            self._advance(self.world.now + LOOK_EVERY)

    def _orphan(self) -> str:
        """Describe a partition without an owner, if its group has been stable for a long time."""
        now, before = self.world.now, self._orphans
        self._orphans = {
            place: before[place]
            if before.get(place, (None,))[0] == generation
            else (generation, now)
            for place, generation in self.ledger.orphans(self.inputs).items()
        }
        for place, (generation, since) in self._orphans.items():
            if now - since > self._owned_within:
                return (
                    f"{place} has had no owner for {now - since:.0f} s, though the group is stable "
                    f"in generation {generation}"
                )
        return ""

    @property
    def _owned_within(self) -> float:
        """Maximum time until a partition is owned: a rebalance may wait for a member's timeouts."""
        longest = 0.0
        for client in self.schedule.clients:
            config = settings(client)
            names = {"max.poll.interval.ms", "session.timeout.ms", "metadata.max.age.ms"}
            given = [config[name] for name in sorted(names & client.config.keys())]
            longest = max(longest, sum(given))
        return OWNED_WITHIN + longest + self._found_within

    @property
    def _found_within(self) -> float:
        """Maximum time until clients that subscribe to a pattern find a recreated topic."""
        if not any(f.verb == "recreate_topic" for f in self.schedule.faults):
            return 0.0
        given = [settings(c) for c in self.schedule.clients if c.habits.get("pattern")]
        ages = [c["metadata.max.age.ms"] for c in given if c["group.protocol"] == "classic"]
        return max(ages, default=0.0)

    def _missing(self) -> str:
        for topic in self.inputs:
            if missing := self.ledger.settled(topic):
                return missing
            if not self._calm and (missing := self._uncommitted(topic)):
                return missing
        return ""

    def _uncommitted(self, topic: str) -> str:
        """Describe a partition whose end isn't committed after the faults; "" if there is none.

        Applications that commit by themselves needn't commit all records. A commit that was lost
        with its connection delays the next commits for `request.timeout.ms`.
        """
        if not (self.processes or self._commits_by_itself):
            return ""
        committed = self.ledger.committed(topic)
        for partition in self.stage.cluster.topics[topic].partitions:
            log = partition.log
            end, found = log.high_watermark, log.after_markers(committed.get(partition.index, 0))
            place = self.ledger.place(TopicPartition(topic, partition.index))
            if found < end and place not in self.ledger.set_back:
                return f"{topic}-{partition.index} is committed up to {found} of {end}"
        return ""

    @property
    def _commits_by_itself(self) -> bool:
        clients = self.schedule.clients
        return not self.processes and all(settings(c)["enable.auto.commit"] for c in clients)

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
        """Check that the group removes members that left (static ones after a session timeout)."""
        end = self.world.now + 30.0
        while self.world.now < end:
            shard = self.ledger.shard()
            group = shard.groups.get(GROUP_ID) if shard is not None else None
            if group is not None and not group.members:
                return
            self.world.advance(1.0)
        raise Violation(f"members haven't left: {group}")

    def _all_committed(self) -> None:
        """Check that auto-commit has committed all records that members had read when they left.

        The positions of idle partitions must be committed, too.
        """
        if "offsets_retention" in self.schedule.cluster:
            self._advance(self.world.now + 2 * EXPIRY_INTERVAL)
        for topic in self.inputs if self._commits_by_itself else ():
            if missing := self._uncommitted(topic):
                raise Violation(f"all members have left in order, and {missing}")

    def verify(self) -> None:
        """Raise the first violation found so far."""
        super().verify()
        self.ledger.look()

    # Read, process, write

    def _judge(self) -> None:
        """Check that each record has one output, in order, and that the history is valid."""
        if self.processes:  # the coordinator aborts transactions of dead producers after a timeout
            self.world.advance(
                max(settings(c)["transaction.timeout.ms"] for c in self._writers()) + 5.0
            )
        undefined = set()
        for topic in dict.fromkeys((TOPIC, *self.inputs)):
            for life, there in self.ledger.lives(topic).items():
                for partition in there.partitions:
                    place = TopicPartition(life, partition.index)
                    if partition.log.start_offset:
                        undefined.add(place)
                    rows = [(row[0], row[4]) for row in partition.log.visible_rows()]
                    self.history.read("all", place, rows, complete=True)
        again = self._may_go_back()
        if self.processes and not again:
            self._each_once()
        if self.processes and self.ledger.shard() is not None:
            ends = [
                (self.ledger.place(TopicPartition(topic, number)), offset)
                for topic in dict.fromkeys((TOPIC, *self.inputs))
                for number, offset in self.ledger.committed(topic).items()
            ]
            self.history.group_ends(GROUP_ID, ends)
        self.histories.append((self.history, undefined))
        anomalies = check(self.history, undefined=undefined)
        if again:
            anomalies = [a for a in anomalies if a.kind is not Kind.INPUT_TWICE]
        self.judged(anomalies)

    def _writers(self) -> list[ScheduledClient]:
        return [c.writer for c in self.schedule.clients if c.kind == PROCESSOR]

    def _may_go_back(self) -> bool:
        """Return whether a coordinator that was cut off has returned old offsets.

        OffsetFetch has no epoch: an application that seeks to these offsets after an abort
        processes records again, in Java as well.
        """
        return self.stage.cluster.hits["OffsetFetch answered by a zombie"] > 0

    def _each_once(self) -> None:
        """Check that each record has one output, in the order of its partition.

        A record that was deleted with its topic may also have none.
        """
        lives = [(n, t) for topic in self.inputs for n, t in self.ledger.lives(topic).items()]
        wanted, known = (
            {
                f"{life}/{partition.index}/{row[0]}"
                for life, topic in some
                for partition in topic.partitions
                for row in partition.log.visible_rows()
            }
            for some in ([(n, t) for n, t in lives if self.ledger.life(t.name) == n], lives)
        )
        seen: Counter[str] = Counter()
        for partition in self.stage.cluster.topics[TOPIC].partitions:
            last: dict[str, int] = {}
            for row in partition.log.visible_rows():
                source = bytes(row[4] or b"").decode().split(" ")[0]
                seen[source] += 1
                place, _, offset = source.rpartition("/")
                if int(offset) < last.get(place, -1):
                    raise Violation(
                        f"{TOPIC}-{partition.index} at {row[0]}: the output of {source} follows "
                        f"that of {last[place]}"
                    )
                last[place] = int(offset)
        for source in sorted(wanted | seen.keys()):
            if seen[source] != 1 or source not in known:
                raise Violation(f"the output of {source} exists {seen[source]} times")


def run_of(schedule: Schedule, *, mode: Mode | None = None, hosts: HostMaker | None = None) -> Run:
    """Return the run of a schedule, with or without a group."""
    grouped = any(client.kind in GROUPED for client in schedule.clients)
    return (GroupRun if grouped else Run)(schedule, mode=mode, hosts=hosts)
