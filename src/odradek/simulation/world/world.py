"""Simulate all that a run contains: virtual time, random numbers, names, addresses, clients.

In: a seed, clusters that listen, I/O hosts that connect. Out: a run that can be repeated exactly.
`World` is the `Environment` of simulated clusters and creates the I/O hosts of clients. Must not
read a real clock or open a real socket.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple, Protocol

from odradek.common.types import Address
from odradek.simulation.world.client_host import ClientHost
from odradek.simulation.world.environment import (
    Endpoint,
    Peer,
    Session,
    Timekeeper,
    Verdict,
)
from odradek.simulation.world.host import SimulatedHost
from odradek.simulation.world.link import LinkProfile, Mode, no_descriptor
from odradek.simulation.world.virtual_time import Timer, VirtualTime, derived_rng

EPOCH = 1_750_000_000.0
"""Wall-clock seconds at virtual time 0."""
PORT = 9092
DNS_DELAY = 0.002


class Dial(NamedTuple):
    """A connection attempt, recorded when it reaches its address."""

    at: float
    client: str
    ip: str
    port: int
    outcome: str
    """How the attempt ended: "accepted", "refused" or "dropped"."""


class HostMaker(Protocol):
    """Creates the I/O hosts of a simulation's clients."""

    def __call__(
        self,
        world: World,
        name: str,
        mode: Mode,
        profile: LinkProfile,
        *,
        background: bool,
        traced: bool = True,
    ) -> ClientHost: ...


class World:
    """A simulation: one virtual time, and all clusters, clients, names and connections in it."""

    make_host: HostMaker = SimulatedHost
    """Creates the I/O hosts of the simulation's clients."""

    def __init__(
        self,
        seed: int = 0,
        *,
        start: float = 0.0,
        link: LinkProfile | None = None,
        hosts: HostMaker | None = None,
    ) -> None:
        """Create a simulation; `hosts` creates the I/O hosts, by default `SimulatedHost`."""
        self.seed = seed
        if hosts is not None:
            self.make_host = hosts
        self.time = VirtualTime(start)
        self.link = link or LinkProfile()
        """Behaviour of connections of clients without a profile of their own."""
        self.first_link: dict[str, Any] = asdict(self.link)
        """Behaviour of connections at the beginning of the run."""
        self.dns: dict[str, list[str]] = {}
        """Addresses by name; tests may change them at any time. An unknown name doesn't resolve."""
        self.dns_silent: set[str] = set()
        """Names whose queries are never answered."""
        self.lookups: Counter[str] = Counter()
        self.clock_offset = 0.0
        """Difference between the clients' wall clocks and the true time, in seconds."""
        self.dials: list[Dial] = []
        self.hosts: dict[str, ClientHost] = {}
        self.hot_loops: list[str] = []
        """Clients that took too many steps in a virtual second; tests expect none."""
        self._listeners: dict[tuple[str, int], Endpoint] = {}
        self._black_holes: set[tuple[str, int]] = set()
        self._diverted: dict[tuple[str, int], Endpoint] = {}
        self._addresses = 0
        self._drivers: list[Timekeeper] = []

    # Time

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.time.now

    def epoch_time(self) -> float:
        """Return the brokers' wall-clock time, always right, in seconds since the epoch."""
        return EPOCH + self.time.now

    def wall_clock(self) -> float:
        """Return the clients' wall-clock time in seconds since the epoch."""
        return self.epoch_time() + self.clock_offset

    def at(self, when: float, action: Callable[[], object]) -> Timer:
        """Run an action at a virtual time, even if a blocking call is waiting then."""
        return self.time.at(when, lambda: (action(), None)[1])

    def after(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Run an action this many seconds from now."""
        return self.at(self.time.now + seconds, action)

    def run_until(self, when: float) -> None:
        """Run all actions that are due up to this virtual time."""
        self.time.run_until(when)

    def advance(self, seconds: float) -> None:
        """Run all actions that are due within the next `seconds`."""
        self.time.run_until(self.time.now + seconds)

    def run_while(self, condition: Callable[[], bool], limit: float) -> bool:
        """Advance while the condition holds, at most by `limit`; return False if it still holds."""
        end = self.time.now + limit
        while condition():
            due = self.time.next_at()
            if due is None or due > end:
                self.time.run_until(end)
                return not condition()
            self.time.fire_next()
        return True

    @contextmanager
    def driven(self, by: Timekeeper) -> Iterator[None]:
        """Let `by` advance time in this context, even while no call of a client waits."""
        self._drivers.append(by)
        try:
            yield
        finally:
            self._drivers.remove(by)

    @property
    def driver(self) -> Timekeeper | None:
        """The event loop that advances time now; None if clients' calls advance the time."""
        return self._drivers[-1] if self._drivers else None

    # Random numbers and clients

    def rng(self, name: str) -> random.Random:
        """Return a random generator that depends on the simulation's seed and this name only."""
        return derived_rng(self.seed, name)

    def host(
        self,
        name: str = "client",
        *,
        mode: Mode = "bytes",
        background: bool = True,
        link: LinkProfile | None = None,
        traced: bool = True,
    ) -> ClientHost:
        """Create the I/O host of another client; if the name is taken, append a number.

        With `traced=False` events aren't collected, which needs too much memory for many clients.
        """
        unique, number = name, 1
        while unique in self.hosts:
            number += 1
            unique = f"{name}-{number}"
        host = self.make_host(
            self, unique, mode, link or self.link, background=background, traced=traced
        )
        self.hosts[unique] = host
        return host

    # Faults of connections, names and clocks; a cluster's methods inject the faults of brokers

    def dns_change(self, name: str, addresses: Sequence[str]) -> None:
        """Resolve a name to these addresses from now on; an empty list makes lookups fail."""
        self.dns[name] = list(addresses)

    def dns_silence(self, name: str, on: bool = True) -> None:
        """Leave lookups of a name without a response, or answer them again."""
        (self.dns_silent.add if on else self.dns_silent.discard)(name)

    def change_link(self, client: str | None = None, **changes: Any) -> None:
        """Change latency, jitter, loss or bandwidth of the connections of one client or of all.

        The change applies to frames that are sent from now on, also on existing connections.
        """
        if client is None:
            self.link = replace(self.link, **changes)
        for host in self.hosts.values() if client is None else [self.hosts[client]]:
            host.profile = replace(host.profile, **changes)

    def clock_jump(self, seconds: float) -> None:
        """Set the clients' wall clock forward (or back).

        Monotonic time, which the engine uses, isn't affected.
        """
        self.clock_offset += seconds

    # Names and addresses

    def new_address(self) -> Address:
        """Return an unused numeric address."""
        self._addresses += 1
        high, low = divmod(self._addresses, 250)
        return Address(f"10.{high // 250}.{high % 250}.{low + 1}", PORT)

    def listen(self, address: Address, endpoint: Endpoint) -> None:
        """Let this endpoint accept the connections to an address."""
        self._listeners[address.host, address.port] = endpoint

    def unlisten(self, address: Address) -> None:
        """Refuse connections to an address from now on."""
        self._listeners.pop((address.host, address.port), None)

    def black_hole(self, address: Address, on: bool) -> None:
        """Drop connection attempts to an address, whether or not anything listens there."""
        place = (address.host, address.port)
        (self._black_holes.add if on else self._black_holes.discard)(place)

    def divert(
        self, address: Address, to: Endpoint | None, *, only: Endpoint | None = None
    ) -> None:
        """Connect an address to another endpoint from now on.

        None ends the diversion; with `only`, it ends only a diversion to this endpoint.
        """
        place = (address.host, address.port)
        if to is not None:
            self._diverted[place] = to
        elif only is None or self._diverted.get(place) is only:
            self._diverted.pop(place, None)

    def lead_nowhere_else(self) -> None:
        """End all diversions, so that every address connects to its own listener."""
        self._diverted.clear()

    def dialled(self, peer: Peer, ip: str, port: int) -> Session | Verdict:
        """Return the outcome of a connection attempt that arrives now, and record the attempt."""
        endpoint = self._diverted.get((ip, port)) or self._listeners.get((ip, port))
        found: Session | Verdict
        if (ip, port) in self._black_holes:
            found = Verdict.DROPPED
        else:
            found = Verdict.REFUSED if endpoint is None else endpoint.accept(peer)
        outcome = found.value if isinstance(found, Verdict) else "accepted"
        self.dials.append(Dial(self.time.now, peer.client, ip, port, outcome))
        return found

    def resolve(self, name: str, answer: Callable[[list[str] | BaseException], None]) -> None:
        """Look up a name; the result is the content of `dns` when the response is sent."""
        self.lookups[name] += 1

        def reply() -> None:
            if name in self.dns_silent:
                return
            if self.link.no_descriptors:
                answer(no_descriptor())
                return
            found = self.dns.get(name)
            answer(list(found) if found else OSError(-2, "Name or service not known"))

        self.time.after(DNS_DELAY, reply)
