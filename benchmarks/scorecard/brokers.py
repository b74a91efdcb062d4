"""Simulated brokers on loopback sockets, the same for every library, which record all requests.

In: a script's calls (`serve`, `refuse`, `reset`, `black_hole` … of an address; `says`, `delay` of a
cluster). Out: the responses of `odradek.simulation`'s brokers, and a record of all requests, with
times. They support no newer versions than a real broker, so that every library finds a common
version. Must not: know which library connects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from odradek.common.errors.kafka import NotLeaderOrFollowerError
from odradek.common.types import Address as Place
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.registry import api_name
from odradek.simulation import SimulatedCluster, SimulatedFrontDoor
from odradek.simulation.brokers.broker import BrokerSession
from odradek.simulation.brokers.cluster_state import Misbehaviour
from odradek.simulation.brokers.injected_errors import Injection
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition
from odradek.simulation.world.environment import Peer, ReceivedRequest, Session, Verdict
from odradek.testing.fake.loopback import LoopbackServer

API_VERSIONS, METADATA, PRODUCE, INIT_PRODUCER_ID = 18, 3, 0, 22
ADVERTISED = {
    PRODUCE: (3, 12),  # version 13 has topic ids
    1: (4, 12),  # Fetch isn't used here; some libraries derive the broker's release from it
    2: (1, 7),  # ListOffsets: unused, like Fetch
    METADATA: (0, 13),
    10: (0, 4),  # FindCoordinator: unused, like Fetch
    API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 5),
}
NAMES_WHO_IS_MEANT = 5
"""First version of ApiVersions whose request names the intended cluster and broker (KIP-1242)."""
RESET_AFTER = 0.005
"""Seconds before a connection is reset.

Resetting at once would be a race: some libraries would see a failed connection attempt, others a
broken connection, depending on the kernel.
"""
ALWAYS = 1 << 60


class Answer(Enum):
    """Kind of metadata response."""

    GOOD = "good"
    REBOOTSTRAP_REQUIRED = "error 129"
    NO_BROKERS = "an empty list of brokers"


@dataclass(frozen=True, slots=True)
class Seen:
    """One recorded event, such as a connection attempt or a request."""

    at: float
    what: str
    """API of a request, such as Metadata or Produce, or the kind of another event."""
    address: str
    cluster: str | None = None
    broker: int | None = None
    records: int = 0
    version: int = -1


class Network(LoopbackServer):
    """All addresses of one run, and the events recorded there; used by one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.addresses: list[Address] = []

    def place(self, name: str) -> Address:
        """Return a new address, which refuses connections until a broker listens there."""
        address = Address(self, name, self.call(self.new_address))
        self.addresses.append(address)
        return address

    def cluster(
        self, cluster_id: str, first_id: int, brokers: int, topic: str, **more: Any
    ) -> Cluster:
        """Return a new cluster whose brokers listen."""
        places = [self.place(f"broker {first_id + i}") for i in range(brokers)]
        return Cluster(self, cluster_id, first_id, places, topic, **more)

    def note(self, what: str, address: str, **more: Any) -> None:
        """Record one event with the present time."""
        self.seen.append(Seen(time.monotonic(), what, address, **more))

    def count(self, what: str, since: float, until: float | None = None) -> int:
        """Return the number of events of one kind in a span of time."""
        return sum(
            s.what == what and s.at >= since and (until is None or s.at < until) for s in self.seen
        )

    def first(self, since: float, match: Callable[[Seen], bool]) -> float | None:
        """Return the seconds from `since` to the first event that matches; None without any."""
        found = (s.at - since for s in self.seen if s.at >= since and match(s))
        return next(found, None)

    def close(self) -> None:
        """Close all connections and listeners."""
        self.__exit__()


class Cluster:
    """Brokers of one cluster, with topics that are created at the first request.

    The broker with index p modulo the number of brokers leads partition p of every topic.
    """

    def __init__(
        self,
        network: Network,
        cluster_id: str,
        first_id: int,
        addresses: list[Address],
        topic: str,
        *,
        partitions: int = 1,
        epoch: int = 0,
        looks: bool = False,
    ) -> None:
        self.network, self.cluster_id, self.first_id = network, cluster_id, first_id
        self.addresses = addresses
        self._topic, self._partitions, self._epoch = topic, partitions, epoch
        self._ends: dict[int, int] = {}
        # With `looks`, brokers check whether they are the named receiver (KIP-1242, Kafka 4.4).
        newest = NAMES_WHO_IS_MEANT if looks else ADVERTISED[API_VERSIONS][1]
        self._versions: Mapping[int, tuple[int, int]] = {**ADVERTISED, API_VERSIONS: (0, newest)}
        self.simulated = network.call(self._make)
        for i, address in enumerate(addresses):
            address.serve(self, first_id + i)

    def _make(self) -> SimulatedCluster:
        made = SimulatedCluster(
            self.network,
            len(self.addresses),
            self.cluster_id,
            name=self.cluster_id,  # so that new brokers get the same topic ids
            bootstrap_name=None,
            auto_create=True,
            first_id=self.first_id,
            front_door=SimulatedFrontDoor(self.addresses[0].at, self.network.rng("door")),
            start=False,
        )
        made.versions = dict(self._versions)
        made.default_replication = 1
        made.replication_delay = 0.0
        for broker, address in zip(made.brokers.values(), self.addresses, strict=True):
            broker.alive = broker.registered = True
            broker.processing = 0.0
            broker.address = address.at
        topic = made.create_topic(self._topic, self._partitions)
        for partition in topic.partitions:
            partition.leader_epoch = self._epoch
            partition.log.on_commit[partial(self._taken, partition)] = None
        return made

    def _taken(self, partition: SimulatedPartition) -> None:
        """Record the number of newly committed records of a partition."""
        end, before = partition.log.high_watermark, self._ends.get(partition.index, 0)
        self._ends[partition.index] = end
        self.network.note(
            "taken", "", cluster=self.cluster_id, broker=partition.leader, records=end - before
        )

    @property
    def ids(self) -> set[int]:
        """Ids of the brokers."""
        return set(self.simulated.brokers)

    def says(self, answer: Answer) -> None:
        """Set the kind of metadata response; unless it is `GOOD`, no broker leads any partition."""
        self.network.call(lambda: self._say(answer))

    def _say(self, answer: Answer) -> None:
        simulated = self.simulated
        simulated.answer_129(answer is Answer.REBOOTSTRAP_REQUIRED)
        simulated.answer_empty_brokers(answer is Answer.NO_BROKERS)
        good = answer is Answer.GOOD
        for broker in simulated.brokers.values():
            refusal = Injection("Produce", NotLeaderOrFollowerError.code, ALWAYS)
            broker.injections[:] = [] if good else [refusal]
        for topic in simulated.topics.values():
            for partition in topic.partitions:
                partition.leader = partition.replicas[0] if good else NO_LEADER

    def delay(self, seconds: float) -> None:
        """Delay responses to metadata requests."""

        def late() -> None:
            for broker in self.simulated.brokers.values():
                broker.delays[METADATA] = seconds

        self.network.call(late)

    def move(self, i: int) -> Address:
        """Move a broker to a new address; return the old one, which keeps its listener."""
        old = self.addresses[i]
        new = self.addresses[i] = self.network.place(f"{old.name}, moved")
        self.simulated.brokers[self.first_id + i].address = new.at
        new.serve(self, self.first_id + i)
        return old

    def close_when_ready(self) -> None:
        """Let every broker answer ApiVersions and then close the connection."""
        self._misbehave(Misbehaviour.READY_CLOSE)

    def behave(self) -> None:
        """End the fault: let all brokers answer normally."""
        self._misbehave(Misbehaviour.NONE)

    def _misbehave(self, fault: Misbehaviour) -> None:
        def each() -> None:
            for broker in self.simulated.brokers.values():
                broker.set_fault(fault)

        self.network.call(each)


class Address:
    """An address of the network, and the listener that it has now."""

    def __init__(self, network: Network, name: str, at: Place) -> None:
        self.network, self.name, self.at = network, name, at
        self.host, self.port = at
        self.open: dict[Watched, None] = {}

    def serve(self, cluster: Cluster, broker_id: int) -> None:
        """Let a broker listen at this address."""
        broker = cluster.simulated.brokers[broker_id]

        def accept(peer: Peer) -> Session | Verdict:
            found = broker.accept(peer)
            if not isinstance(found, BrokerSession):
                return found
            return Watched(self, peer, found)

        self._become(accept)

    def refuse(self) -> None:
        """Reset the address's open connections and refuse connection attempts."""
        self._become(None)

    def reset(self) -> None:
        """Reset open connections and new connections, as a proxy without a backend does."""

        def accept(peer: Peer) -> Session | Verdict:
            self.network.time.after(RESET_AFTER, lambda: peer.close(reset=True))
            return Watched(self, peer, None)

        self._become(accept)

    def black_hole(self) -> None:
        """Reset the address's open connections and drop connection attempts."""
        self._become(None)
        self.network.call(lambda: self.network.black_hole(self.at, True))

    def _become(self, accept: Callable[[Peer], Session | Verdict] | None) -> None:
        self.network.call(lambda: self._change(accept))

    def _change(self, accept: Callable[[Peer], Session | Verdict] | None) -> None:
        for watched in list(self.open):
            watched.peer.close(reset=True)
            watched.closed()
        self.network.black_hole(self.at, False)
        if accept is not None:
            self.network.listen(self.at, _Accepting(self, accept))


@dataclass(frozen=True)
class _Accepting:
    """Listener of an address that records connection attempts."""

    address: Address
    decide: Callable[[Peer], Session | Verdict]

    def accept(self, peer: Peer) -> Session | Verdict:
        """Record a connection attempt, and return the outcome that `decide` returns."""
        self.address.network.note("dial", self.address.name)
        return self.decide(peer)


class Watched:
    """A broker's end of a connection, which records each request; there may be no broker."""

    def __init__(self, address: Address, peer: Peer, session: BrokerSession | None) -> None:
        self.peer = peer
        self._address, self._session = address, session
        self._over = False
        address.open[self] = None

    @property
    def ended(self) -> bool:
        """Whether the broker has finished with the connection."""
        return self._over or self._session is None or self._session.ended

    @property
    def idle(self) -> bool:
        """Whether no received request is waiting or being processed."""
        return self._session is None or self._session.idle

    def receive(self, request: ReceivedRequest) -> None:
        """Record a request and pass it to the broker."""
        session = self._session
        if session is None:
            return
        broker = session.broker
        more: dict[str, Any] = {"cluster": broker.cluster.cluster_id, "broker": broker.id}
        name, note = api_name(request.api_key), self._address.network.note
        note(name, self._address.name, version=request.version, **more)
        if request.api_key not in broker.spoken:
            note(f"not answered: {name}", self._address.name, **more)
        body = request.body
        if isinstance(body, ApiVersionsRequest) and broker.misled(body):
            note("told 129", self._address.name, **more)
        session.receive(request)

    def left(self) -> None:
        """Note that the client has closed the connection."""
        self._address.open.pop(self, None)
        if self._session is not None:
            self._session.left()

    def closed(self) -> None:
        """Note that the connection is closed."""
        self._address.open.pop(self, None)
        self._over = True
        if self._session is not None:
            self._session.closed()
