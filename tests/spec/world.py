"""A scripted host in virtual time: one client engine, and brokers that do what a case tells them.

It is deliberately poorer than the simulation: no packets, no faults of its own, one latency. Every
address has a *mode*:
    up          answers everything
    refused     refuses the dial
    black_hole  swallows the dial; on connections that stand, nothing is answered any more
    reset       accepts and resets
    mute        accepts and never says a word
    handshake   answers ApiVersions, then closes the connection
    error_129   answers ApiVersions with REBOOTSTRAP_REQUIRED
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from odradek.clients.client_engine import ClientEngine
from odradek.common.config import Config
from odradek.common.errors import DnsError
from odradek.common.events import Event
from odradek.common.types import Address
from odradek.network.connection import Connection
from odradek.network.effects import Close, IncomingResponse, Open, Resolve, Send
from odradek.network.flow import Completion, Flow, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T = TypeVar("T")

LATENCY = 0.001
"""Seconds that anything takes in one direction."""


def parse(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


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


@dataclass
class ClusterPicture:
    """What brokers say of their cluster."""

    cluster_id: str | None = "cluster-1"
    brokers: dict[int, str] = field(default_factory=dict)
    topics: dict[str, list[int]] = field(default_factory=dict)
    """Leader of each partition."""
    epochs: dict[str, int] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    error_code: int = 0
    throttle_ms: int = 0
    topic_errors: dict[str, int] = field(default_factory=dict)

    def answer(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [t.name for t in request.topics]
        return MetadataResponse(
            throttle_time_ms=self.throttle_ms,
            brokers=[
                MetadataResponseBroker(node_id=i, host=parse(a).host, port=parse(a).port)
                for i, a in self.brokers.items()
            ],
            cluster_id=self.cluster_id,
            controller_id=min(self.brokers, default=-1),
            topics=[self._topic(str(n)) for n in names],
            error_code=self.error_code,
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name in self.topic_errors:
            return MetadataResponseTopic(error_code=self.topic_errors[name], name=name)
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.ids.get(name, name.encode().ljust(16, b"\1")[:16]),
            partitions=[
                MetadataResponsePartition(
                    partition_index=i,
                    leader_id=leader,
                    leader_epoch=self.epochs.get(name, 1),
                    error_code=5 if leader < 0 else 0,
                )
                for i, leader in enumerate(self.topics[name])
            ],
        )


class World:
    """Virtual time, scripted brokers and one engine."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        client: str = "consumer",
        seed: int = 1,
        hint: dict[str, Any] | None = None,
    ) -> None:
        self.now = 0.0
        self.modes: dict[str, str] = {}
        self.pictures: dict[str, ClusterPicture] = {}
        """What an address answers to Metadata; "*" is for all others."""
        self.delays: dict[str, float] = {}
        """Seconds that an address takes to answer anything but ApiVersions."""
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
        self.engine = ClientEngine(Config(client, config), self.rng, hint=hint)
        self.engine.events.listen(self.events.append)

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
            self._carry_out(self.engine.effects.popleft())

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Go on to a time, or until something holds."""
        while True:
            if self.engine.has_inputs or self.deadline is None or self.deadline <= self.now:
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
            due = []
            while self._heap and self._heap[0][0] <= self.now:
                due.append(heapq.heappop(self._heap))
            for _, _, action in due:
                action()
            if self.deadline is not None and self.deadline <= self.now:
                self.step()
        self.now = max(self.now, until)

    def wait(self, flow: Flow[T], within: float) -> Completion[T]:
        """Start a flow and run until it is done."""
        completion = self.engine.start(flow)
        self.run(self.now + within, lambda: completion.done)
        return completion

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

    def address_of(self, connection: int) -> str:
        return self._open[connection][0]

    def connection(self, address: str) -> Connection | None:
        return self.engine.network.connection(parse(address))

    # Effects

    def _mode(self, number: int) -> str:
        address, ip = self._open[number]
        return self.modes.get(ip) or self.modes.get(address, "refused")

    def _carry_out(self, effect: object) -> None:
        if isinstance(effect, Resolve):
            self._resolve(effect)
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

    def _resolve(self, effect: Resolve) -> None:
        self.resolved.append((self.now, effect.host))
        ips = self.names.get(effect.host, [f"ip-of-{effect.host}"])
        answer = ips if ips is not None else DnsError(f"{effect.host} isn't there")
        self.later(LATENCY, lambda: self.engine.resolved(effect.token, answer))

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
            self.engine.connected(number)
            if mode == "reset":
                self.later(LATENCY, lambda: self._end(number, "reset by peer"))

    def _end(self, number: int, error: BaseException | str | None) -> None:
        if self._open.pop(number, None) is not None:
            self._established.pop(number, None)
            self.engine.disconnected(number, error)

    def _send(self, effect: Send) -> None:
        number, request = effect.connection, effect.request
        if number not in self._open:
            return
        address = self._open[number][0]
        body = request.body
        self.asked.append(Asked(self.now, address, body.API_NAME, number, body))
        delay = 0.0 if isinstance(body, ApiVersionsRequest) else self.delays.get(address, 0.0)
        identity = request.correlation_id
        self.later(2 * LATENCY + delay, lambda: self._answer(number, identity, body))

    def _answer(self, number: int, identity: int, body: Any) -> None:
        if number not in self._open:
            return
        mode = self._mode(number)
        if mode not in ("up", "handshake", "error_129"):
            return
        answer = self.answer(self._open[number][0], body, mode)
        if answer is not None:
            self.engine.received(number, IncomingResponse(identity, answer))
        if mode == "handshake":
            self.later(LATENCY, lambda: self._end(number, None))

    def answer(self, address: str, body: Any, mode: str) -> Message | None:
        """What a broker says; tests that need more override it."""
        if isinstance(body, ApiVersionsRequest):
            apis = [(18, 0, 4), (3, 0, 13), (1, 4, 17), (0, 3, 11), (2, 1, 11)]
            return ApiVersionsResponse(
                error_code=129 if mode == "error_129" else 0,
                api_keys=[ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in apis],
            )
        if isinstance(body, MetadataRequest):
            picture = self.pictures.get(address) or self.pictures.get("*") or ClusterPicture()
            return picture.answer(body)
        return cast("Message", body.RESPONSE())

    # What the cases look at

    def kinds(self, kind: str) -> list[Event]:
        return [e for e in self.events if e.kind == kind]

    def asks(self, api: str = "Metadata") -> list[Asked]:
        return [a for a in self.asked if a.api == api]

    def worst_second(self, since: float = 0.0) -> int:
        """The most dials in any one second."""
        times = [d.at for d in self.dials if d.at >= since]
        return max((sum(1 for u in times if t <= u < t + 1.0) for t in times), default=0)


def ask(world: World, address: str, body: Any, response: type[Message], timeout: float) -> Any:
    """A flow of one request to one broker."""
    return world.engine.ask(parse(address), body, response, world.now + timeout)


def until_topic(world: World, name: str, timeout: float) -> Generator[Wait, float, Any]:
    """A flow that waits for a topic."""
    return world.engine.topic(name, world.now + timeout)


def up(world: World, *addresses: str) -> None:
    for address in addresses:
        world.modes[address] = "up"
