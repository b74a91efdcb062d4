"""Measure how soon a client recovers: one producer, one fault, virtual time (R-RB-7).

In: a number of brokers, a fault, a strategy, a seed. Out: the time from the fault until a live
broker was reached and until the first record was acknowledged, and the number of connection
attempts and requests. The producer has the released engine, in message mode. It sends a record
every 50 ms, and its connections are established. Then all brokers that it knows are replaced at
once by the same number of brokers at other addresses, with the same cluster id, topics and records.
`bootstrap.servers` is a name that resolves to the new addresses. A fault is the behaviour of the
*old* addresses from then on. All times are virtual: they count from when the new brokers listen;
the contact is a request that a broker handles, and connection attempts count when they arrive in
the network. Must not measure times from the client's own events; only metadata requests are counted
from them, because old addresses don't read requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from odradek.clients.producer.batch import BatchOutcome, ProducerBatch
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.events import Event
from odradek.common.types import Address, TopicPartition
from odradek.network.flow import Completion
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.broker_handlers import api_versions
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.measurements.strategies import STRATEGIES
from odradek.simulation.world.client_host import ClientHost
from odradek.simulation.world.environment import Endpoint, Peer, ReceivedRequest, Session, Verdict
from odradek.simulation.world.world import World

TOPIC = "records"
INTERVAL = 0.05
"""Seconds between two records."""
SLOWLY = 1.0
"""Interval between records in a total outage, in seconds.

In five minutes, most records would only expire."""
WARM_UP = 3.0
OUTAGE = 300.0
"""Seconds of a total outage in which connection attempts are counted. The outage ends at a random
time in the next half minute, so that the time to recover doesn't depend on one instant."""
OVERTIME = 30.0
HOUR = 3600.0
HANDSHAKE = 5.0
"""Duration of a slow handshake in seconds: longer than users want to wait."""
RECORD = 100


class RecoveryFault(Enum):
    """Behaviour of the old brokers' addresses from the time of the replacement."""

    REFUSED = "refused"
    """Nothing listens at the old addresses; established connections are closed."""
    BLACKHOLED = "blackholed"
    """Connection attempts time out silently; established connections are closed."""
    SILENT = "silent"
    """Connection attempts time out silently, and established connections become silent."""
    ACCEPT_RESET = "accept-reset"
    """Connections are accepted and reset."""
    READY_THEN_CLOSE = "ready-then-close"
    """Connections are accepted, ApiVersions is answered, then the connection is closed."""
    SLOW_HANDSHAKE = "slow-handshake"
    """Connections are accepted, ApiVersions is answered five seconds later, and the connection is
    closed on the next request."""
    IDLE_THEN_REPLACED = "idle-then-replaced"
    """Like `REFUSED`, and the brokers are replaced at a random time within an hour without a call.
    The client runs only inside calls and notices nothing before; times count from the next call."""
    DNS_MOVED = "dns-moved"
    """Like `REFUSED`, and the bootstrap name also resolves to other addresses."""
    OUTAGE_REFUSED = "outage-refused"
    """All addresses, the bootstrap address included, are down for a little more than five minutes.
    Attempts are counted for five minutes; times count from the end of the outage."""
    OUTAGE_BLACKHOLED = "outage-blackholed"
    """Like `OUTAGE_REFUSED`, with connection attempts that time out silently."""

    @property
    def total(self) -> bool:
        """Whether all addresses are down for some time, so that nothing can be reached."""
        return self in (RecoveryFault.OUTAGE_REFUSED, RecoveryFault.OUTAGE_BLACKHOLED)


@dataclass(frozen=True, slots=True)
class RecoveryRun:
    """Results of one run, in seconds; None if an event didn't happen within the limit."""

    contact: float | None
    """Time until a live broker handled the client's first request other than ApiVersions."""
    ack: float | None
    """Time until the application got the first acknowledgement of a record."""
    dials: int
    """Number of connection attempts until the first acknowledgement, or during a total outage."""
    max_per_s: int
    """Maximum number of attempts within one second, from the fault until the contact."""
    metadata_requests: int
    rebootstraps: int


def recover(
    brokers: int,
    fault: RecoveryFault,
    seed: int,
    *,
    strategy: str = "odradek",
    limit: float = 60.0,
    partitions: int | None = None,
) -> RecoveryRun:
    """Run one client with one fault.

    `partitions` is the number of partitions that the client writes to, and so of brokers that it is
    connected to; by default a random number up to `brokers`, with each order of magnitude equally
    likely.
    """
    return _Recovery(brokers, fault, seed, strategy, limit, partitions).run()


class _Recovery:
    """One run of `recover`: its simulation, cluster and client."""

    def __init__(
        self,
        brokers: int,
        fault: RecoveryFault,
        seed: int,
        strategy: str,
        limit: float,
        partitions: int | None,
    ) -> None:
        self.fault = fault
        self.limit = limit
        self.world = World(seed)
        self.rng = self.world.rng("recovery")
        chosen = STRATEGIES[strategy]
        self.idle = fault is RecoveryFault.IDLE_THEN_REPLACED
        host = self.world.host(
            "producer",
            mode="messages",
            background=not self.idle or chosen.always_runs,
            traced=False,
        )
        self.host: ClientHost = host
        self.cluster = SimulatedCluster(self.world, brokers)
        count = partitions or max(1, round(brokers ** self.rng.random()))
        self.cluster.create_topic(TOPIC, count, 1)
        self.targets = [TopicPartition(TOPIC, p) for p in range(count)]
        self.rng.shuffle(self.targets)
        config = chosen.configure("producer", self.cluster.bootstrap_servers)
        self.engine = ProducerEngine(config, host.rng(), host.lock, parts=chosen.parts)
        host.attach(self.engine)
        self.engine.events.listen(self._event)
        self.cluster.observers.append(self._handled)
        self.next_target = self.dials_before = 0
        self.since = self.outage_ends = 0.0
        self.live = False
        """Whether the brokers already listen at their new addresses, or again after an outage."""
        self.contact: float | None = None
        self.ack: float | None = None
        self.counts: Counter[str] = Counter()

    def run(self) -> RecoveryRun:
        """Run from the start of the client to the first acknowledgement after the fault."""
        self._establish()
        if self.idle:
            self._replaced_while_idle()
        elif self.fault.total:
            self._total_outage()
        else:
            self.world.advance(self.rng.random())
            self._begin_traffic()
            self.world.advance(WARM_UP)
            self._replace()
            self._fault_begins()
            self._start_clock()
        self.world.run_while(lambda: self.ack is None, self.limit)
        since, contact = self.since, self.contact
        dials = [dial.at for dial in self.world.dials[self.dials_before :]]
        before = [at for at in dials if contact is None or at <= contact]
        return RecoveryRun(
            None if contact is None else max(0.0, contact - since),
            None if self.ack is None else self.ack - since,
            sum(at < self.outage_ends for at in dials) if self.fault.total else len(dials),
            busiest(before, 1.0),
            self.counts["metadata_request"],
            self.counts["rebootstrap"],
        )

    # The client

    def _establish(self) -> None:
        """Write one record to each partition, to connect to each leader."""
        found = self.engine.start(self.engine.topic(TOPIC, self.world.now + 30.0))
        self.host.run(found, self.world.now + 30.0)
        found.result()
        last = None
        for _ in self.targets:
            last = self._send()
        if last is not None:
            self.host.run(last.done, self.world.now + 30.0)
            last.done.result()

    def _send(self) -> ProducerBatch:
        target = self.targets[self.next_target % len(self.targets)]
        self.next_target += 1
        place = self.engine.accumulator.append(
            target, (None, b"x" * RECORD, (), 0), RECORD + 64, self.world.now
        )
        if place is None:
            raise RuntimeError("buffer.memory is full, although little is sent here")
        if place.index == 0:
            place.batch.done.when_done(self._settled)
        self.engine.post(_nothing)  # so that a host without a thread steps, too
        self.host.wake()
        return place.batch

    def _begin_traffic(self) -> None:
        self._send()
        self.world.after(SLOWLY if self.fault.total else INTERVAL, self._begin_traffic)

    def _settled(self, done: Completion[BatchOutcome]) -> None:
        if self.ack is None and self.contact is not None and done.error is None:
            self.ack = self.world.now

    def _event(self, event: Event) -> None:
        self.counts[event.kind] += 1

    def _handled(self, broker: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
        if self.live and self.contact is None:
            self.contact = self.world.now

    def _fault_begins(self) -> None:
        self.dials_before = len(self.world.dials)
        self.counts.clear()

    def _start_clock(self) -> None:
        """Start to measure times: brokers listen at new addresses, or an outage has ended."""
        self.since = self.world.now
        self.live = True

    # Faults

    def _replaced_while_idle(self) -> None:
        world = self.world
        at = world.now + 60.0 + self.rng.random() * (HOUR - 120.0)
        world.at(at, self._replace)
        world.at(at, self._start_clock)
        world.advance(HOUR)
        self._fault_begins()
        self.since = world.now
        batch = self._send()
        self.host.run(batch.done, world.now + self.limit)

    def _total_outage(self) -> None:
        self._begin_traffic()
        self.world.advance(WARM_UP + self.rng.random())
        door = self.cluster.front_door
        places: list[tuple[Address, Endpoint]] = [(door.address, door)]
        for broker in self.cluster.brokers.values():
            broker.disconnect_all()
            places.append((broker.address, broker))
        self._fault_begins()
        for address, _ in places:
            self.world.unlisten(address)
            self.world.black_hole(address, self.fault is RecoveryFault.OUTAGE_BLACKHOLED)
        self.outage_ends = self.world.now + OUTAGE
        self.world.advance(OUTAGE + OVERTIME * self.rng.random())
        for address, endpoint in places:
            self.world.black_hole(address, False)
            self.world.listen(address, endpoint)
        self._start_clock()

    def _replace(self) -> None:
        """Move every broker to another address; the old addresses behave like the fault.

        No records are lost and no leader is elected, because only the client is measured.
        """
        world, cluster = self.world, self.cluster
        for broker in cluster.brokers.values():
            old = broker.address
            world.unlisten(old)
            if self.fault is RecoveryFault.SILENT:
                for session in list(broker.sessions):
                    session.peer.hold(True)
                    session.closed()
            broker.disconnect_all(reset=self.fault is RecoveryFault.ACCEPT_RESET)
            if self.fault in (RecoveryFault.SILENT, RecoveryFault.BLACKHOLED):
                world.black_hole(old, True)
            elif self.fault in _GHOSTS:
                world.listen(old, _Ghost(broker, self.fault))
            broker.move()
            world.listen(broker.address, broker)
        for partition in cluster.topics[TOPIC].partitions:
            partition.begin_epoch()
        if self.fault is RecoveryFault.DNS_MOVED:
            cluster.move_front_door()


_GHOSTS = (RecoveryFault.ACCEPT_RESET, RecoveryFault.READY_THEN_CLOSE, RecoveryFault.SLOW_HANDSHAKE)


class _Ghost:
    """A listener at a broker's old address, which behaves like the fault."""

    def __init__(self, broker: SimulatedBroker, fault: RecoveryFault) -> None:
        self.broker = broker
        self.fault = fault

    def accept(self, peer: Peer) -> Session | Verdict:
        """Accept a connection attempt; if the fault is `ACCEPT_RESET`, reset the connection."""
        if self.fault is RecoveryFault.ACCEPT_RESET:
            self.broker.time.after(0.0, lambda: peer.close(reset=True))
        return _GhostSession(self, peer)


class _GhostSession:
    """A connection to a broker's old address."""

    idle = ended = True

    def __init__(self, ghost: _Ghost, peer: Peer) -> None:
        self.ghost = ghost
        self.peer = peer

    def receive(self, request: ReceivedRequest) -> None:
        """Answer ApiVersions, perhaps late; close on any other request."""
        fault, broker = self.ghost.fault, self.ghost.broker
        if request.api_key != ApiVersionsRequest.API_KEY:
            self.peer.close(reset=False)
        elif fault is RecoveryFault.SLOW_HANDSHAKE:
            broker.time.after(HANDSHAKE, lambda: self._versions(request))
        else:
            self._versions(request)
            self.peer.close(reset=False)

    def _versions(self, request: ReceivedRequest) -> None:
        self.peer.respond(request, api_versions(self.ghost.broker), request.version)

    def left(self) -> None:
        """Do nothing: a closed connection has no state."""

    def closed(self) -> None:
        """Do nothing: a closed connection has no state."""


def _nothing(now: float) -> None:
    """Do nothing: this action is posted to make the engine step."""


def busiest(times: list[float], window: float) -> int:
    """Return the maximum number of times within any window of this length; `times` is sorted."""
    return max((bisect_right(times, t + window) - i for i, t in enumerate(times)), default=0)
