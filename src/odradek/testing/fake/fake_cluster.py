"""`FakeCluster`: a Kafka cluster without Kafka, on loopback sockets, for any client.

In: a number of brokers, topics, verbs that hurt them. Out: `bootstrap_servers`, and brokers that
speak Kafka's protocol: topics, groups of both protocols and transactions included. They are the
simulation's (`odradek.simulation`), in real time, in one thread. Nothing is written to a disk, and
the oldest records go when there are too many. Must not: need Java, or our own clients.

    with FakeCluster(topics=["flights"]) as cluster:
        producer = odradek.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

from odradek.common.errors import BrokerError
from odradek.common.errors.kafka import ERRORS
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.record.columns import Row
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

    `topics` are created at once: names (of one partition each), "name:partitions", or a mapping of
    names to partitions. `port` fixes the bootstrap address, which leads to any broker that lives.
    With `auto_create_topics` topics come to be when they are first asked for. When all records
    together need more than `retention_bytes` of memory, the oldest are deleted.

    Verbs may be called from any thread and return when they have taken effect. A broker that is
    killed or paused keeps its leaderships until the controller gives it up, `session_timeout`
    seconds later. Members of KIP-848 groups hear of changes with their heartbeats, which are
    `heartbeat_interval` seconds apart (5 in Kafka).

    Errors: `ValueError` and `IndexError` for what can't be, `RuntimeError` for a verb of a cluster
    that isn't open, `ClusterStartError` where it can't be opened.
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
        """Start all brokers; they answer when this returns."""
        if self._server is not None:
            raise RuntimeError("the cluster is open already")
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
        """End all connections, free all ports, forget all records."""
        server, self._server, self._made = self._server, None, None
        if server is not None:
            server.__exit__()

    # What is there

    @property
    def bootstrap_servers(self) -> str:
        """The address that leads to any broker that lives: "127.0.0.1:port"."""
        return self._cluster.bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as clients hear it."""
        return self._cluster_id

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """1 to the number of brokers."""
        return tuple(range(1, self._count + 1))

    @property
    def addresses(self) -> dict[int, str]:
        """Where each broker listens (or did, before it was killed), by its id."""
        return self._call(lambda: {i: str(b.address) for i, b in self._cluster.brokers.items()})

    def requests(self, broker: int | None = None) -> Counter[str]:
        """How many requests one broker, or all of them, have worked on, by the API's name."""
        chosen = self._chosen(broker)
        return self._call(lambda: sum((b.requests for b in chosen), Counter()))

    def records(self, topic: str, partition: int = 0) -> list[Row]:
        """A partition's records: (offset, timestamp in ms, its type, key, value, headers)."""
        return self._call(lambda: self._partition(topic, partition).log.rows())

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of a partition's leader; -1 for none."""
        return self._call(lambda: self._partition(topic, partition).leader)

    # Topics

    def create_topic(
        self, topic: str, partitions: int = 1, replication_factor: int | None = None
    ) -> None:
        """Create a topic; by default with as many replicas as there are brokers, at most 3."""
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"partitions must be 1 to {MOST_PARTITIONS}, not {partitions}")
        if replication_factor is not None and not 1 <= replication_factor <= self._count:
            raise ValueError(f"replication_factor must be 1 to {self._count}")

        def create() -> None:
            _check_name(topic)
            if topic in self._cluster.topics:
                raise ValueError(f"there is a topic {topic!r} already")
            self._cluster.create_topic(topic, partitions, replication_factor)

        self._call(create)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""

        def delete() -> None:
            self._partition(topic, 0)
            self._cluster.delete_topic(topic)

        self._call(delete)

    # What happens to brokers

    def kill(self, i: int) -> None:
        """Kill a broker: its connections end, what it hadn't acknowledged may be lost."""
        self._verb(i, self._cluster.crash)

    def stop(self, i: int) -> None:
        """Stop a broker in order: it hands its leaderships over first."""
        self._verb(i, self._cluster.stop)

    def start(self, i: int) -> None:
        """Start a broker that was killed or stopped, at its address, with its records."""
        broker = self._verb(i, self._cluster.restart)
        self._until(lambda: broker.registered or broker.paused)

    def pause(self, i: int) -> None:
        """Stop a broker as SIGSTOP does: dials succeed, nothing is answered until `resume`."""
        self._verb(i, self._cluster.pause, alive=True)

    def resume(self, i: int) -> None:
        """Let a paused broker go on; what it was sent meanwhile is worked on now."""
        broker = self._verb(i, self._cluster.go_on, alive=True)
        self._until(lambda: broker.registered or broker.paused)

    def move(self, i: int) -> None:
        """Stop a broker in order and start it at another port; its old one refuses dials."""
        broker = self._verb(i, self._cluster.stop)
        self._call(lambda: self._cluster.restart(i, new_address=True))
        self._until(lambda: broker.registered or broker.paused)

    def refuse(
        self, api: str, error: ErrorName, times: int | None = 1, *, broker: int | None = None
    ) -> None:
        """Answer the next `times` requests of an API (None: all) with one of Kafka's errors.

        `error` is its name as in Kafka's protocol ("NOT_LEADER_OR_FOLLOWER"), its code, or a class
        of `odradek.errors`. What was asked isn't done. By one broker, or each by itself.
        """
        if api not in REFUSABLE:
            raise ValueError(f"{api!r} can't be refused; these can: {', '.join(REFUSABLE)}")
        if times is not None and times < 1:
            raise ValueError(f"times must be 1 or more, or None for always, not {times}")
        code, chosen = _code(error), self._chosen(broker)

        def inject() -> None:
            for one in chosen:
                one.injections.append(Injection(api, code, ALWAYS if times is None else times))

        self._call(inject)

    def delay(self, api: str, seconds: float, *, broker: int | None = None) -> None:
        """Let answers of an API be late by `seconds` seconds, from one broker or all; 0 ends it."""
        if api not in DELAYED:
            raise ValueError(f"{api!r} can't be delayed; these can: {', '.join(sorted(DELAYED))}")
        if not 0 <= seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"seconds must be 0 or more, not {seconds}")
        chosen, key = self._chosen(broker), DELAYED[api]

        def late() -> None:
            for one in chosen:
                one.delay(key, seconds)

        self._call(late)

    def heal(self) -> None:
        """End all of this: every broker lives and answers, nothing is refused or late."""
        self._call(self._cluster.heal)
        brokers = self._cluster.brokers.values()
        self._until(lambda: all(b.registered for b in brokers))

    # Inside

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
                raise RuntimeError(f"broker {i} doesn't run; start({i}) starts it")
            verb(i)

        self._call(act)
        return broker

    def _until(self, true: Callable[[], bool]) -> None:
        """Wait for what brokers tell the controller, which takes a moment."""
        deadline = time.monotonic() + PATIENCE
        while not self._call(true):
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("the cluster doesn't come to rest")
            self._changed.clear()

    def _partition(self, topic: str, partition: int) -> SimulatedPartition:
        found = self._cluster.topics.get(topic)
        if found is None:
            raise ValueError(f"there is no topic {topic!r}")
        if not 0 <= partition < len(found.partitions):
            raise IndexError(f"{topic} has partitions 0 to {len(found.partitions) - 1}")
        return found.partitions[partition]


def _partitions_of(topics: Topics) -> dict[str, int]:
    """Topics by name, from any of the ways to say them. Raises `ValueError`."""
    if isinstance(topics, str):
        raise ValueError(f"topics must be a list of names, not the text {topics!r}")
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
        raise ValueError(f"{topic!r} isn't a topic's name") from error


def _code(error: ErrorName) -> int:
    """The code of an error that is named in one of three ways. Raises `ValueError`."""
    if isinstance(error, str):
        code = next((code for code, kind in ERRORS.items() if kind.name == error.upper()), None)
    elif isinstance(error, int):
        code = error if error in ERRORS else None
    else:
        code = error.code
    if code is None:
        raise ValueError(f"{error!r} isn't one of Kafka's errors, as NOT_LEADER_OR_FOLLOWER is")
    return code
