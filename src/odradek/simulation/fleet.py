"""A fleet of clients through an outage, seen from the brokers: the reason why KIP-580 exists.

In: how many clients, a strategy, an outage. Out: dials and metadata requests as each broker sees
them, before, during and after. All clients are producers that ship, in message mode; each writes
to one partition, waits for the acknowledgement, pauses and writes again. When the outage begins,
each has just got a record to write, as busy producers have. Every address refuses connections for
so long and is then back as it was, so whatever comes in a burst was made by the clients.
Must not: count what a client believes; a dial counts where and when it arrives.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass

from odradek.clients.producer.batch import Outcome
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.broker import SimulatedBroker
from odradek.simulation.cluster import SimulatedCluster
from odradek.simulation.environment import ReceivedRequest
from odradek.simulation.host import SimulatedHost
from odradek.simulation.strategies import STRATEGIES, Strategy
from odradek.simulation.world import World

TOPIC = "records"
SETTLE = 3.0
"""Seconds for everybody to connect, over which they are spread."""
BEFORE = 5.0
AFTER = 10.0
PAUSE = 5.0
"""Seconds between an acknowledgement and the client's next record."""
RECORD = 100


@dataclass(frozen=True, slots=True)
class Seen:
    """What arrived at the brokers: (seconds since the outage began, broker)."""

    strategy: str
    clients: int
    brokers: int
    outage: float
    dials: list[tuple[float, int]]
    metadata: list[tuple[float, int]]
    first_second: list[int]
    """Dials of each client within the first second, to the address it dialled most."""
    back: list[float]
    """When each client had its first acknowledgement after the return, from the return on."""


def run(clients: int, brokers: int, outage: float, strategy: str, seed: int) -> Seen:
    """Take a fleet through an outage."""
    fleet = _Fleet(clients, brokers, outage, STRATEGIES[strategy], seed)
    # Nearly all of a fleet lives to the end, and clients leave hardly any cycles behind: the
    # collector would look through all of it, over and over, and find nothing (a tenth of the time).
    collecting = gc.isenabled()
    gc.disable()
    try:
        return fleet.run()
    finally:
        if collecting:
            gc.enable()


class _Client:
    """One member: a producer that writes one record after the other."""

    __slots__ = ("_engine", "_fleet", "_host", "_target", "_waits", "back_at")

    def __init__(self, fleet: _Fleet, number: int) -> None:
        world, cluster = fleet.world, fleet.cluster
        host: SimulatedHost = world.host(f"client-{number}", mode="messages", traced=False)
        parts = fleet.strategy.parts
        self._engine = ProducerEngine(fleet.config, host.rng(), host.lock, parts=parts)
        host.attach(self._engine)
        self._host = host
        self._fleet = fleet
        self._target = TopicPartition(TOPIC, number % len(cluster.topics[TOPIC].partitions))
        self._waits = False
        self.back_at: float | None = None

    def send(self) -> None:
        """Write a record, unless one is under way."""
        if self._waits:
            return
        self._waits = True
        place = self._engine.accumulator.append(
            self._target, None, b"x" * RECORD, (), 0, RECORD + 64, self._fleet.world.now
        )
        if place is None:
            raise RuntimeError("buffer.memory is full, although one record is written at a time")
        place.batch.done.when_done(self._done)
        self._host.wake()

    def _done(self, done: Completion[Outcome]) -> None:
        done.result()
        self._waits = False
        world, fleet = self._fleet.world, self._fleet
        if self.back_at is None and world.now > fleet.ends:
            self.back_at = world.now - fleet.ends
        world.after(PAUSE, self.send)


class _Fleet:
    """One run."""

    def __init__(
        self, clients: int, brokers: int, outage: float, strategy: Strategy, seed: int
    ) -> None:
        self.outage = outage
        self.strategy = strategy
        self.begins = SETTLE + BEFORE
        self.ends = self.begins + outage
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, brokers)
        self.cluster.create_topic(TOPIC, brokers, 1)
        self.cluster.observers.append(self._observe)
        members = list(self.cluster.brokers.values())
        self.config = strategy.configure(
            "producer",
            ",".join(str(b.address) for b in members[:3]),
            # However long the outage is, the record waits for its end.
            **{"delivery.timeout.ms": int((outage + 600) * 1000)},
        )
        self.metadata: list[tuple[float, int]] = []
        self.clients = [_Client(self, n) for n in range(clients)]

    def run(self) -> Seen:
        """From the first dial to ten seconds after the return."""
        world, rng = self.world, self.world.rng("fleet")
        for client in self.clients:
            world.at(rng.random() * SETTLE, client.send)
        world.at(self.begins, self._cut)
        world.at(self.ends, self._return)
        world.run_until(self.ends + AFTER)
        return self._seen()

    def _cut(self) -> None:
        for broker in self.cluster.brokers.values():
            self.world.unlisten(broker.address)
            broker.disconnect_all()
        for client in self.clients:
            client.send()

    def _return(self) -> None:
        for broker in self.cluster.brokers.values():
            self.world.listen(broker.address, broker)

    def _observe(self, broker: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
        if request.api_key == MetadataRequest.API_KEY:
            self.metadata.append((self.world.now - self.begins, broker.id))

    def _seen(self) -> Seen:
        ids = {(b.address.host, b.address.port): b.id for b in self.cluster.brokers.values()}
        early: dict[str, Counter[int]] = {name: Counter() for name in self.world.hosts}
        dials = []
        for dial in self.world.dials:
            at, broker = dial.at - self.begins, ids[dial.ip, dial.port]
            dials.append((at, broker))
            if 0 <= at < 1.0:
                early[dial.client][broker] += 1
        return Seen(
            self.strategy.name,
            len(self.clients),
            len(ids),
            self.outage,
            dials,
            self.metadata,
            [max(counts.values(), default=0) for counts in early.values()],
            [c.back_at for c in self.clients if c.back_at is not None],
        )
