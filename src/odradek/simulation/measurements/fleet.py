"""Measure the load of a fleet of clients on brokers in an outage, which KIP-580 is to limit.

In: a case (policy, settings, brokers, outage, seed) and which clients of the fleet. Out: a `Load`:
connection attempts, metadata requests and recoveries per window of time and broker. Loads can be
added up, in whatever way the clients were divided. Every client is a producer with the released
engine, in message mode; it writes to one partition, waits for the acknowledgement, pauses and
writes again. When the outage begins, each client has just got a record to write, like a busy
producer. Every address refuses connections during the outage and then works as before, so any burst
is due to the clients.

Simulated brokers respond at the same speed under any load, so only a shared random generator could
make clients depend on each other. Each client therefore has its own simulation, whose random
numbers depend on the case's seed and the client's number: a fleet is the sum of its clients, in any
order, on any machine, and needs the memory of one client. Must not use a client's own counts: a
connection attempt counts where and when it arrives.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek.clients.producer.batch import BatchOutcome
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import Config
from odradek.common.events import Listener
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.measurements.strategies import STRATEGIES
from odradek.simulation.world.environment import ReceivedRequest
from odradek.simulation.world.virtual_time import derived_rng
from odradek.simulation.world.world import World

TOPIC = "records"
SETTLE = 3.0
"""Seconds during which the clients connect, at random times."""
BEFORE = 5.0
AFTER = 10.0
PAUSE = 5.0
"""Seconds between an acknowledgement and the client's next record."""
RECORD = 100
WINDOWS = 100
"""Number of time windows per second in which connection attempts and requests are counted."""
COLLECTED = 200
"""Number of clients after which garbage is collected, because simulations are full of cycles."""

Key = tuple[str, int, int]
"""Kind, broker and time.

`accepted` and `refused` (connection attempts) and `metadata` (requests) are counted by window since
the outage began. `back` counts the clients' first acknowledgements after the outage, at the leader
of their partition, by milliseconds since the outage ended. `tries` counts clients by their attempts
within the first second to the broker with the most attempts; the broker in its keys is 0."""
SampleListener = Callable[[int], Listener | None]
"""Function that takes a client's number and returns a listener for the client's events, or None."""


@dataclass(frozen=True, slots=True)
class Case:
    """Conditions of a fleet of clients, except for their number."""

    policy: str
    brokers: int = 3
    outage: float = 60.0
    seed: int = 1
    settings: tuple[tuple[str, str], ...] = ()
    """Options of every client, in addition to the policy's options."""

    @property
    def setting(self) -> str:
        """The options of every client as text, separated by spaces."""
        return " ".join(f"{name}={value}" for name, value in self.settings)

    def config(self) -> Config:
        """Return the configuration of every client; raise an error for an invalid setting."""
        same = World()  # has the same addresses as each client's simulation
        servers = ",".join(str(same.new_address()) for _ in range(min(self.brokers, 3)))
        # The record that a client sends in the outage must not expire before the outage ends.
        patience = {"delivery.timeout.ms": int((self.outage + 600) * 1000)}
        given = {**patience, **dict(self.settings)}
        return STRATEGIES[self.policy].configure("producer", servers, **given)


@dataclass(slots=True)
class Load:
    """Connection attempts and requests of some clients of a case, counted where they arrive."""

    case: Case
    clients: int = 0
    counts: Counter[Key] = field(default_factory=Counter)

    def add(self, other: Load) -> None:
        """Add the load of other clients of the same case."""
        if other.case != self.case:
            raise ValueError(f"{other.case} can't be added to {self.case}")
        self.clients += other.clients
        self.counts.update(other.counts)


def run(
    clients: int, brokers: int, outage: float, strategy: str, seed: int, **settings: str
) -> Load:
    """Simulate a whole fleet in an outage."""
    case = Case(strategy, brokers, outage, seed, tuple(settings.items()))
    return simulate(case, range(clients))


def simulate(case: Case, numbers: Iterable[int], sample: SampleListener | None = None) -> Load:
    """Simulate the clients with these numbers in the outage, one client after the other."""
    load, config = Load(case), case.config()
    # A client's simulation becomes garbage as a whole, so there is nothing to collect before.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in numbers:
            listener = sample(number) if sample is not None else None
            _Client(case, config, number, load.counts, listener).run()
            load.clients += 1
            if load.clients % COLLECTED == 0:
                gc.collect()
    finally:
        if collecting:
            gc.enable()
    return load


class _Client:
    """One client with its own simulation: a producer that writes records one by one."""

    def __init__(
        self,
        case: Case,
        config: Config,
        number: int,
        counts: Counter[Key],
        listener: Listener | None,
    ) -> None:
        name = f"client-{number}"
        world = self._world = World(derived_rng(case.seed, name).getrandbits(62))
        self._case = case
        self._counts = counts
        self._begins = SETTLE + BEFORE
        self._ends = self._begins + case.outage
        cluster = self._cluster = SimulatedCluster(world, case.brokers)
        topic = cluster.create_topic(TOPIC, case.brokers, 1)
        cluster.observers.append(self._observe)
        partition = number % case.brokers
        self._target = TopicPartition(TOPIC, partition)
        self._leader = topic.partitions[partition].leader
        host = self._host = world.host(name, mode="messages", traced=False)
        parts = STRATEGIES[case.policy].parts
        engine = self._engine = ProducerEngine(config, host.rng(), host.lock, parts=parts)
        if listener is not None:
            engine.events.listen(listener)
        host.attach(engine)
        self._waits = self._back = False

    def run(self) -> None:
        """Run from the first connection attempt until ten seconds after the outage."""
        world = self._world
        world.at(world.rng("fleet").random() * SETTLE, self._send)
        world.at(self._begins, self._cut)
        world.at(self._ends, self._return)
        world.run_until(self._ends + AFTER)
        self._count_dials()

    def _send(self) -> None:
        """Write a record, unless one is in flight."""
        if self._waits:
            return
        self._waits = True
        place = self._engine.accumulator.append(
            self._target, (None, b"x" * RECORD, (), 0), RECORD + 64, self._world.now
        )
        if place is None:
            raise RuntimeError("buffer.memory is full, although one record is written at a time")
        place.batch.done.when_done(self._done)
        self._host.wake()

    def _done(self, done: Completion[BatchOutcome]) -> None:
        done.result()
        self._waits = False
        world = self._world
        if not self._back and world.now > self._ends:
            self._back = True
            self._counts["back", self._leader, round((world.now - self._ends) * 1000)] += 1
        world.after(PAUSE, self._send)

    def _cut(self) -> None:
        for broker in self._cluster.brokers.values():
            self._world.unlisten(broker.address)
            broker.disconnect_all()
        self._send()

    def _return(self) -> None:
        for broker in self._cluster.brokers.values():
            self._world.listen(broker.address, broker)

    def _observe(self, broker: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
        if request.api_key == MetadataRequest.API_KEY:
            self._counts["metadata", broker.id, self._window(self._world.now)] += 1

    def _window(self, at: float) -> int:
        return math.floor((at - self._begins) * WINDOWS)

    def _count_dials(self) -> None:
        ids = {b.address.host: b.id for b in self._cluster.brokers.values()}
        counts, begins = self._counts, self._begins
        early: Counter[int] = Counter()
        for dial in self._world.dials:
            broker = ids[dial.ip]
            counts[dial.outcome, broker, self._window(dial.at)] += 1
            if 0 <= dial.at - begins < 1.0:
                early[broker] += 1
        counts["tries", 0, max(early.values(), default=0)] += 1
