"""A scripted host in virtual time: one client engine, and brokers that do what a case tells them.

It is deliberately poorer than the simulation: no packets, no faults of its own, one latency, no
logs (what is written is acknowledged and forgotten, fetches bring nothing). The engine is the one
that ships, of a producer, a consumer or an admin. Every address has a *mode*:
    up          answers everything
    refused     refuses the dial
    black_hole  swallows the dial; on connections that stand, nothing is answered any more
    reset       accepts and resets
    mute        accepts and never says a word
    handshake   answers ApiVersions, then closes the connection
    error_129   answers ApiVersions with REBOOTSTRAP_REQUIRED
    no_password refuses whatever a client authenticates with
    sasl_mute   says nothing more from SaslHandshake on
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.spec.brokers import ClusterPicture, ScriptedErrors, answer, parse

from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import Config
from odradek.common.errors import DnsError
from odradek.common.events import Event
from odradek.common.types import NullLock, Rng
from odradek.network.connection import Connection
from odradek.network.effects import Close, IncomingResponse, Open, Resolve, Send
from odradek.network.flow import Completion, Flow
from odradek.network.sasl.factory import SaslOutsiders, mechanism_for
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchRequest

__all__ = ["ClusterPicture", "Completion", "World", "ask", "parse", "up"]

T = TypeVar("T")

LATENCY = 0.001
"""Seconds that anything takes in one direction."""


def engine_of(client: str, config: Config, rng: Rng, hint: dict[str, Any] | None) -> ClientEngine:
    """The engine that a client of this kind runs."""
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
    why: str = ""


@dataclass
class Asked:
    """A request that the client sent."""

    at: float
    address: str
    api: str
    connection: int
    body: Any


@dataclass
class Closed:
    at: float
    connection: int
    reason: str


class World:
    """Virtual time, scripted brokers and one engine."""

    now = 0.0

    def __init__(
        self,
        config: dict[str, Any],
        *,
        client: str = "consumer",
        seed: int = 1,
        hint: dict[str, Any] | None = None,
    ) -> None:
        self.modes: dict[str, str] = {}
        self.pictures: dict[str, ClusterPicture] = {}
        """What an address answers to Metadata; "*" is for all others."""
        self.delays: dict[str, float] = {}
        """Seconds that an address takes to answer anything but ApiVersions."""
        self.handshakes: dict[str, float] = {}
        """Seconds that it takes for that."""
        self.names: dict[str, list[str] | None] = {}
        """What a host name resolves to; None: it doesn't. Unlisted names give one address."""
        self.dials: list[Dial] = []
        self.asked: list[Asked] = []
        self.closed: list[Closed] = []
        self.resolved: list[tuple[float, str]] = []
        self.events: list[Event] = []
        self.steps = 0
        self.serial = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._open: dict[int, tuple[str, str]] = {}
        """Connections that stand (or are being opened), with address and ip:port."""
        self._established: dict[int, None] = {}
        self.deadline: float | None = 0.0
        self.rng = random.Random(seed)
        self.errors = ScriptedErrors()
        self.engine = engine_of(client, Config(client, config), self.rng, hint)
        self.engine.events.listen(self.events.append)
        outside = SaslOutsiders(wall_clock=lambda: 0.0)
        self.engine.network.mechanism = mechanism_for(self.engine.config, outside)

    # Time

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self._heap, (when, self.serial, action))

    def step(self) -> None:
        """One step of the engine and what it wants done."""
        self.steps += 1
        self.deadline = self.engine.step(self.now)
        assert self.deadline is None or self.deadline > self.now, "a step asks to be repeated"
        while self.engine.effects:
            self.carry_out(self.engine.effects.popleft())

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Go on to a time, or until something holds."""
        while True:
            if self.engine.inputs or self.deadline is None or self.deadline <= self.now:
                self.step()
            if stop is not None and stop():
                return
            times = [self._heap[0][0]] if self._heap else []
            if self.deadline is not None:
                times.append(self.deadline)
            when = min(times, default=until)
            if when > until:
                break
            if not times:
                break
            self.now = max(self.now, when)
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
                self.look()
            if self.deadline is not None and self.deadline <= self.now:
                self.step()
        self.now = max(self.now, until)

    def wait(self, flow: Flow[T], within: float) -> Completion[T]:
        """Start a flow and run until it is done."""
        completion = self.engine.start(flow)
        self.run(self.now + within, lambda: completion.done)
        return completion

    # What the client's end hears; in bytes where a real host runs the engine (`asyncio_world`)

    def tell_connected(self, number: int) -> None:
        self.engine.connected(number)
        self.look()

    def tell_lost(self, number: int, error: BaseException | str | None) -> None:
        self.engine.disconnected(number, error)
        self.look()

    def tell_answer(self, number: int, response: IncomingResponse) -> None:
        self.engine.received(number, response)
        self.look()

    def look(self) -> None:
        """Something is new. The engine steps when all of this instant has come."""

    # What the script does

    def mode(self, address: str, mode: str, *, cut: bool = True) -> None:
        """Change an address; `cut` resets the connections that stand (unless it goes silent)."""
        self.modes[address] = mode
        if cut and mode != "up":
            self.cut(address, "reset")

    def cut(self, address: str, error: str | None) -> None:
        """End the established connections to an address; None is an orderly end."""
        for number in list(self._established):
            if address in self._open[number]:
                self._end(number, error)

    def connection(self, address: str) -> Connection | None:
        return self.engine.network.connection(parse(address))

    # Effects

    def _mode(self, number: int) -> str:
        address, ip = self._open[number]
        return self.modes.get(ip) or self.modes.get(address, "refused")

    def carry_out(self, effect: object) -> None:
        if isinstance(effect, Resolve):
            self.look_up(effect.host, lambda found: self.engine.resolved(effect.token, found))
        elif isinstance(effect, Open):
            self._dial(effect)
        elif isinstance(effect, Send):
            self._send(effect)
        elif isinstance(effect, Close):
            self.closed.append(Closed(self.now, effect.connection, effect.reason))
            self._open.pop(effect.connection, None)
            self._established.pop(effect.connection, None)
        else:
            raise AssertionError(f"an effect that no case expects: {effect}")

    def look_up(self, host: str, deliver: Callable[[list[str] | BaseException], None]) -> None:
        """Ask for a name's addresses."""
        self.resolved.append((self.now, host))
        ips = self.names.get(host, [f"ip-of-{host}"])
        answer = ips if ips is not None else DnsError(f"{host} isn't there")
        self.later(LATENCY, lambda: deliver(answer))

    def _dial(self, effect: Open) -> None:
        number = effect.connection
        address = str(effect.address)
        self._open[number] = (address, f"{effect.ip}:{effect.address.port}")
        self.dials.append(Dial(self.now, address, effect.ip, number))
        self.later(LATENCY, lambda: self._reached(number))

    def _reached(self, number: int) -> None:
        if number not in self._open:
            return
        mode = self._mode(number)
        if mode == "refused":
            self._end(number, ConnectionRefusedError("refused"))
        elif mode != "black_hole":
            self._established[number] = None
            self.tell_connected(number)
            if mode == "reset":
                self.later(LATENCY, lambda: self._end(number, "reset by peer"))

    def _end(self, number: int, error: BaseException | str | None) -> None:
        if self._open.pop(number, None) is not None:
            self._established.pop(number, None)
            self.tell_lost(number, error)

    def _send(self, effect: Send) -> None:
        number, request = effect.connection, effect.request
        if number not in self._open:
            return
        address = self._open[number][0]
        body = request.body
        self.asked.append(Asked(self.now, address, body.API_NAME, number, body))
        delays = self.handshakes if isinstance(body, ApiVersionsRequest) else self.delays
        delay = delays.get(address, 0.0)
        if isinstance(body, FetchRequest) and not self.errors.any_left("Fetch"):
            delay += body.max_wait_ms / 1000.0  # there are never any records
        identity = request.correlation_id
        self.later(2 * LATENCY + delay, lambda: self._answer(number, identity, body))

    def _answer(self, number: int, identity: int, body: Any) -> None:
        if number not in self._open:
            return
        mode = self._mode(number)
        if mode not in ("up", "handshake", "error_129", "no_password", "sasl_mute"):
            return
        message = self.answer(self._open[number][0], body, mode)
        if message is not None:
            self.tell_answer(number, IncomingResponse(identity, message))
        if mode == "handshake":
            self.later(LATENCY, lambda: self._end(number, None))

    def answer(self, address: str, body: Any, mode: str) -> Message | None:
        """What a broker says; tests that need more override it."""
        picture = self.pictures.get(address) or self.pictures.get("*") or ClusterPicture()
        return answer(address, body, mode, picture, self.errors)

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
        noted += [(c.at, f"close {c.connection} {c.reason}") for c in self.closed]
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
