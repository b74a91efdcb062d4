"""An in-memory cluster for the protocol that `odradek.spark` uses, and a simulated clock.

The fakes replace the *client*, not only the brokers: other tests cover its network behaviour.
Tests set offsets, topic ids, outages and lost records.

They exist besides the simulation because they are faster (planning a batch takes 0.2 ms, not
8 ms) and allow offsets of eleven digits, 100,000 partitions, and an outage between two requests.
The tests in tests/simulation/test_spark_* use the real client and simulated brokers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.registry_server import RegistryServer, registry_server
from tests.unit.spark.memory_producer import MemoryLog

from odradek.clients.consumer.fetching.offsets import ListedOffset
from odradek.clients.consumer.records import NoSuchOffsetError, OffsetAndTimestamp
from odradek.clients.descriptions import PartitionDescription, TopicDescription
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.serialization import SchemaRegistryClient
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import STREAM, SourceOptions, parse_options

ID_1, ID_2, ID_3 = (str(UUID(int=n)) for n in (1, 2, 3))
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient({"schema.registry.url": server.url})


class JumpingClock:
    """A clock that only advances when the code under test pauses."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """Function to call after each pause of the code under test."""

    def now(self) -> float:
        return self.at

    def date_ms(self) -> int:
        return int(self.at * 1000)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds
        self.meanwhile()


@dataclass
class MemoryCluster:
    """A cluster; `topics` contains (id, {partition: (begin, end)}), `calls` the clients' calls."""

    clock: JumpingClock
    cluster: str = "cluster-A"
    topics: dict[str, tuple[str, dict[int, tuple[int, int]]]] = field(default_factory=dict)
    down_until: float = 0.0
    calls: list[str] = field(default_factory=list)
    configs: list[Mapping[str, str]] = field(default_factory=list)
    dropped: int = 0
    gaps: dict[TopicPartition, set[int]] = field(default_factory=dict)
    refused: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    """Errors by partition; polling a partition raises its error, at most once per second."""
    wild: dict[int, int] = field(default_factory=dict)
    """Timestamps by offset, too large to be stored in microseconds."""
    stuck: bool = False
    waits_through: bool = False
    """Whether calls wait for the end of an outage that ends within their timeout."""
    per_poll: int = 100
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Leader epochs by partition; for others the epoch is -1, as old brokers answer."""
    epoch_ends: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """End offsets by partition and leader epoch; by default the log end offset."""

    def connect(self, config: Mapping[str, str]) -> Any:
        self.configs.append(dict(config))
        return MemoryConsumer(self)

    def drop(self, client: object) -> None:
        self.dropped += 1

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        return self.topics[tp.topic][1][tp.partition]


def described(tp: TopicPartition, epochs: Mapping[TopicPartition, int]) -> PartitionDescription:
    return PartitionDescription(tp.partition, 0, epochs.get(tp, 0), (0,), (0,))


class MemoryConsumer:
    """A consumer of a `MemoryCluster`."""

    ended: KafkaError | None = None

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._until: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._backoffs: dict[TopicPartition, float] = {}
        self.closed = False
        self.known_ids: dict[str, str] = {}
        """Topic ids given to the new client as a hint; a real client keeps them for minutes."""

    def _ask(self, what: str, timeout: float | None) -> None:
        self._cluster.calls.append(what)
        clock, back = self._cluster.clock, self._cluster.down_until
        if clock.now() >= back:
            return
        if self._cluster.waits_through and back <= clock.now() + (timeout or 0.0):
            clock.at = back
            return
        clock.at += timeout or 0.0
        raise KafkaTimeoutError(f"{what}: nobody answers")

    def cluster_id(self, timeout: float | None = None) -> str:
        return self._cluster.cluster

    def describe(
        self, topics: Collection[str], timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        self._ask("describe", timeout)
        for name in topics:
            if name not in self._cluster.topics:
                raise UnknownTopicOrPartitionError(f"topic {name}")
        return {
            name: TopicDescription(
                name,
                topic_id,
                False,
                tuple(described(TopicPartition(name, p), self._cluster.epochs) for p in partitions),
            )
            for name, (topic_id, partitions) in self._cluster.topics.items()
            if name in topics
        }

    def list_topics(self, timeout: float | None = None) -> list[str]:
        self._ask("list", timeout)
        return sorted(self._cluster.topics)

    def bootstrap_hint(self) -> Mapping[str, Any]:
        topics = {
            name: {"id": UUID(topic_id).hex, "partitions": [[0, 1]] * len(partitions)}
            for name, (topic_id, partitions) in self._cluster.topics.items()
        }
        return {"cluster_id": self._cluster.cluster, "brokers": [[0, "h", 1]], "topics": topics}

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        self._ask("beginning", timeout)
        return {tp: self._cluster.bounds(tp)[0] for tp in partitions}

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        self._ask("end", timeout)
        return {tp: self._cluster.bounds(tp)[1] for tp in partitions}

    # Methods that the driver's `LogEnds` calls

    def has_other_ids(self, topic_ids: Mapping[str, bytes]) -> bool:
        known = self.known_ids
        return any(known.get(name, of.hex()) != of.hex() for name, of in topic_ids.items())

    @property
    def _engine(self) -> MemoryConsumer:
        return self

    def _call(self, flow: Callable[[float], Any], timeout: float | None, what: str) -> Any:
        return flow(math.inf if timeout is None else timeout)

    isolation = 0

    def fetches_by_name(self, timeout: float) -> bool:
        return False

    def log_ends(
        self, partitions: Collection[TopicPartition], timeout: float, *, stable: bool
    ) -> dict[TopicPartition, ListedOffset]:
        epochs = self._cluster.epochs
        found = self.end_offsets(partitions, timeout)
        return {tp: ListedOffset(end, -1, epochs.get(tp, -1)) for tp, end in found.items()}

    def descriptions_by_each(
        self, topics: Collection[str], timeout: float
    ) -> tuple[int, list[dict[str, TopicDescription | None]]]:
        self._ask("descriptions", timeout)
        found: dict[str, TopicDescription | None] = dict.fromkeys(topics)
        found |= self.describe(topics & self._cluster.topics.keys(), timeout)
        return 1, [found]

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, ListedOffset]:
        self._ask("epochs", timeout)
        return {
            tp: ListedOffset(
                self._cluster.epoch_ends.get((tp, epoch), self._cluster.bounds(tp)[1]), -1, epoch
            )
            for tp, epoch in epochs.items()
        }

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offsets as if the timestamp of record n of each partition were second n."""
        self._ask("times", timeout)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, time_ms in times.items():
            begin, end = self._cluster.bounds(tp)
            offset = max(begin, -(-time_ms // 1000))
            found[tp] = OffsetAndTimestamp(offset, time_ms) if offset < end else None
        return found

    def assign(
        self,
        partitions: Collection[TopicPartition],
        *,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._positions = dict.fromkeys(partitions, 0)
        self._until = dict(until or {})

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset

    def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        return self._positions[tp]

    def poll_arrow(
        self, timeout: float = 1.0, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch | None:
        self._cluster.calls.append("poll")
        clock = self._cluster.clock
        if clock.now() < self._cluster.down_until or self._cluster.stuck:
            clock.at += timeout or 0.0
            return None
        readable = {tp: at for tp, at in self._positions.items() if tp not in self._cluster.refused}
        for tp in self._positions.keys() - readable.keys():
            if self._backoffs.get(tp, 0.0) <= clock.now():
                self._backoffs[tp] = clock.now() + 1.0
                raise self._cluster.refused[tp]
        if not readable:
            clock.at += timeout or 0.0
            return None
        # A poll returns records of one partition: the first one with unread records.
        tp, at = next(
            (found for found in readable.items() if found[1] < self._until.get(found[0], 0)),
            next(iter(readable.items())),
        )
        begin, end = self._cluster.bounds(tp)
        if not begin <= at <= end:
            raise NoSuchOffsetError(tp, at, begin, end)
        stop = min(at + self._cluster.per_poll, end, self._until.get(tp, end))
        self._positions[tp] = stop
        offsets = [o for o in range(at, stop) if o not in self._cluster.gaps.get(tp, ())]
        if not offsets:
            return None
        everything: dict[str, Any] = {
            "key": pa.array([None if o % 2 else b"k" for o in offsets], pa.binary()),
            "value": pa.array([f"{o}".encode() for o in offsets], pa.binary()),
            "topic": pa.repeat(tp.topic, len(offsets)),
            "partition": pa.repeat(pa.scalar(tp.partition, pa.int32()), len(offsets)),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(
                [None if o in self._cluster.wild else o * 1000 for o in offsets],
                pa.timestamp("us", "UTC"),
            ),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), len(offsets)),
            "headers": pa.array(
                [None if o % 2 else [("h", b"1")] for o in offsets],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
        return pa.RecordBatch.from_pydict({name: everything[name] for name in columns or ()})

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        self._ask("poll", timeout)
        [(_, at)] = self._positions.items()
        return [SimpleNamespace(timestamp_ms=self._cluster.wild.get(at, at * 1000))]

    def explain(self) -> str:
        return "the explanation of the client"

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture(params=[0, 2])
def log(clock: JumpingClock, request: Any) -> MemoryLog:
    """Return a cluster's log; each test runs once for each supported transaction.version."""
    return MemoryLog(clock, version=request.param)


@pytest.fixture
def cluster(clock: JumpingClock) -> MemoryCluster:
    return MemoryCluster(clock, topics={"t": (ID_1, {0: (0, 100), 1: (10, 20)})})


def options(query: str = STREAM, **given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    base |= {"startingOffsets": "earliest"}
    if given.keys() & {"assign", "subscribePattern"}:
        del base["subscribe"]
    if any("Timestamp" in name for name in given):
        del base["startingOffsets"]
    return parse_options({**base, **given}, query)


@pytest.fixture
def tracker(cluster: MemoryCluster, clock: JumpingClock) -> Any:
    """Return a function that creates a tracker: `tracker(option="value")`."""

    def make(query: str = STREAM, **given: str) -> OffsetTracker:
        return OffsetTracker(options(query, **given), cluster, clock)

    return make


def following(tracker: OffsetTracker, start: Any) -> dict[str, Any]:
    """Return the next end offset, converted to JSON text and back, as Spark stores it."""
    found: dict[str, Any] = json.loads(json.dumps(tracker.latest(start)))
    return found
