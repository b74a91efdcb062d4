"""`FakeCluster`: simulated Kafka brokers on loopback sockets, for any client.

In: a number of brokers, topics, calls that cause faults. Out: `bootstrap_servers`, and brokers that
speak Kafka's protocol, with topics, groups of both protocols and transactions. They are the
simulation's brokers (`odradek.simulation`), in real time, in one thread. Nothing is written to
disk, and the oldest records are deleted above a limit. Must not: need Java, or our own clients.

    with FakeCluster(topics=["flights"]) as cluster:
        producer = odradek.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

from odradek.common.errors import BrokerError
from odradek.common.errors.kafka import ERRORS
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.record.columns import Row
from odradek.runtime.system_clock import monotonic
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.broker_handlers import HANDLERS, check_topic_name
from odradek.simulation.brokers.front_door import SimulatedFrontDoor
from odradek.simulation.brokers.injected_errors import REFUSABLE, Injection
from odradek.simulation.logs.topics import SimulatedPartition
from odradek.testing.errors import ClusterStartError
from odradek.testing.fake.loopback import LoopbackServer
from odradek.testing.fake.memory_limits import MOST_PARTITIONS, MemoryLimits

T = TypeVar("T")
ErrorName = str | int | type[BrokerError]
Topics = Iterable[str] | Mapping[str, int]

MOST_BROKERS = 100
ALWAYS = 1 << 60
PATIENCE = 10.0
DELAYED = {ApiVersionsRequest.API_NAME: ApiVersionsRequest.API_KEY} | {
    kind.API_NAME: kind.API_KEY for kind in HANDLERS
}


class FakeCluster:
    """A cluster of `brokers` simulated brokers (ids from 1) on loopback; a context manager.

    `topics`: topics to create: names (of one partition each), "name:partitions", or a mapping of
    names to partitions.
    `port`: the port of the bootstrap address, which leads to any running broker; 0: any free one.
    `auto_create_topics`: create topics when they are first requested.
    `session_timeout`: seconds after which a killed or paused broker loses its leaderships.
    `heartbeat_interval`: seconds between heartbeats of KIP-848 group members, which are
    notified of new assignments by heartbeats (5 in Kafka).
    `retention_bytes`: limit of the memory for all records; beyond it the oldest are deleted.

    Methods may be called from any thread and return when they have taken effect. They raise
    `ValueError` or `IndexError` for invalid arguments and `RuntimeError` if the cluster isn't open;
    opening it raises `ClusterStartError` if it fails.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        topics: Topics = (),
        port: int = 0,
        auto_create_topics: bool = False,
        session_timeout: float = 2.0,
        heartbeat_interval: float = 0.5,
        retention_bytes: int = 256 << 20,
        cluster_id: str = "fake-cluster-0001",
        seed: int = 0,
    ) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise ValueError(f"brokers must be 1 to {MOST_BROKERS}, not {brokers}")
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be 0 (any free one) to 65535, not {port}")
        for name, value in (
            ("session_timeout", session_timeout),
            ("heartbeat_interval", heartbeat_interval),
        ):
            if not 0.01 <= value <= 3600:
                raise ValueError(f"{name} must be 0.01 to 3600 seconds, not {value}")
        self._count = brokers
        self._topics = _partitions_of(topics)
        self._port = port
        self._auto_create = auto_create_topics
        self._session_timeout = session_timeout
        self._heartbeat_interval = heartbeat_interval
        self._limits = MemoryLimits(retention_bytes)
        self._cluster_id = cluster_id
        self._seed = seed
        self._server: LoopbackServer | None = None
        self._made: SimulatedCluster | None = None
        self._changed = threading.Event()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Start all brokers and wait until they answer."""
        if self._server is not None:
            raise RuntimeError("the cluster is already open")
        server = LoopbackServer(self._seed)
        server.__enter__()
        self._server = server
        try:
            self._made = server.call(self._make)
        except OSError as error:
            self.close()
            raise ClusterStartError(f"port {self._port}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise
        return self

    def _make(self) -> SimulatedCluster:
        server = self._opened
        door = SimulatedFrontDoor(server.address(self._port), server.rng("front door"))
        cluster = SimulatedCluster(
            server,
            self._count,
            self._cluster_id,
            bootstrap_name=None,
            auto_create=self._auto_create,
            front_door=door,
        )
        cluster.session_timeout = self._session_timeout
        cluster.group_settings.consumer_heartbeat_interval = self._heartbeat_interval
        door.lead_to(cluster.brokers)
        server.listen(door.address, door)
        for name, partitions in self._topics.items():
            cluster.create_topic(name, partitions)
        cluster.on_change[self._changed.set] = None
        self._limits.watch(cluster)
        return cluster

    def close(self) -> None:
        """Close all connections and ports, and drop all records."""
        server, self._server, self._made = self._server, None, None
        if server is not None:
            server.__exit__()

    # Addresses and topics

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap address, which leads to any running broker: "127.0.0.1:port"."""
        return self._cluster.bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The cluster id that clients receive."""
        return self._cluster_id

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The broker ids: 1 to the number of brokers."""
        return tuple(range(1, self._count + 1))

    @property
    def addresses(self) -> dict[int, str]:
        """The address of each broker by id, including brokers that aren't running."""
        return self._call(lambda: {i: str(b.address) for i, b in self._cluster.brokers.items()})

    def requests(self, broker: int | None = None) -> Counter[str]:
        """Return the numbers of requests handled by one broker, or by all, by API name."""
        chosen = self._chosen(broker)
        return self._call(lambda: sum((b.requests for b in chosen), Counter()))

    def records(self, topic: str, partition: int = 0) -> list[Row]:
        """Return the records as (offset, timestamp in ms, timestamp type, key, value, headers)."""
        return self._call(lambda: self._partition(topic, partition).log.rows())

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader; -1 if it has none."""
        return self._call(lambda: self._partition(topic, partition).leader)

    # Topics

    def create_topic(
        self, topic: str, partitions: int = 1, replication_factor: int | None = None
    ) -> None:
        """Create a topic; the default replication factor is the number of brokers, at most 3."""
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"partitions must be 1 to {MOST_PARTITIONS}, not {partitions}")
        if replication_factor is not None and not 1 <= replication_factor <= self._count:
            raise ValueError(f"replication_factor must be 1 to {self._count}")

        def create() -> None:
            _check_name(topic)
            if topic in self._cluster.topics:
                raise ValueError(f"topic {topic!r} already exists")
            self._cluster.create_topic(topic, partitions, replication_factor)

        self._call(create)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""

        def delete() -> None:
            self._partition(topic, 0)
            self._cluster.delete_topic(topic)

        self._call(delete)

    # Faults of brokers

    def kill(self, i: int) -> None:
        """Kill a broker: its connections break, and unacknowledged records may be lost."""
        self._verb(i, self._cluster.crash)

    def stop(self, i: int) -> None:
        """Shut a broker down cleanly: other brokers become leaders of its partitions first."""
        self._verb(i, self._cluster.stop)

    def start(self, i: int) -> None:
        """Start a killed or stopped broker at its address, with its records."""
        broker = self._verb(i, self._cluster.restart)
        self._until(lambda: broker.registered or broker.paused)

    def pause(self, i: int) -> None:
        """Pause a broker like SIGSTOP: it accepts connections but doesn't answer until `resume`."""
        self._verb(i, self._cluster.pause, alive=True)

    def resume(self, i: int) -> None:
        """Resume a paused broker, which then handles the requests that it received meanwhile."""
        broker = self._verb(i, self._cluster.go_on, alive=True)
        self._until(lambda: broker.registered or broker.paused)

    def move(self, i: int) -> None:
        """Shut a broker down and start it at another port; its old port refuses connections."""
        broker = self._verb(i, self._cluster.stop)
        self._call(lambda: self._cluster.restart(i, new_address=True))
        self._until(lambda: broker.registered or broker.paused)

    def refuse(
        self, api: str, error: ErrorName, times: int | None = 1, *, broker: int | None = None
    ) -> None:
        """Answer the next `times` requests of an API (None: all) with one of Kafka's errors.

        `error` is its name as in Kafka's protocol ("NOT_LEADER_OR_FOLLOWER"), its code, or a class
        of `odradek.errors`. The requests aren't executed. With `broker`, only that
        broker answers with the error; otherwise each broker counts its own requests.
        """
        if api not in REFUSABLE:
            raise ValueError(f"{api!r} can't be refused; use one of {', '.join(REFUSABLE)}")
        if times is not None and times < 1:
            raise ValueError(f"times must be 1 or more, or None for always, not {times}")
        code, chosen = _code(error), self._chosen(broker)

        def inject() -> None:
            for one in chosen:
                one.injections.append(Injection(api, code, ALWAYS if times is None else times))

        self._call(inject)

    def delay(self, api: str, seconds: float, *, broker: int | None = None) -> None:
        """Delay answers of an API by `seconds` seconds, at one broker or all; 0 ends the delay."""
        if api not in DELAYED:
            raise ValueError(f"{api!r} can't be delayed; use one of {', '.join(sorted(DELAYED))}")
        if not 0 <= seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"seconds must be 0 or more, not {seconds}")
        chosen, key = self._chosen(broker), DELAYED[api]

        def late() -> None:
            for one in chosen:
                one.delay(key, seconds)

        self._call(late)

    def heal(self) -> None:
        """End all faults: every broker runs and answers without errors or delays."""
        self._call(self._cluster.heal)
        brokers = self._cluster.brokers.values()
        self._until(lambda: all(b.registered for b in brokers))

    # Internals

    @property
    def _opened(self) -> LoopbackServer:
        if self._server is None:
            raise RuntimeError("the cluster is not open")
        return self._server

    @property
    def _cluster(self) -> SimulatedCluster:
        if self._made is None:
            raise RuntimeError("the cluster is not open")
        return self._made

    def _call(self, action: Callable[[], T]) -> T:
        return self._opened.call(action)

    def _broker(self, i: int) -> SimulatedBroker:
        if i not in self._cluster.brokers:
            raise IndexError(f"there is no broker {i}; the ids are 1 to {self._count}")
        return self._cluster.brokers[i]

    def _chosen(self, broker: int | None) -> list[SimulatedBroker]:
        if broker is None:
            return list(self._cluster.brokers.values())
        return [self._broker(broker)]

    def _verb(self, i: int, verb: Callable[[int], None], *, alive: bool = False) -> SimulatedBroker:
        broker = self._broker(i)

        def act() -> None:
            if alive and not broker.alive:
                raise RuntimeError(f"broker {i} isn't running: call start({i})")
            verb(i)

        self._call(act)
        return broker

    def _until(self, true: Callable[[], bool]) -> None:
        """Wait until a condition holds: brokers and the controller need a moment after a change."""
        deadline = monotonic() + PATIENCE
        while not self._call(true):
            if not self._changed.wait(max(0.0, deadline - monotonic())):
                raise TimeoutError("the cluster's topics or leaders keep changing")
            self._changed.clear()

    def _partition(self, topic: str, partition: int) -> SimulatedPartition:
        found = self._cluster.topics.get(topic)
        if found is None:
            raise ValueError(f"there is no topic {topic!r}")
        if not 0 <= partition < len(found.partitions):
            raise IndexError(f"{topic} has partitions 0 to {len(found.partitions) - 1}")
        return found.partitions[partition]


def _partitions_of(topics: Topics) -> dict[str, int]:
    """Return the number of partitions by topic name; raise `ValueError` for invalid topics."""
    if isinstance(topics, str):
        raise ValueError(f"topics must be a list of names, not the string {topics!r}")
    if isinstance(topics, Mapping):
        found = dict(topics)
    else:
        found = {}
        for topic in topics:
            name, colon, count = topic.partition(":")
            if colon and not count.isdecimal():
                raise ValueError(f"{topic!r}: partitions must be a number")
            found[name] = int(count) if colon else 1
    for name, partitions in found.items():
        _check_name(name)
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"{name}: partitions must be 1 to {MOST_PARTITIONS}, not {partitions}")
    return found


def _check_name(topic: str) -> None:
    try:
        check_topic_name(topic)
    except BrokerError as error:
        raise ValueError(f"{topic!r} isn't a valid topic name") from error


def _code(error: ErrorName) -> int:
    """Return the code of an error from its name, code or class; raise `ValueError` if unknown."""
    if isinstance(error, str):
        code = next((code for code, kind in ERRORS.items() if kind.name == error.upper()), None)
    elif isinstance(error, int):
        code = error if error in ERRORS else None
    else:
        code = error.code
    if code is None:
        raise ValueError(f"{error!r} isn't the name of a Kafka error, like NOT_LEADER_OR_FOLLOWER")
    return code
