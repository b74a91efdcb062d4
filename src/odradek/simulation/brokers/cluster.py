"""Simulate a Kafka cluster: brokers, their faults, leader elections, and a bootstrap address.

In: a simulation (or the loopback server of `odradek.testing`), and method calls with the names of
`LocalCluster`'s methods; broker ids begin at 1. Out: brokers that listen in the simulation, and
their shared state (`cluster_state`). All methods return at once, and their effects happen in
virtual time. Must not know clients, or answer requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from odradek.common.types import Address
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation.brokers.broker import Observer, SimulatedBroker
from odradek.simulation.brokers.broker_handlers import HANDLERS
from odradek.simulation.brokers.cluster_state import ClusterState, Misbehaviour
from odradek.simulation.brokers.front_door import SimulatedFrontDoor as SimulatedFrontDoor
from odradek.simulation.brokers.telemetry_handlers import TELEMETRY_HANDLERS
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition, SimulatedTopic
from odradek.simulation.world.environment import Environment

OldAddresses = Literal["refused", "blackholed"]
OFFERED = [kind for kind in HANDLERS if kind not in TELEMETRY_HANDLERS]


class SimulatedCluster(ClusterState):
    """N brokers that speak the real protocol in virtual time."""

    def __init__(
        self,
        environment: Environment,
        brokers: int = 3,
        cluster_id: str = "simulated-cluster-0001",
        *,
        name: str = "kafka",
        bootstrap_name: str | None = "kafka.simulated",
        auto_create: bool = False,
        versions: Mapping[int, tuple[int, int]] | None = None,
        front_door: SimulatedFrontDoor | None = None,
        first_id: int = 1,
        start: bool = True,
    ) -> None:
        kinds: list[type[Message]] = [ApiVersionsRequest, *OFFERED]
        spoken = {kind.API_KEY: (kind.MIN_VERSION, kind.MAX_VERSION) for kind in kinds}
        spoken.update(versions or {})
        super().__init__(environment, cluster_id, name, spoken, min(3, brokers))
        self.auto_create = auto_create
        self.session_timeout = 2.0
        """Seconds until the controller fences a broker that is down or unreachable."""
        self.startup = 0.05  # seconds from a broker's start until it is registered
        self.offsets_unavailable = 0.2
        """Seconds for which a new leader answers OFFSET_NOT_AVAILABLE after an outage."""
        self.retired = False
        """Whether another cluster has replaced this one, whose brokers then don't start again."""
        self.observers: list[Observer] = []
        """Called for every handled request, except for ApiVersions."""
        self.deleted: list[SimulatedTopic] = []  # topics that faults deleted; see `broker_faults`
        self.injected: set[int] = set()  # error codes that a schedule's faults have injected
        self._black_holes: list[Address] = []
        ids = range(first_id, first_id + brokers)
        self.brokers: dict[int, SimulatedBroker] = {
            i: SimulatedBroker(self, i, environment.new_address(), self.observers) for i in ids
        }
        self.front_door = front_door = front_door or self._new_front_door()
        self.bootstrap_servers = str(front_door.address)
        if bootstrap_name is not None:
            environment.dns[bootstrap_name] = [front_door.address.host]
            self.bootstrap_servers = f"{bootstrap_name}:{front_door.address.port}"
        if start:
            for broker in self.brokers.values():
                broker.boot()
                broker.register()

    def _new_front_door(self) -> SimulatedFrontDoor:
        address = self.environment.new_address()
        made = SimulatedFrontDoor(address, self.environment.rng(f"{self.name}/front door"))
        self.environment.listen(address, made)
        made.lead_to(self.brokers)
        return made

    def move_front_door(self) -> None:
        """Let the bootstrap name resolve to another address, and stop listening at the old one."""
        self.environment.unlisten(self.front_door.address)
        self.front_door = self._new_front_door()
        name = self.bootstrap_servers.partition(":")[0]
        self.environment.dns[name] = [self.front_door.address.host]

    def receive_telemetry(self, receiver: TelemetryReceiver) -> None:
        """Collect clients' metrics (KIP-714) of connections that begin from now on."""
        self.telemetry = receiver
        self.versions.update(
            {kind.API_KEY: (kind.MIN_VERSION, kind.MAX_VERSION) for kind in TELEMETRY_HANDLERS}
        )

    def leader(self, topic: str, partition: int) -> SimulatedBroker | None:
        """Return the leader of a partition."""
        return self.brokers.get(self.topics[topic].partitions[partition].leader)

    def hand_over(self, topic: str, partition: int) -> None:
        """Move a partition's leadership if another replica can lead; otherwise do nothing."""
        found = self.topics[topic].partitions[partition]
        if any(r != found.leader and r in self._candidates() for r in found.replicas):
            self.move_leader(topic, partition)

    # Faults

    def crash(self, i: int) -> None:
        """Kill a broker: its connections end, and unacknowledged records may be lost."""
        broker = self.brokers[i]
        if not broker.alive:
            return
        self._take_down(broker)
        self._fence_later(broker)

    kill = crash

    def stop(self, i: int) -> None:
        """Stop a broker cleanly: other brokers become leaders of its partitions first."""
        broker = self.brokers[i]
        if broker.alive:
            self._fence(broker, orderly=True)
            self._take_down(broker)

    def restart(self, i: int, *, after: float = 0.0, new_address: bool = False) -> None:
        """Start a broker that is down, with the data that it had."""
        broker = self.brokers[i]

        def start() -> None:
            if not broker.alive and not self.retired:
                if broker.registered:  # the restart ends the broker's leaderships
                    self._fence(broker)
                if new_address:
                    broker.move()
                broker.boot()
                self.environment.time.after(self.startup, lambda: self._register(broker))

        self.environment.time.after(after, start) if after else start()

    start = restart

    def bounce(self, i: int, *, after: float = 1.0) -> None:
        """Kill a broker and start it again."""
        self.crash(i)
        self.restart(i, after=after)

    def pause(self, i: int) -> None:
        """Stop a broker's process like SIGSTOP does."""
        self._misbehave(i, Misbehaviour.PAUSED)

    def zombie_leader(
        self,
        i: int,
        frozen: float = 0.0,
        seconds: float | None = None,
        fenced: float | None = None,
    ) -> None:
        """Cut a broker off from the other brokers but not from clients, which it still answers.

        The broker answers no request for the first `frozen` seconds, as after SIGSTOP; `seconds`
        later it can reach the other brokers again. After `fenced` seconds, by default the session
        timeout, other leaders are elected.
        """
        broker = self.brokers[i]
        if not broker.reachable:
            return
        made = broker.cut_off()
        broker.set_fault(Misbehaviour.PAUSED if frozen else Misbehaviour.ZOMBIE)
        self._fence_later(broker, fenced)

        def wake() -> None:
            if broker.zombie is made and broker.fault is Misbehaviour.PAUSED:
                broker.set_fault(Misbehaviour.ZOMBIE)

        def back() -> None:
            if broker.zombie is made:
                self.go_on(i)

        if frozen:
            self.environment.time.after(frozen, wake)
        if seconds is not None:
            self.environment.time.after(frozen + seconds, back)

    def blackhole(self, i: int) -> None:
        """Disconnect a broker from the network, so that packets are lost."""
        self._misbehave(i, Misbehaviour.BLACK_HOLE)

    def accept_then_reset(self, i: int) -> None:
        """Let a broker accept connections and reset them at once."""
        self._misbehave(i, Misbehaviour.ACCEPT_RESET)

    def ready_then_close(self, i: int) -> None:
        """Let a broker answer ApiVersions and then close the connection."""
        self._misbehave(i, Misbehaviour.READY_CLOSE)

    def go_silent(self, i: int) -> None:
        """Let a broker accept connections and read requests, but answer nothing."""
        self._misbehave(i, Misbehaviour.SILENT)

    def throttle(self, i: int, seconds: float) -> None:
        """Let a broker report this throttle time in every response (KIP-219)."""
        self.brokers[i].throttle = seconds

    def slow_handshake(self, i: int, seconds: float) -> None:
        """Let a broker answer ApiVersions this many seconds late."""
        self.brokers[i].delay(ApiVersionsRequest.API_KEY, seconds)

    def stale_metadata(self, i: int, on: bool = True, deleted: bool = False) -> None:
        """Freeze a broker's metadata (brokers, leaders, epochs) in its present state, or end that.

        With `deleted`, the broker's metadata also lacks later deletions and creations of topics.
        """
        self.brokers[i].freeze_metadata(on, deleted=deleted)

    def partition(self, i: int, client: str) -> None:
        """Drop all packets between one client and one broker; other connections aren't affected."""
        self.brokers[i].cut(client, True)

    def half_open(self, i: int) -> None:
        """Let a broker's machine forget its connections, as after a power failure.

        A client notices the loss when it sends bytes, which are answered by a reset.
        """
        for session in list(self.brokers[i].sessions):
            session.forget()

    def repair(self, i: int) -> None:
        """End a broker's faults; it then handles the requests that it received during them."""
        broker = self.brokers[i]
        broker.behave()
        for client in list(broker.cut_from):
            broker.cut(client, False)
        self.go_on(i)

    resume = repair

    def go_on(self, i: int) -> None:
        """Resume a paused broker; its other faults remain."""
        broker = self.brokers[i]
        if broker.zombie is not None and broker.registered:
            self._fence(broker)  # records appended by a zombie are lost
        broker.set_fault(Misbehaviour.NONE)
        if broker.alive:
            if not broker.registered:
                self.environment.time.after(self.startup, lambda: self._register(broker))
            else:
                self._commit_led_by(broker)
                if self._elect_missing():  # some partitions had no leader
                    self.changed()

    def heal(self) -> None:
        """End every fault of this cluster: all brokers run, answer and are reachable."""
        self.answer_empty_brokers(False)
        self.answer_129(False)
        self.close_front_door(False)
        for i, broker in self.brokers.items():
            if not broker.alive:
                self.restart(i)
            self.repair(i)
        self.lift_black_holes()

    def lift_black_holes(self) -> None:
        """Refuse connections at the addresses from before `move`, instead of dropping packets."""
        for address in self._black_holes:
            self.environment.black_hole(address, False)
        self._black_holes.clear()

    def answer_empty_brokers(self, on: bool = True) -> None:
        """Answer metadata requests with an empty list of brokers."""
        self.answers_empty_brokers = on

    def close_front_door(self, on: bool = True) -> None:
        """Refuse connections at the bootstrap address; the brokers aren't affected."""
        self.front_door.close(on)

    def answer_129(self, on: bool = True) -> None:
        """Answer metadata requests (v13) with REBOOTSTRAP_REQUIRED."""
        self.answers_129 = on

    def move(self, *, after: float = 5.0, old: OldAddresses = "refused") -> None:
        """Stop all brokers and start them at other addresses, with the same data and cluster id.

        `old` says what happens at the old addresses from now on. If they become black holes,
        established connections aren't closed.
        """
        self._leave(old)
        for i in self.brokers:
            self.restart(i, after=max(after, 1e-9), new_address=True)

    def replace_with_foreign(
        self,
        *,
        after: float = 0.0,
        cluster_id: str = "foreign-cluster-0002",
        recycle_addresses: bool = False,
        topics: bool = True,
    ) -> SimulatedCluster:
        """Replace this cluster by a different one at the same bootstrap address.

        The new cluster has empty topics of the same names (with other ids) unless `topics` is off.
        With `recycle_addresses`, its brokers listen at the addresses of the replaced brokers.
        """
        self._leave("refused")
        self.retired = True
        foreign = SimulatedCluster(
            self.environment,
            len(self.brokers),
            cluster_id,
            name=f"{self.name}/foreign",
            bootstrap_name=None,
            front_door=self.front_door,
            start=False,
        )
        foreign.bootstrap_servers, foreign.sasl = self.bootstrap_servers, self.sasl
        for i, broker in foreign.brokers.items():
            if recycle_addresses:
                broker.address = self.brokers[i].address
            foreign.restart(i, after=after)
        for topic in self.topics.values() if topics else ():
            foreign.create_topic(topic.name, len(topic.partitions))
        self.front_door.lead_to(foreign.brokers)
        return foreign

    # Internals

    def _register(self, broker: SimulatedBroker) -> None:
        if not broker.reachable:
            return
        broker.register()
        self._elect_missing()
        self.changed()

    def _elect_missing(self) -> bool:
        now = self.environment.time.now
        missing = [p for p in self._all_partitions() if p.leader == NO_LEADER]
        for partition in missing:
            partition.elect(self._candidates(), now + self.offsets_unavailable)
        return bool(missing)

    def _take_down(self, broker: SimulatedBroker) -> None:
        broker.die()
        for partition in self._led_by(broker):
            partition.lose_leader(self._rng)

    def _leave(self, old: OldAddresses) -> None:
        for broker in self.brokers.values():
            if old == "blackholed":
                self.environment.black_hole(broker.address, True)
                self._black_holes.append(broker.address)
                for session in list(broker.sessions):
                    session.peer.hold(True)
                    session.closed()
            self._take_down(broker)
        for broker in self.brokers.values():
            self._fence(broker)

    def _misbehave(self, i: int, fault: Misbehaviour) -> None:
        broker = self.brokers[i]
        broker.set_fault(fault)
        if not broker.reachable:
            self._fence_later(broker)

    def _fence_later(self, broker: SimulatedBroker, after: float | None = None) -> None:
        """Fence a broker that is still unreachable after `after` seconds (the session timeout)."""

        def look() -> None:
            if not broker.reachable and broker.registered:
                self._fence(broker)

        self.environment.time.after(self.session_timeout if after is None else after, look)

    def _fence(self, broker: SimulatedBroker, *, orderly: bool = False) -> None:
        broker.fence()
        until = self.environment.time.now + self.offsets_unavailable
        for partition in self._led_by(broker):
            partition.elect(self._candidates(), None if orderly else until)
            if orderly:
                partition.log.leader_lost(keep=len(partition.log.uncommitted()))
            else:
                partition.lose_leader(self._rng)
        self.changed()

    def _commit_led_by(self, broker: SimulatedBroker) -> None:
        for partition in self._led_by(broker):
            pending = partition.log.uncommitted()
            if pending:
                partition.log.commit(pending[-1])

    def _all_partitions(self) -> list[SimulatedPartition]:
        return [p for topic in self.topics.values() for p in topic.partitions]

    def _led_by(self, broker: SimulatedBroker) -> list[SimulatedPartition]:
        return [p for p in self._all_partitions() if p.leader == broker.id]
