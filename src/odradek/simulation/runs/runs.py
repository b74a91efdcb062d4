"""Run one schedule in a simulation: faults happen and end, and all clients must recover.

In: a schedule. Out: nothing, or the first `Violation`. The simulation, the cluster and the clients
are created; operations are called and faults are injected; at `heal_at` all faults end. Then each
client must recover within `CONVERGED_WITHIN`, or `LOSSY_WITHIN`. It is closed, and its records are
compared with the logs. `group_runs` has the runs of groups. Must not read a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from odradek.common.config import ADMIN, CONSUMER, PRODUCER
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.simulation.brokers.broker_faults import disturbed, release_of_all
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.checkers.call_checkers import Complaints, listening
from odradek.simulation.checkers.history import CallKind, CallResult, History
from odradek.simulation.checkers.history_check import Anomaly, check
from odradek.simulation.checkers.invariants import Checkers, Violation
from odradek.simulation.faults.fault_table import Stage, heal, plan
from odradek.simulation.logs.partition_log import check_batch
from odradek.simulation.logs.topics import SimulatedPartition
from odradek.simulation.runs.operator_workload import OperatorDriver
from odradek.simulation.runs.record_workload import ConsumerDriver, ProducerDriver
from odradek.simulation.runs.sasl_runs import listener
from odradek.simulation.runs.schedule import (
    METADATA,
    OPERATOR,
    TRANSACTIONAL,
    Schedule,
    ScheduledClient,
)
from odradek.simulation.runs.transaction_workload import TransactionalDriver
from odradek.simulation.runs.workload import PROBE_AGAIN, TOPIC, AdminDriver, Driver, MetadataDriver
from odradek.simulation.world.link import Mode
from odradek.simulation.world.world import HostMaker, World

DRIVERS: dict[str, type[Driver]] = {
    PRODUCER: ProducerDriver,
    CONSUMER: ConsumerDriver,
    ADMIN: AdminDriver,
    METADATA: MetadataDriver,
    OPERATOR: OperatorDriver,
    TRANSACTIONAL: TransactionalDriver,
}
"""The driver of each kind of client."""
CONVERGED_WITHIN = 60.0
"""Virtual seconds after the last fault. The longest case is a batch in flight on a connection that
became silent: the batch may not be sent elsewhere before `request.timeout.ms`, 30 s by default."""
LOSSY_WITHIN = 3 * CONVERGED_WITHIN
"""Like `CONVERGED_WITHIN`, if links still lose frames, or clients lacked descriptors or memory.
Each lost response may cost as much time as a silent connection, and two in a row occurred once in
190,701 schedules. A client that can't connect meanwhile waits for metadata and then for a
coordinator on such connections."""
EFFECTS: dict[tuple[CallKind, CallResult], str] = {
    (CallKind.ASSIGNED, CallResult.OK): "partition assigned in a rebalance",
    (CallKind.REVOKED, CallResult.OK): "partition revoked in a rebalance, or lost",
    (CallKind.CRASH, CallResult.OK): "process died",
    (CallKind.SEEK, CallResult.OK): "application sought another offset",
    (CallKind.TXN, CallResult.OK): "transaction committed",
    (CallKind.TXN, CallResult.FAIL): "transaction aborted",
    (CallKind.TXN, CallResult.INFO): "transaction without a known outcome",
    (CallKind.SEND, CallResult.INFO): "record without a known outcome",
}
"""Names of effects, by kind and result of operations in the history."""
SOURCE, HEALER = "source", "cluster"
"""Names in the history of processes that aren't clients: the writer of the first records, and the
process that ends all faults."""
BEGINS_WITHIN = 2.0
"""Seconds within which calls with slow responses begin."""
EXPIRY_INTERVAL = 10.0
"""Interval in seconds for deleting expired offsets, if offsets expire at all."""
WRITTEN_BEFORE = 3
"""Number of records in each partition before the first client starts."""


class Run:
    """One run of a schedule in a simulation of its own."""

    def __init__(
        self, schedule: Schedule, *, mode: Mode | None = None, hosts: HostMaker | None = None
    ) -> None:
        """Create the simulation; `hosts` creates the I/O hosts, by default `SimulatedHost`."""
        self.schedule = schedule
        self.world = World(schedule.seed, link=schedule.link, hosts=hosts)
        self.stage = Stage(self.world, SimulatedCluster(self.world, schedule.brokers))
        self.stage.cluster.create_topic(TOPIC, schedule.partitions)
        for name, count in schedule.topics.items():
            self.stage.cluster.create_topic(name, count)
        _configure(self.stage.cluster, schedule.cluster)
        if schedule.session is not None:
            self.stage.cluster.sasl = listener(self.world, schedule.session, schedule.heal_at)
        self.checkers = Checkers(self.world)
        self.history = self.checkers.history
        self.histories: list[tuple[History, set[TopicPartition]]] = []
        """Histories to be judged at the end, one for each cluster, with the partitions in which
        offsets were assigned twice."""
        self.complaints = Complaints()
        self.drivers: list[Driver] = []
        self.mode: Mode = mode or schedule.mode
        self.prepare()
        for client in schedule.clients:
            self._plan(client)
        for fault in schedule.faults:
            plan(fault, self.stage)

    def prepare(self) -> None:
        """Write the records that exist before the first client starts."""
        for partition in self.stage.cluster.topics[TOPIC].partitions:
            values = _write_some(partition)
            for offset, value in enumerate(values):
                place = TopicPartition(TOPIC, partition.index)
                self.history.sent(SOURCE, place, value.decode(), offset)

    def _plan(self, client: ScheduledClient) -> None:
        """Schedule the start of a client, and its operations."""
        world = self.world
        rng = world.rng(f"times/{client.name}")
        until = max(self.schedule.heal_at, client.start)
        if self.schedule.patient:
            until = client.start + BEGINS_WITHIN
        times = sorted(rng.uniform(client.start, until) for _ in range(client.operations))

        def begin() -> None:
            driver = self.driver(client)
            slow = {f.arguments["api"] for f in self.schedule.faults if f.verb == "slow_api"}
            driver.wire.expect_slow(slow)
            self.drivers.append(driver)
            for when in times:
                world.at(when, driver.operation)

        if client.start:
            world.at(client.start, begin)
        else:
            begin()

    def driver(self, client: ScheduledClient) -> Driver:
        """Create the driver of a client, with the client."""
        return DRIVERS[client.kind](
            self.stage, client, self.mode, self.checkers, patient=self.schedule.patient
        )

    def play(self) -> None:
        """Run to the end; raises the first `Violation`."""
        with listening(self.complaints):
            self.world.run_until(self._until())
            self.verify()
            for driver in self.drivers if self.schedule.patient else ():
                driver.served()
                driver.end_patience()
            self.heal()
            self._converge()
            self.verify()
            for driver in self.drivers:
                driver.engine.shut()
                driver.host.close(self.world.now)
            self.verify()
            for driver in self.drivers:
                driver.calls.look(closed=True)
                driver.verify()
            for bystander in self.stage.bystanders:
                untouched(bystander)
            self.verify()
            self._judge()

    def _until(self) -> float:
        return max([self.schedule.heal_at, *(c.start for c in self.schedule.clients)])

    @property
    def _within(self) -> float:
        """Seconds of virtual time after the last fault within which clients must recover."""
        lossy = self.schedule.link.loss or any(f.verb == "exhaust" for f in self.schedule.faults)
        return LOSSY_WITHIN if lossy else CONVERGED_WITHIN

    def _converge(self) -> None:
        world = self.world
        # The cluster itself needs a moment to start and register brokers and to elect leaders.
        world.advance(0.1)
        within = self._within
        end = world.now + within
        waiting = list(self.drivers)
        while True:
            waiting = [driver for driver in waiting if not driver.converged()]
            if not waiting:
                return
            if world.now >= end:
                raise Violation(
                    f"not back {within:.0f} s after the last fault: "
                    + "; ".join(driver.explain() for driver in waiting)
                )
            for driver in waiting:
                driver.again()
            world.run_until(min(end, world.now + PROBE_AGAIN))

    def heal(self) -> None:
        """End all faults."""
        heal(self.stage)
        self.history.note(CallKind.HEAL, HEALER)

    def _judge(self) -> None:
        """Judge the history of each cluster's clients."""
        clusters = (*self.stage.left, self.stage.cluster)
        for cluster in clusters:
            home = cluster.cluster_id
            mine = {d.name for d in self.drivers if d.engine.metadata.cluster_id == home}
            mine |= {SOURCE, HEALER} if cluster is clusters[0] else {HEALER}
            topic = cluster.topics.get(TOPIC)
            history = self.history.only(mine)
            undefined = set(history.partitions())
            for partition in topic.partitions if topic is not None else ():
                place = TopicPartition(TOPIC, partition.index)
                if not disturbed(cluster, *place) and not partition.log.start_offset:
                    rows = [(row[0], row[4]) for row in partition.log.decided_rows()]
                    history.read("all", place, rows, complete=True)
                    undefined.discard(place)
            self.histories.append((history, undefined))
            self.judged(check(history, undefined=undefined, seen_within=self._within))

    @staticmethod
    def judged(anomalies: list[Anomaly]) -> None:
        """Raise a `Violation` if there are anomalies; its text contains the first three."""
        if anomalies:
            raise Violation("; ".join(map(str, anomalies[:3])))

    def verify(self) -> None:
        """Raise the first violation found so far."""
        for driver in self.drivers:
            driver.look()
        self.checkers.verify()
        for driver in self.drivers:
            for found in (driver.wire.violations, driver.calls.violations):
                if found and not (driver.died and found is driver.calls.violations):
                    raise found[0]
        if self.complaints.violations:
            raise self.complaints.violations[0]

    def hits(self) -> Counter[str]:
        """Return how often each effect of a fault occurred."""
        clusters = (*self.stage.left, self.stage.cluster, *self.stage.bystanders)
        hits = sum((cluster.hits for cluster in clusters), Counter(self.stage.hits))
        for cluster in clusters:
            hits.update({f"{api} arrived late": n for api, n in cluster.late.items()})
            hits["topic deleted"] += len(cluster.deleted)
            if cluster.sasl is not None:
                hits["connection closed at the end of its session"] += cluster.sasl.killed
                hits["authenticated again"] += cluster.sasl.reauthenticated
                hits["credentials refused"] += cluster.sasl.refused
        for one in self.history.operations:
            hits[EFFECTS.get((one.call, one.result), "")] += 1
        return +Counter({what: n for what, n in hits.items() if what})

    def lines(self) -> list[str]:
        """Return the traces of all clients, ordered by time."""
        events = [
            (event.at, number, serial, host.name, event)
            for number, host in enumerate(self.world.hosts.values())
            for serial, event in enumerate(host.trace.events)
        ]
        return [f"{at!r} {name} {event}" for at, _, _, name, event in sorted(events, key=_order)]


def _order(entry: tuple[float, int, int, str, object]) -> tuple[float, int, int]:
    return entry[:3]


def _configure(cluster: SimulatedCluster, given: Mapping[str, Any]) -> None:
    """Apply the schedule's settings to the brokers."""
    groups, transactions = cluster.group_settings, cluster.transactions
    groups.configure(
        initial_rebalance_delay=given.get("initial_rebalance_delay", 0.0),
        strict_epochs=bool(given.get("strict_epochs", False)),
    )
    if "offsets_retention" in given:
        groups.configure(
            offsets_retention=given["offsets_retention"], offsets_check_interval=EXPIRY_INTERVAL
        )
    if "release" in given:
        release_of_all(cluster, str(given["release"]))
    if "coordinators" in given:
        cluster.groups.partitions = given["coordinators"]
    if "transaction_version" in given:
        transactions.finalize(given["transaction_version"])
    if "marker_delay" in given:
        transactions.marker_delay = given["marker_delay"]


def untouched(bystander: SimulatedCluster) -> None:
    """Check R-RB-5: no misrouted client has written to `bystander`, which is another cluster."""
    made = set(bystander.topics) - {TOPIC, bystander.groups.name, bystander.transactions.name}
    if made:
        raise Violation(f"{bystander.cluster_id} has topics of our clients: {sorted(made)}")
    for name, topic in bystander.topics.items():
        for partition in topic.partitions:
            if partition.log.batches:
                where = f"{name}-{partition.index} of {bystander.cluster_id}"
                raise Violation(f"{where} holds {len(partition.log.batches)} batches")


def _write_some(partition: SimulatedPartition) -> list[bytes]:
    """Write records to an empty partition, for runs without producers; return their values."""
    values = [b"before/%d/%d" % (partition.index, n) for n in range(WRITTEN_BEFORE)]
    builder = BatchBuilder(1 << 16, None)
    for value in values:
        builder.append(None, value, (), 0)
    data = bytes(builder.build(producer_id=-1, producer_epoch=-1, base_sequence=-1))
    stored = partition.log.append(data, check_batch(data), partition.leader_epoch)
    partition.log.commit(stored)
    return values
