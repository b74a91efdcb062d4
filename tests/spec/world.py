"""Run one client's engine in a simulation of addresses with modes and cluster states.

In: a configuration, and a case's changes of addresses, names and responses. Out: one client's
engine on a simulated I/O host, and a record of all its requests. Each address has a broker of the
simulation, which belongs to the cluster that `pictures` has for the address and fails according to
its *mode*:

    up          answers everything
    refused     refuses connection attempts
    black_hole  drops connection attempts, and all data on established connections
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
    """Create the engine of a client of this kind."""
    if client == "producer":
        return ProducerEngine(config, rng, NullLock())
    if client == "admin":
        return AdminEngine(config, rng)
    return ConsumerEngine(config, rng, wall_clock=lambda: 0.0, hint=hint)


@dataclass
class Dial:
    """Connection attempt of the client."""

    at: float
    address: str
    ip: str
    connection: int


@dataclass
class Asked:
    """Request that the client sent."""

    at: float
    address: str
    api: str
    connection: int
    body: Any
    version: int


class WatchedDict(UserDict[str, Any]):
    """Modes or cluster states by address; each change takes effect at once."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed: Callable[[], None] = lambda: None
        super().__init__()
        self._changed = changed

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._changed()


class Notes:
    """Record a client's connection attempts and requests, as the observer of its I/O host."""

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
    """Simulation with the names and addresses of a case."""

    def __init__(self, world: World, seed: int, hosts: HostMaker | None) -> None:
        super().__init__(seed, link=LinkProfile(LATENCY / 2, 0.0), hosts=hosts)
        self._world = world
        self._ips: dict[str, str] = {}

    def resolve(self, name: str, answer: Callable[[list[str] | BaseException], None]) -> None:
        """Resolve a name; a name that the case doesn't list has one address."""
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
        """Connect to the broker of the address."""
        return self._world.broker(ip, port).accept(peer)


class World:
    """One engine in a simulation whose brokers do what a case says."""

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
        """Build the simulation; `hosts` creates another I/O host for the client than usual.

        With `resets_together` the client is notified of all connections that are reset at the same
        time before its next step; otherwise one by one, as an event loop does.
        """
        self._resets_together = resets_together
        self.simulation = Net(self, seed, hosts)
        self.places: dict[str, ScriptedBroker] = {}
        """Brokers by ip:port."""
        self.reached: dict[str, str] = {}
        """Names by IP address."""
        self.modes = WatchedDict(self.changed)
        self.pictures = WatchedDict(self.changed)
        """Cluster state that an address reports; "*": all other addresses."""
        self.delays: dict[str, float] = {}
        """Seconds that an address takes to answer anything but ApiVersions."""
        self.handshakes: dict[str, float] = {}
        """Seconds that an address takes to answer ApiVersions."""
        self.names: dict[str, list[str] | None] = {}
        """Addresses by host name; None: the name doesn't resolve."""
        self.dials: list[Dial] = []
        self.asked: list[Asked] = []
        self.resolved: list[tuple[float, str]] = []
        self.events: list[Event] = []
        self.errors = ScriptedErrors()
        self.spoken: dict[int, tuple[int, int]] = {}
        """Supported versions of further APIs."""
        self.logs: dict[tuple[bytes, int], PartitionLog] = {}
        """Logs of partitions by topic id and partition number, in all clusters."""
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
        """Let the engine process what it received at this time."""
        self.run(self.now)

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Run until a time, or until `stop` returns true."""
        self.host.wake()
        if stop is None:
            self.simulation.run_until(until)
        else:
            self.simulation.run_while(lambda: not stop(), max(0.0, until - self.now))

    def wait(self, flow: Flow[T], within: float) -> Completion[T]:
        """Start a generator of requests and waits in the engine; run until it is done."""
        completion = self.engine.start(flow)
        self.run(self.now + within, lambda: completion.done)
        return completion

    # Changes by the script

    def broker(self, ip: str, port: int) -> ScriptedBroker:
        """Return the broker that listens at an address."""
        place = f"{ip}:{port}"
        if place not in self.places:
            address = f"{self.reached.get(ip, ip)}:{port}"
            self.places[place] = ScriptedBroker(self, place, address)
        return self.places[place]

    def changed(self) -> None:
        """Apply changed modes and cluster states."""
        for broker in self.places.values():
            broker.settle()

    def mode(self, address: str, *others: str, mode: str, cut: bool = True) -> None:
        """Change the mode of addresses; `cut` resets open connections (unless they go silent)."""
        if cut and mode != "up":
            self.cut(address, *others, error="reset")
        self.modes.update(dict.fromkeys((address, *others), mode))

    def cut(self, *addresses: str, error: str | None) -> None:
        """End the established connections to addresses; with `error` None, in an orderly way."""
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
        """Return a scripted response, or None for the simulated broker's own response."""
        return None

    # Checks by the cases

    def kinds(self, kind: str) -> list[Event]:
        return [e for e in self.events if e.kind == kind]

    def asks(self, api: str = "Metadata") -> list[Asked]:
        return [a for a in self.asked if a.api == api]

    def lines(self) -> list[str]:
        """Return the whole trace of the client in order, with times to the nanosecond."""
        noted: list[tuple[float, str]] = [(at, f"resolve {host}") for at, host in self.resolved]
        noted += [(d.at, f"dial {d.address} {d.ip} {d.connection}") for d in self.dials]
        noted += [(a.at, f"ask {a.address} {a.connection} {_shown(a.body)}") for a in self.asked]
        noted += [(e.at, str(e)) for e in self.events]
        return [f"{at:.9f} {text}" for at, text in noted]

    def worst_second(self, since: float = 0.0) -> int:
        """Return the largest number of connection attempts within one second."""
        times = [d.at for d in self.dials if d.at >= since]
        return max((sum(1 for u in times if t <= u < t + 1.0) for t in times), default=0)


def _shown(body: object) -> str:
    """Return a request as text, without the memory addresses of its records."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(body))


def ask(world: World, address: str, body: Any, response: type[Message], timeout: float) -> Any:
    """Return a generator for `wait` that sends one request to one broker."""
    return world.engine.ask(parse(address), body, response, world.now + timeout)


def up(world: World, *addresses: str) -> None:
    for address in addresses:
        world.modes[address] = "up"
