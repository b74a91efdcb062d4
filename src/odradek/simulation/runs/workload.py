"""Simulate the clients of a schedule in virtual time, with calls at times that depend on the seed.

In: a client of a schedule, a stage (simulation and cluster). Out: calls as the public clients make
them (`clients/calls`), and violations of promises to callers. After the faults, the method `probe`
of each `Driver` is called: the driver's client must reach the live brokers and finish its work.
This module has clients that only read metadata or call admin APIs; `record_workload` has producers
and consumers. Must not cause faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.clients.admin import cluster, topics
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.admin.cluster import ClusterDescription
from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.client_engine import ClientEngine
from odradek.common.config import Config
from odradek.common.errors import BrokerError, ClusterIdMismatchError, KafkaError
from odradek.network.flow import Flow
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.checkers.call_checkers import CallsEnd, check_limits, check_sound
from odradek.simulation.checkers.invariants import Checkers, TopicIdsAdvance, Violation
from odradek.simulation.checkers.wire_checkers import Wire
from odradek.simulation.faults.fault_table import Stage
from odradek.simulation.runs.caller import Caller
from odradek.simulation.runs.sasl_runs import mechanism
from odradek.simulation.runs.schedule import PATIENCE, ScheduledClient, settings
from odradek.simulation.runs.schedule import TOPIC as TOPIC
from odradek.simulation.world.client_host import ClientHost
from odradek.simulation.world.link import Mode

T = TypeVar("T")

PROBE_AGAIN = 0.25
"""Seconds between two probes if the calls of the first one failed."""
STEPS_IN_A_SECOND, TIMED_STEPS_IN_A_SECOND = 2_000, 300


class Driver(ABC):
    """The driver of one client of a schedule: makes the client's calls and checks them."""

    died = False
    """Whether the client's process was killed, as by SIGKILL, so that open calls never end."""
    over = False
    """Whether the client makes no more calls."""
    in_background = 0
    """Number of open calls that the application doesn't wait for."""

    def __init__(
        self,
        stage: Stage,
        client: ScheduledClient,
        mode: Mode,
        checkers: Checkers,
        *,
        patient: bool = False,
    ) -> None:
        self.stage = stage
        self.client = client
        self.patient = patient
        """Whether brokers are only slow: calls have a long timeout, and none may fail (R-RB-9)."""
        self.wrong: list[Violation] = []
        self.world = stage.world
        self.name = client.name
        self.rng = stage.world.rng(f"work/{client.name}")
        self.host: ClientHost = stage.world.host(client.name, mode=mode)
        self.host.limit_steps(STEPS_IN_A_SECOND, TIMED_STEPS_IN_A_SECOND)
        self.config = settings(client)
        self.history = checkers.history
        half = self.build(self.config)
        self.engine: ClientEngine = half.engine
        if stage.cluster.sasl is not None:
            half.use(mechanism())
        self.calls = CallsEnd(stage.world.time)
        self.caller = self.application()
        self.wire = Wire(stage.world.time, self.config, self.calls.__len__)
        self.wire.patient = patient
        self.host.watcher = self.wire
        self.host.attach(self.engine)
        bootstrap = {str(address) for address in self.config["bootstrap.servers"]}
        ids = TopicIdsAdvance(self.topic_ids, stage.lives, bootstrap)
        known = self.engine.metadata.ids
        forget = known.forget

        def forgotten(topic: str) -> None:
            ids.forgotten(topic)
            forget(topic)

        known.forget = forgotten
        checkers.watch(self.engine.events, self.config, self.wire.is_held, ids)
        self.engine.events.listen(self.wire)
        self.done = 0
        """Number of operations that were started."""
        self.probed_at: float | None = None
        self._probing = False
        self.begin()
        self.host.wake()

    def topic_ids(self) -> dict[str, bytes]:
        """Return the topic ids that the client's metadata contains, by topic."""
        snapshot = self.engine.metadata.snapshot
        return {} if snapshot is None else {t.name: t.topic_id for t in snapshot.topics.values()}

    # Differences between kinds of clients

    @abstractmethod
    def build(self, config: Config) -> ClientCalls[Any]:
        """Create the client's engine, and the object that makes its calls."""

    def application(self) -> Caller:
        """Return the object that makes the application's calls."""
        return Caller(self.world, self.calls, lambda: self.over)

    def begin(self) -> None:
        """Make the client's first calls; most kinds have none."""
        return

    @abstractmethod
    def operate(self) -> None:
        """Make a call."""

    @abstractmethod
    def probe(self) -> None:
        """Make the calls by which the client shows that it has recovered."""

    @abstractmethod
    def finished(self) -> bool:
        """Return whether the calls that `probe` made were successful."""

    def served(self) -> None:
        """Raise a `Violation` unless slow brokers have answered all calls by now."""
        if len(self.calls):
            raise Violation(f"{self.world.now}: {self.name} waits for brokers that are only slow")

    def end_patience(self) -> None:
        """From now on, allow errors as with healthy brokers."""
        self.patient = False
        self.wire.end_patience()

    def verify(self) -> None:
        """Compare the driver's results, if it has any, with the cluster; raise a `Violation`."""
        return

    # Calls

    def operation(self) -> None:
        """Run one of the schedule's operations."""
        if self.engine.ended is None:
            self.operate()
            self.host.wake()
            self.done += 1

    def seconds(self, timeout: float) -> float:
        """Return the timeout of a call in seconds."""
        return PATIENCE if self.patient else timeout

    def call(
        self, what: str, flow: CallerFlow[T], then: Callable[[T], None] = lambda _: None
    ) -> None:
        """Make a call; `then` is called with its result."""
        self.caller.begin(
            f"{self.name}: {what}", flow, then, lambda error: self.judged(error, what)
        )

    def judged(self, error: BaseException | None, what: str) -> None:
        """Check a call's error: only a `KafkaError` is allowed; with slow brokers, no error is."""
        if error is None or self.engine.ended is not None:
            return
        if not isinstance(error, KafkaError):
            self.wrong.append(Violation(f"{self.world.now}: {self.name}: {what} raised {error!r}"))
        elif self.patient and self.probed_at is None:
            text = f"{what} failed on a cluster that is only slow: {type(error).__name__}: {error}"
            self.wrong.append(Violation(f"{self.world.now}: {self.name}: {text}"))

    def look(self) -> None:
        """Raise the first violation found so far, and check the client's limits."""
        check_sound(self.engine)
        if self.wrong:
            raise self.wrong[0]
        self.calls.look()
        check_limits(self.engine, len(self.calls) + self.in_background)

    # After the faults

    @property
    def cluster(self) -> SimulatedCluster:
        """The cluster at the bootstrap address now."""
        return self.stage.cluster

    def converged(self) -> bool:
        """Return whether the client works with the live brokers (or has a fatal error)."""
        engine = self.engine
        if engine.ended is not None:
            return self.rightly_ended()
        if not self._probing:
            self._probing = True
            engine.metadata.want([TOPIC])
            engine.metadata.request("the faults are over")
            self.probed_at = self.world.now
            self.probe()
            self.host.wake()
        return self._sees_the_living() and self.finished()

    def again(self) -> None:
        """Probe again, because the calls of the last probe may have timed out without a bug."""
        idle = not len(self.calls)
        if self._probing and idle and self.engine.ended is None and not self.finished():
            self.probe()
            self.host.wake()

    def rightly_ended(self) -> bool:
        """Return whether a fatal error is right: another cluster (R-RB-5), an injected error."""
        ended = self.engine.ended
        if isinstance(ended, BrokerError) and not ended.retriable:
            codes = [c.injected for c in (*self.stage.left, self.stage.cluster)]
            return any(ended.code in some for some in codes)
        if not isinstance(ended, ClusterIdMismatchError):
            return False
        before = [c.cluster_id for c in self.stage.left]
        there = [*before, self.cluster.cluster_id]
        return ended.expected in before and ended.found in there[there.index(ended.expected) + 1 :]

    def _sees_the_living(self) -> bool:
        metadata = self.engine.metadata
        snapshot = metadata.snapshot
        if snapshot is None or metadata.refreshed_at is None or self.probed_at is None:
            return False
        living = {b.address for b in self.cluster.brokers.values() if b.registered}
        if {b.address for b in snapshot.brokers.values()} != living:
            metadata.request("brokers are missing")
            self.host.wake()
            return False
        topic = snapshot.topic(TOPIC)
        if topic is None or topic.leaderless:
            return False
        return metadata.refreshed_at >= self.probed_at

    def explain(self) -> str:
        """Return a description of the client's state, to add to the message of a violation."""
        engine = self.engine
        snapshot = engine.metadata.snapshot
        known = sorted(str(a) for a in snapshot.addresses()) if snapshot is not None else None
        return (
            f"{self.name}: ended {engine.ended!r}, knows {known}, "
            f"refreshed at {engine.metadata.refreshed_at}, open calls {len(self.calls)}"
        )


class AskingDriver(Driver):
    """A client that makes calls without records."""

    def build(self, config: Config) -> ClientCalls[Any]:
        """Create the calls of a client without records, or of an admin client."""
        self.asks: ClientCalls[Any] = ClientCalls(self.name, config, self.host, self.make)
        return self.asks

    def make(self, host: Any) -> ClientEngine:
        """Return the engine of the client."""
        return ClientEngine(self.config, host.rng())

    def ask(
        self,
        what: str,
        flow: Callable[[float], Flow[T]],
        timeout: float,
        then: Callable[[T], None] = lambda _: None,
    ) -> None:
        """Run a call's generator in the engine."""
        self.call(what, self.asks.call(flow, self.seconds(timeout), what), then)


class MetadataDriver(AskingDriver):
    """A client that only follows the cluster's metadata."""

    def begin(self) -> None:
        """Request the topic's metadata."""
        self.engine.metadata.want([TOPIC])

    def operate(self) -> None:
        """Request a refresh, or wait for metadata."""
        timeout = self.rng.uniform(0.05, 3.0)
        if self.rng.random() < 0.5:
            self.engine.metadata.request("a caller asks")
        self.ask("metadata of the topic", lambda d: self.engine.topic(TOPIC, d), timeout)

    def probe(self) -> None:
        """Do nothing: every probe requests a refresh."""

    def finished(self) -> bool:
        """Return True: a probe makes no calls that must end."""
        return True


class AdminDriver(AskingDriver):
    """An admin client that describes cluster and topics, and lists, creates and deletes topics."""

    engine: AdminEngine
    _described: bool = False

    def make(self, host: Any) -> AdminEngine:
        """Return the admin client's engine."""
        return AdminEngine(self.config, host.rng())

    def operate(self) -> None:
        """Make one of the admin client's calls."""
        engine, timeout = self.engine, self.rng.uniform(0.05, 4.0)
        # an unknown topic can't be deleted
        which = self.rng.randrange(5) % (4 if self.patient else 5)
        if which == 0:
            self.ask("description of the cluster", self._described_cluster, timeout)
        elif which == 1:
            self.ask("list of topics", lambda d: topics.names(False).flow(engine, d), timeout)
        elif which == 2:
            self.ask(
                "description of t", lambda d: topics.describe(TOPIC, False).flow(engine, d), timeout
            )
        elif which == 3:
            new = [NewTopic(f"{self.name}.{self.done}", 1, -1)]
            self.ask("creation", lambda d: topics.create(new, False).flow(engine, d), timeout)
        else:
            name = f"{self.name}.{max(0, self.done - 1)}"
            self.ask("deletion", lambda d: topics.delete(name).flow(engine, d), timeout)

    def _described_cluster(self, deadline: float) -> Flow[ClusterDescription]:
        return cluster.describe(False, False).flow(self.engine, deadline)

    def probe(self) -> None:
        """Describe the cluster."""
        self.ask("the probe's description", self._described_cluster, 10.0, self._found)

    def _found(self, result: Any) -> None:
        living = {b.id for b in self.cluster.brokers.values() if b.registered}
        self._described = {b.id for b in result.brokers} == living

    def finished(self) -> bool:
        """Return whether the cluster's description contained all live brokers."""
        return self._described
