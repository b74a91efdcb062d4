"""The simulated world in the words of the cases: addresses with modes, and pictures of clusters.

In: a configuration, and what a case does to addresses, names and answers. Out: one client's engine
on a simulated host, and a note of all that it asked. Brokers are the simulation's; an address has a
broker, which belongs to the cluster that the address's picture shows, and fails as its *mode* says:
    up          answers everything
    refused     refuses connection attempts
    black_hole  swallows connection attempts, and all that is sent on established connections
    reset       accepts and resets
    mute        accepts and never answers
    handshake   answers ApiVersions, then closes the connection
    error_129   answers ApiVersions with REBOOTSTRAP_REQUIRED
    no_password refuses all credentials
    sasl_mute   never answers SaslAuthenticate
"""

from __future__ import annotations

import random
import re
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tests.spec.brokers import LATENCY, ClusterPicture, ScriptedBroker, ScriptedErrors, parse

from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import Config
from odradek.common.errors import DnsError
from odradek.common.events import Event
from odradek.common.types import Address, NullLock, Rng
from odradek.network.connection import Connection
from odradek.network.effects import OutgoingRequest
from odradek.network.flow import Completion, Flow
from odradek.network.sasl.factory import SaslOutsiders, mechanism_for
from odradek.protocol.message import Message
from odradek.simulation import LinkProfile
from odradek.simulation import World as Simulation
from odradek.simulation.brokers.sasl_listener import SaslListener
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.world.environment import Peer, Session, Verdict
from odradek.simulation.world.link import Mode
from odradek.simulation.world.world import HostMaker

__all__ = ["ClusterPicture", "Completion", "World", "ask", "parse", "up"]

T = TypeVar("T")


def engine_of(client: str, config: Config, rng: Rng, hint: dict[str, Any] | None) -> ClientEngine:
    """Make the engine that a client of this kind runs."""
    if client == "producer":
        return ProducerEngine(config, rng, NullLock())
    if client == "admin":
        return AdminEngine(config, rng)
    return ConsumerEngine(config, rng, wall_clock=lambda: 0.0, hint=hint)


@dataclass
class Dial:
    """A connection that the client opened."""

    at: float
    address: str
    ip: str
    connection: int


@dataclass
class Asked:
    """A request that the client sent."""

    at: float
    address: str
    api: str
    connection: int
    body: Any
    version: int


class Told(UserDict[str, Any]):
    """Modes or pictures by address; each change takes effect at once."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed: Callable[[], None] = lambda: None
        super().__init__()
        self._changed = changed

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._changed()


class Notes:
    """Keeps a client's connection attempts and requests, as its host's watcher."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._addresses: dict[int, str] = {}

    def opened(self, number: int, address: Address, ip: str) -> None:
        self._addresses[number] = str(address)
        self._world.dials.append(Dial(self._world.now, str(address), ip, number))

    def sent(self, number: int, request: OutgoingRequest) -> None:
        where, body = self._addresses[number], request.body
        asked = Asked(self._world.now, where, body.API_NAME, number, body, request.version)
        self._world.asked.append(asked)

    def connected(self, number: int) -> None: ...
    def answered(self, number: int, correlation_id: int, throttle: float = 0.0) -> None: ...

    def came(self, number: int, size: int) -> None: ...
    def ended(self, number: int) -> None: ...


class Net(Simulation):
    """The simulation, with a case's names and addresses."""

    def __init__(self, world: World, seed: int, hosts: HostMaker | None) -> None:
        super().__init__(seed, link=LinkProfile(LATENCY / 2, 0.0), hosts=hosts)
        self._world = world
        self._ips: dict[str, str] = {}

    def resolve(self, name: str, answer: Callable[[list[str] | BaseException], None]) -> None:
        """Look a name up; those that a case doesn't list have one address."""
        world = self._world
        world.resolved.append((self.now, name))
        high, low = divmod(len(self._ips), 250)
        own = self._ips.setdefault(name, f"127.9.{high}.{low + 1}")
        ips = world.names.get(name, [own])
        for ip in ips or ():
            world.reached[ip] = name
        found = ips if ips is not None else DnsError(f"{name} isn't there")
        self.time.after(LATENCY, lambda: answer(found))

    def dialled(self, peer: Peer, ip: str, port: int) -> Session | Verdict:
        """Lead to the broker of the address."""
        return self._world.broker(ip, port).accept(peer)


class World:
    """One engine in a simulated world, and brokers that do what a case says."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        client: str = "consumer",
        seed: int = 1,
        hint: dict[str, Any] | None = None,
        hosts: HostMaker | None = None,
        mode: Mode = "messages",
        resets_together: bool = True,
    ) -> None:
        """`hosts` makes another host of the client than `SimulatedHost`.

        `resets_together`: the client is notified of all connections that are reset at one instant
        before its next step; otherwise of each by itself, as an event loop does.
        """
        self._resets_together = resets_together
        self.simulation = Net(self, seed, hosts)
        self.places: dict[str, ScriptedBroker] = {}
        """By ip:port."""
        self.reached: dict[str, str] = {}
        """Names by their ips."""
        self.modes = Told(self.changed)
        self.pictures = Told(self.changed)
        """What an address answers to Metadata; "*" is for all others."""
        self.delays: dict[str, float] = {}
        """Seconds that an address takes to answer anything but ApiVersions."""
        self.handshakes: dict[str, float] = {}
        """Seconds that it takes for that."""
        self.names: dict[str, list[str] | None] = {}
        """Addresses by host name; None: the name doesn't resolve."""
        self.dials: list[Dial] = []
        self.asked: list[Asked] = []
        self.resolved: list[tuple[float, str]] = []
        self.events: list[Event] = []
        self.errors = ScriptedErrors()
        self.spoken: dict[int, tuple[int, int]] = {}
        """Versions of APIs that brokers speak besides."""
        self.logs: dict[tuple[bytes, int], PartitionLog] = {}
        """The logs of partitions, whichever cluster they are in, by name, id and number."""
        self.rng = random.Random(seed)
        settings = Config(client, config)
        self.engine = engine_of(client, settings, self.rng, hint)
        self.engine.events.listen(self.events.append)
        outside = SaslOutsiders(wall_clock=lambda: 0.0)
        self.engine.network.mechanism = mechanism_for(self.engine.config, outside)
        self.sasl: SaslListener | None = None
        if self.engine.network.mechanism is not None:
            user, password = settings["sasl.username"], settings["sasl.password"]
            users = {user: password.reveal()} if user else {}
            self.sasl = SaslListener(users, failure_delay=0.0)
        self.host = self.simulation.host("client", mode=mode)
        self.host.watcher = Notes(self)
        self.host.attach(self.engine)

    # Time

    @property
    def now(self) -> float:
        return self.simulation.now

    @property
    def steps(self) -> int:
        return self.host.steps

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        def act() -> None:
            action()
            self.host.wake()

        self.simulation.after(seconds, act)

    def step(self) -> None:
        """Let the engine take up what it was given at this instant."""
        self.run(self.now)

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Go on to a time, or until something holds."""
        self.host.wake()
        if stop is None:
            self.simulation.run_until(until)
        else:
            self.simulation.run_while(lambda: not stop(), max(0.0, until - self.now))

    def wait(self, flow: Flow[T], within: float) -> Completion[T]:
        """Start a flow and run until it is done."""
        completion = self.engine.start(flow)
        self.run(self.now + within, lambda: completion.done)
        return completion

    # The script's side

    def broker(self, ip: str, port: int) -> ScriptedBroker:
        """The broker that listens there."""
        place = f"{ip}:{port}"
        if place not in self.places:
            address = f"{self.reached.get(ip, ip)}:{port}"
            self.places[place] = ScriptedBroker(self, place, address)
        return self.places[place]

    def changed(self) -> None:
        """Modes or pictures have changed."""
        for broker in self.places.values():
            broker.settle()

    def mode(self, address: str, *others: str, mode: str, cut: bool = True) -> None:
        """Change addresses; `cut` resets open connections (unless they go silent)."""
        if cut and mode != "up":
            self.cut(address, *others, error="reset")
        self.modes.update(dict.fromkeys((address, *others), mode))

    def cut(self, *addresses: str, error: str | None) -> None:
        """End the established connections to addresses; None is an orderly end."""
        self.host.freeze(self._resets_together)
        self.simulation.change_link(latency=0.0)
        for broker in self.places.values():
            if {broker.place, str(broker.address)} & {*addresses}:
                broker.disconnect_all(reset=error is not None)
        self.simulation.change_link(latency=LATENCY / 2)
        self.simulation.run_until(self.now)
        self.host.freeze(False)

    def connection(self, address: str) -> Connection | None:
        return self.engine.network.connection(parse(address))

    def answer(self, address: str, body: Any) -> Message | Literal["silence"] | None:
        """Answer in place of a simulated broker; None leaves it to that."""
        return None

    # What the cases look at

    def kinds(self, kind: str) -> list[Event]:
        return [e for e in self.events if e.kind == kind]

    def asks(self, api: str = "Metadata") -> list[Asked]:
        return [a for a in self.asked if a.api == api]

    def lines(self) -> list[str]:
        """All that the client did and said, in the order of its events, times to a nanosecond."""
        noted: list[tuple[float, str]] = [(at, f"resolve {host}") for at, host in self.resolved]
        noted += [(d.at, f"dial {d.address} {d.ip} {d.connection}") for d in self.dials]
        noted += [(a.at, f"ask {a.address} {a.connection} {_shown(a.body)}") for a in self.asked]
        noted += [(e.at, str(e)) for e in self.events]
        return [f"{at:.9f} {text}" for at, text in noted]

    def worst_second(self, since: float = 0.0) -> int:
        """The most dials in any one second."""
        times = [d.at for d in self.dials if d.at >= since]
        return max((sum(1 for u in times if t <= u < t + 1.0) for t in times), default=0)


def _shown(body: object) -> str:
    """A request, without where in memory its records are."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(body))


def ask(world: World, address: str, body: Any, response: type[Message], timeout: float) -> Any:
    """A flow of one request to one broker."""
    return world.engine.ask(parse(address), body, response, world.now + timeout)


def up(world: World, *addresses: str) -> None:
    for address in addresses:
        world.modes[address] = "up"
