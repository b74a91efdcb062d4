"""Simulate a cluster and its clients in virtual time for one test: `KafkaSimulation`.

In: faults that a test causes, clients of the test and of the code under test. Out: the behaviour of
a real cluster, in virtual seconds, and a `Violation` if Odradek itself breaks one of its rules
meanwhile. Must not: open a socket, or let a client of the test open one unless the test allows it.

Everything runs in one thread: a call that waits (`poll`, `result`, `flush`) advances virtual time,
and with it all clients and brokers, until the call ends. The event loop of coroutines (`run`,
`new_loop`) does the same, also for clients that are called in its jobs (`job_host`). Code under
test that waits in its own threads needs a real cluster (`kafka_cluster`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from odradek.api.admin import Admin
from odradek.api.base import Client, on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.config import ADMIN, CONSUMER, PRODUCER, Config, parse_address
from odradek.common.errors import ConfigurationError, IllegalStateError, KafkaError
from odradek.common.types import Address, K_co, V_co
from odradek.runtime.hosts.host_sources import hosts_from
from odradek.runtime.hosts.record_future import RecordFuture
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.checkers.invariants import Checkers, Violation
from odradek.simulation.checkers.wire_checkers import Wire
from odradek.simulation.world.client_host import ClientHost
from odradek.simulation.world.link import LinkProfile
from odradek.simulation.world.world import World
from odradek.testing.virtual.job_host import JobHost, in_loop
from odradek.testing.virtual.virtual_loop import HOUR, VirtualLoop

if TYPE_CHECKING:
    from odradek.api.client_options import AdminOptions, ConsumerOptions, ProducerOptions

C = TypeVar("C", bound=Client[Any])
T = TypeVar("T")

_open: list[KafkaSimulation] = []
LAST_EVENTS = 20
"""Number of last events of each client that `report` shows."""
CLOSE_TIMEOUT = 5.0
MOMENT = 0.001


class KafkaSimulation:
    """A simulated Kafka cluster in virtual time, as yielded by the fixture `kafka_simulation`.

    All methods of `SimulatedCluster` are available on it: `move()`, `crash(1)`,
    `create_topic("flights", partitions=3)`, `records("flights", 0)` … Times are virtual seconds.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        seed: int = 1,
        checkers: bool = True,
        link: LinkProfile | None = None,
        limit: float = HOUR,
        **cluster: Any,
    ) -> None:
        """Create the cluster; `cluster` takes the options of `SimulatedCluster`.

        `limit`: how many virtual seconds a coroutine may run, unless `run` sets another limit.
        """
        self.seed = seed
        self.limit = limit
        self.world = World(seed, link=link, hosts=JobHost)
        self.cluster = SimulatedCluster(self.world, brokers, **cluster)
        self.checkers = Checkers(self.world)
        self.clients: list[Client[Any]] = []
        """The clients that `producer`, `consumer` and `admin` have created."""
        self.allow_real_clients = False
        """Whether clients with other bootstrap addresses may be created; they use real sockets."""
        self._checks = checkers
        self._wires: list[Wire] = []
        self._served = set(self._addresses(self.cluster.bootstrap_servers))
        self._clusters = [self.cluster]
        self._producer: Producer | None = None
        self._thread = threading.get_ident()
        self._ended = False
        self._stack = ExitStack()

    def __getattr__(self, name: str) -> Any:
        """Return all other attributes from the simulated cluster."""
        if name.startswith("_") or "cluster" not in self.__dict__:
            raise AttributeError(name)
        try:
            return getattr(self.cluster, name)
        except AttributeError:
            raise AttributeError(
                f"neither kafka_simulation nor its cluster has an attribute {name!r}"
            ) from None

    # Opening and closing

    def __enter__(self) -> Self:
        _open.append(self)
        self._stack.callback(_open.remove, self)
        self._stack.enter_context(hosts_from(self._host_of))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients, including those of the code under test, without calling `verify`."""
        self._stack.close()
        self._ended = True
        self.world.advance(MOMENT)  # leave an instant at which time was stuck
        for client in self.clients:
            with suppress(KafkaError):  # a test may leave undelivered records
                client.close(CLOSE_TIMEOUT)
        for host in self.world.hosts.values():
            if not host.closed:  # a client that the code under test has left open
                host.close(self.world.now)

    def verify(self) -> None:
        """Raise `Violation` if a client broke one of the checked protocol invariants."""
        if not self._checks:
            return
        for wire in self._wires:
            if wire.violations:
                raise wire.violations[0]
        self.checkers.verify()

    # Clients

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap address for clients; it never changes."""
        return self.cluster.bootstrap_servers

    def producer(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        link: LinkProfile | None = None,
        background: bool = True,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """Create an `odradek.Producer` in the simulation; it is closed when the test ends.

        `name`: the producer's name in reports (default: "producer"). `link`: latency, loss and
        other properties of the producer's connections. `background`: whether the producer works
        between calls, as a real producer does.
        """
        given = self._config(config, options)
        host = self._new_host(Config(PRODUCER, given), name, link, background=background)
        return self._made(on_host(host, Producer, given))

    def consumer(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        link: LinkProfile | None = None,
        background: bool | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Create an `odradek.Consumer`, as `producer` does.

        Without a `group.id` the consumer only works during its calls, unless `background` is true.
        """
        given = self._config(config, options)
        checked = Config(CONSUMER, given)
        goes_on = _goes_on(checked) if background is None else background
        host = self._new_host(checked, name, link, background=goes_on)
        return self._made(on_host(host, Consumer, given))

    def admin(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        link: LinkProfile | None = None,
        background: bool = False,
        **options: Unpack[AdminOptions],
    ) -> Admin:
        """Create an `odradek.Admin`, as `producer` does; it only works during its calls."""
        given = self._config(config, options)
        host = self._new_host(Config(ADMIN, given), name, link, background=background)
        return self._made(on_host(host, Admin, given))

    def answer_for(self, bootstrap_servers: str) -> None:
        """Make this cluster answer at other bootstrap addresses, for example those of your program.

        Code under test then needs no change: `odradek.Producer({"bootstrap.servers":
        "kafka.prod.example:9092"})` creates a client in the simulation.
        """
        door = self.cluster.front_door
        for address in self._addresses(bootstrap_servers):
            ip = address.host
            if ":" not in ip and not ip.replace(".", "").isdecimal():
                self.world.dns[address.host] = [door.address.host]
                ip = door.address.host
            place = Address(ip, address.port)
            if place != door.address:
                self.world.listen(place, door)
            self._served.add(address)

    def new_cluster(self, name: str, brokers: int = 3, **cluster: Any) -> SimulatedCluster:
        """Create another cluster in this simulation, at `name.simulated:9092`."""
        options = {
            "cluster_id": f"simulated-cluster-{name}",
            "bootstrap_name": f"{name}.simulated",
            **cluster,
        }
        made = SimulatedCluster(self.world, brokers, name=name, **options)
        self._clusters.append(made)
        self._served.update(self._addresses(made.bootstrap_servers))
        return made

    # Records, for arranging and asserting

    def send(self, topic: str, value: bytes | None, **fields: Any) -> RecordFuture:
        """Send a record with the simulation's own producer, without waiting for the result.

        `fields`: `key`, `headers`, `partition`, `timestamp_ms`.
        """
        if self._producer is None:
            self._producer = self.producer(name="kafka_simulation")
        return self._producer.send(topic, value, **fields)

    def produce(self, topic: str, values: Iterable[bytes | None], **fields: Any) -> None:
        """Send records and wait until they are acknowledged."""
        for future in [self.send(topic, value, **fields) for value in values]:
            future.result()

    def values(self, topic: str) -> list[bytes | None]:
        """Return the values of a topic's committed records, ordered by partition and offset."""
        partitions = range(len(self.cluster.topics[topic].partitions))
        return [row[4] for p in partitions for row in self.cluster.records(topic, p)]

    def poll_for(
        self, consumer: Consumer[K_co, V_co], seconds: float
    ) -> list[ConsumerRecord[K_co, V_co]]:
        """Return all records that a consumer returns within `seconds` virtual seconds."""
        end = self.now + seconds
        records: list[ConsumerRecord[K_co, V_co]] = []
        while self.now < end:
            records += consumer.poll(end - self.now)
        return records

    # Time

    @property
    def now(self) -> float:
        """Virtual seconds since the test began."""
        return self.world.now

    def advance(self, seconds: float) -> None:
        """Advance virtual time; all clients and brokers work meanwhile."""
        self.world.advance(seconds)

    sleep = advance
    """Advance virtual time; pass it to `monkeypatch.setattr("time.sleep", …)` for code that
    sleeps."""

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Run an action after some virtual seconds, also while a client's call is waiting.

        The action must not wait for anything itself.
        """
        self.world.after(seconds, lambda: None if self._ended else action())

    def every(self, seconds: float, action: Callable[[], object]) -> Callable[[], None]:
        """Run an action every `seconds` virtual seconds; return a function that stops it."""
        ended: list[bool] = []

        def again() -> None:
            if not ended and not self._ended:
                action()
                self.world.after(seconds, again)

        self.world.after(seconds, again)
        return lambda: ended.append(True)

    def run_while(self, condition: Callable[[], bool], limit: float = 60.0) -> bool:
        """Advance virtual time while a condition is true, for at most `limit` seconds.

        Returns whether the condition became false.
        """
        return self.world.run_while(condition, limit)

    # asyncio

    def run(
        self,
        main: Coroutine[Any, Any, T],
        *,
        limit: float | None = None,
        debug: bool | None = None,
    ) -> T:
        """Run a coroutine in virtual time, as `asyncio.run` does, and return its result.

        `limit`: how many virtual seconds it may take (default: the simulation's `limit`). `debug`:
        asyncio's debug mode, in which slow callbacks are measured in virtual time.

        Raises `StuckError` when the limit has passed, or when tasks wait for something that can't
        happen; the error lists the waiting tasks and their places in the code.
        """
        with asyncio.Runner(debug=debug, loop_factory=lambda: self.new_loop(limit)) as runner:
            return runner.run(main)

    def new_loop(self, limit: float | None = None) -> VirtualLoop:
        """Return an event loop in virtual time, for code that takes a loop factory.

        `limit`: how many virtual seconds one run of the loop may take, as for `run`.
        """
        return VirtualLoop(self.world, limit=self.limit if limit is None else limit)

    # State for assertions and messages

    def report(self) -> str:
        """Return a report for a failed test: the seed, the clients and their last events."""
        lines = [
            f"seed {self.seed}, virtual time {self.now:.3f} s; the clients of this simulation:"
        ]
        lines += [str(client.explain()) for client in self.clients]
        for host in self.world.hosts.values():
            events = host.trace.events[-LAST_EVENTS:]
            lines.append(f"the last {len(events)} events of {host.name}:")
            lines += [f"  {event.at:9.3f} {event}" for event in events]
        return "\n".join(lines)

    # Internals

    def _config(
        self, config: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = {
            str(k).replace("_", "."): v for k, v in [*(config or {}).items(), *options.items()]
        }
        given.setdefault("bootstrap.servers", self.bootstrap_servers)
        return given

    def _made(self, client: C) -> C:
        self.clients.append(client)
        return client

    def _new_host(
        self,
        config: Config,
        name: str | None = None,
        link: LinkProfile | None = None,
        *,
        background: bool,
    ) -> ClientHost:
        def make() -> ClientHost:
            host = self.world.host(name or config.client, link=link, background=background)
            wire = Wire(self.world.time, config)
            host.watcher = wire
            self._wires.append(wire)

            def watch() -> None:  # runs once the engine exists
                if host.events is not None:
                    host.events.listen(wire)
                    self.checkers.watch(host.events, config, wire.is_held)

            host.defer(watch)
            return host

        if threading.get_ident() == self._thread:
            return make()
        try:
            return in_loop(self.world, make)
        except IllegalStateError as error:
            raise ConfigurationError(f"this client can't be created: {error}") from None

    def _host_of(self, config: Config) -> ClientHost | None:
        """Return the simulated I/O host for a client that the code under test creates."""
        servers = config["bootstrap.servers"]
        if any(self._is_ours(address) for address in servers):
            return self._new_host(config, background=_goes_on(config))
        if self.allow_real_clients:
            return None
        names = ", ".join(map(str, servers))
        raise ConfigurationError(
            f"kafka_simulation doesn't serve {names}, so this client would leave the simulation. "
            f"Use the address {self.bootstrap_servers}, call "
            f"kafka_simulation.answer_for({names!r}), or set kafka_simulation.allow_real_clients "
            "= True to allow real connections."
        )

    def _is_ours(self, address: Address) -> bool:
        if address in self._served or address.host in self.world.dns:
            return True
        return any(
            address in (cluster.front_door.address, *(b.address for b in cluster.brokers.values()))
            for cluster in self._clusters
        )

    @staticmethod
    def _addresses(bootstrap_servers: str) -> list[Address]:
        return [parse_address("bootstrap.servers", s.strip()) for s in bootstrap_servers.split(",")]


def latest_simulation() -> KafkaSimulation | None:
    """Return the simulation that was opened last and is still open, or None."""
    return _open[-1] if _open else None


def _goes_on(config: Config) -> bool:
    """Return whether a real client of this kind also works between its calls."""
    member = config.client == CONSUMER and config["group.id"] is not None
    return config.client == PRODUCER or member


__all__ = ["KafkaSimulation", "Violation"]
