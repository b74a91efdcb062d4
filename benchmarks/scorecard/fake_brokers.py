"""Scripted brokers on loopback sockets: what every library meets, and what is counted there.

In: a script's verbs (`serve`, `refuse`, `reset`, `black_hole` … of an address; `metadata_says` of a
cluster). Out: answers to ApiVersions, Metadata, Produce and InitProducerId, and a record of all
that came in, with times. They store nothing, check no sequence numbers, and promise no more than
a real broker would: versions are modest, so that every library finds common ground.
Must not: know which library dials.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from odradek.common import kafka_errors as errors
from odradek.common.errors import KafkaError
from odradek.protocol.headers import decode_request_header, encode_response
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.registry import request_class

LOOPBACK = "127.0.0.1"
API_VERSIONS, METADATA, PRODUCE, INIT_PRODUCER_ID = 18, 3, 0, 22
ADVERTISED = {
    PRODUCE: (3, 12),  # topic ids from 13 on
    1: (4, 12),  # Fetch: never answered; some libraries read the age of a broker from it
    2: (1, 7),  # ListOffsets: the same
    METADATA: (0, 13),
    10: (0, 4),  # FindCoordinator: the same
    API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 5),
}
NAMES_WHO_IS_MEANT = 5
"""From this version of ApiVersions on the request names the cluster and the broker (KIP-1242)."""
REBOOTSTRAP_REQUIRED_FROM = 13
"""Answers before this version of Metadata have no field for error 129."""
FILLERS = 8
RESET_AFTER = 0.005
"""Seconds. At once would be a race: some libraries would see a dial that failed, others one that
succeeded and then broke, and which of the two would be up to the kernel."""
_NO_LINGER = struct.pack("ii", 1, 0)


class Answer(Enum):
    """What Metadata says."""

    GOOD = "good"
    REBOOTSTRAP_REQUIRED = "error 129"
    NO_BROKERS = "an empty list of brokers"


@dataclass
class Cluster:
    """Brokers that know each other. Partition p of every topic is led by broker p modulo their
    number; topics exist as soon as someone asks for them."""

    cluster_id: str
    first_id: int
    addresses: list[Address]
    topic: str
    partitions: int = 1
    epoch: int = 0
    looks: bool = False
    """Its brokers speak ApiVersions 5 and look whom the client means (KIP-1242), as Kafka 4.4's."""
    says: Answer = Answer.GOOD
    delay: float = 0.0
    """Seconds that a Metadata answer takes."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def leader(self, partition: int) -> int:
        """Which broker leads."""
        return self.first_id + partition % len(self.addresses)

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        """The answer to a Metadata request."""
        if self.says is Answer.REBOOTSTRAP_REQUIRED and version >= REBOOTSTRAP_REQUIRED_FROM:
            return MetadataResponse(error_code=errors.RebootstrapRequiredError.code)
        lost = self.says is not Answer.GOOD
        response = MetadataResponse(cluster_id=self.cluster_id, controller_id=self.first_id)
        if self.says is not Answer.NO_BROKERS:
            response.brokers = [
                MetadataResponseBroker(self.first_id + i, a.host, a.port)
                for i, a in enumerate(self.addresses)
            ]
        asked = request.topics
        if asked is None or (version == 0 and not asked):
            names = [self.topic]
        else:
            by_id = {self.topic_id(self.topic): self.topic}
            names = [t.name or by_id.get(t.topic_id, self.topic) for t in asked]
        response.topics = [self._topic(name, lost=lost) for name in names]
        return response

    def topic_id(self, name: str) -> bytes:
        """Topics keep their id when brokers are replaced; another cluster's have others."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.cluster_id}/{name}").bytes

    def _topic(self, name: str, *, lost: bool) -> MetadataResponseTopic:
        topic = MetadataResponseTopic(0, name, self.topic_id(name))
        for partition in range(self.partitions if name == self.topic else 1):
            leader = -1 if lost else self.leader(partition)
            code = errors.LeaderNotAvailableError.code if lost else 0
            isr = [] if lost else [leader]
            topic.partitions.append(
                MetadataResponsePartition(code, partition, leader, self.epoch, isr or [1], isr)
            )
        return topic

    def produce(self, broker_id: int, request: ProduceRequest) -> tuple[ProduceResponse, int]:
        """The answer to a Produce request, and how many records were taken."""
        response, taken = ProduceResponse(), 0
        for topic in request.topic_data:
            answer = TopicProduceResponse(topic.name, topic.topic_id)
            for data in topic.partition_data:
                place = (topic.name, data.index)
                if self.says is not Answer.GOOD or self.leader(data.index) != broker_id:
                    code = errors.NotLeaderOrFollowerError.code
                    answer.partition_responses.append(
                        PartitionProduceResponse(data.index, code, -1)
                    )
                    continue
                base = self.offsets.get(place, 0)
                count = record_count(data.records)
                self.offsets[place] = base + count
                taken += count
                answer.partition_responses.append(PartitionProduceResponse(data.index, 0, base))
            response.responses.append(answer)
        return response, taken


def record_count(records: Any) -> int:
    """How many records the batches (format 2) of one partition hold, by their headers."""
    view, at, total = memoryview(records or b""), 0, 0
    while at + 61 <= len(view):
        total += int.from_bytes(view[at + 57 : at + 61], "big")
        at += 12 + int.from_bytes(view[at + 8 : at + 12], "big")
    return total


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that came in."""

    at: float
    what: str
    """dial, Metadata, Produce, ApiVersions …"""
    address: str
    cluster: str | None = None
    broker: int | None = None
    records: int = 0
    version: int = -1


class Network:
    """All addresses of one cell and what was seen at them."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.addresses: list[Address] = []
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    def address(self, name: str) -> Address:
        """A new address, which refuses dials."""
        address = Address(self, name)
        self.addresses.append(address)
        return address

    def cluster(
        self, cluster_id: str, first_id: int, brokers: int, topic: str, **more: Any
    ) -> Cluster:
        """A cluster whose brokers listen."""
        addresses = [self.address(f"broker {first_id + i}") for i in range(brokers)]
        cluster = Cluster(cluster_id, first_id, addresses, topic, **more)
        for i, address in enumerate(addresses):
            address.serve(cluster, first_id + i)
        return cluster

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something on the side; a connection that is gone before it is set up is no matter."""
        task = self.loop.create_task(work)
        self._tasks.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and not isinstance(task.exception(), OSError | None):
                self.loop.call_exception_handler({"message": "accept", "task": task})

        task.add_done_callback(ended)

    def note(self, what: str, address: str, **more: Any) -> None:
        """Keep one observation."""
        self.seen.append(Seen(self.loop.time(), what, address, **more))

    def count(self, what: str, since: float, until: float | None = None) -> int:
        """How many observations of one kind fell into a span of time."""
        return sum(
            s.what == what and s.at >= since and (until is None or s.at < until) for s in self.seen
        )

    def first(self, since: float, match: Callable[[Seen], bool]) -> float | None:
        """Seconds from `since` to the first observation that matches."""
        found = (s.at - since for s in self.seen if s.at >= since and match(s))
        return next(found, None)

    def connections(self) -> int:
        """How many connections are open now."""
        return sum(len(address.connections) for address in self.addresses)

    def close(self) -> None:
        """Close everything."""
        for address in self.addresses:
            address.close()


class Address:
    """A place on the network, and what answers there."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.host = LOOPBACK
        self.connections: set[_Connection] = set()
        self._accepts: Callable[[socket.socket], None] | None = None
        self._fillers: list[socket.socket] = []
        self._sock = self._bound(0)
        self.port: int = self._sock.getsockname()[1]

    def serve(self, cluster: Cluster, broker_id: int, *, close_when_ready: bool = False) -> None:
        """Be a broker; `close_when_ready`: answer ApiVersions, then close."""

        def accept(sock: socket.socket) -> None:
            def protocol() -> _Connection:
                return _Connection(self, cluster, broker_id, close_when_ready=close_when_ready)

            self.network.spawn(self.network.loop.connect_accepted_socket(protocol, sock))

        self._become(accept)

    def refuse(self) -> None:
        """Reset what is open and refuse dials."""
        self._become(None)

    def reset(self) -> None:
        """Reset what is open; accept dials, then reset them, as a proxy without a backend does."""

        def accept(sock: socket.socket) -> None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.network.loop.call_later(RESET_AFTER, sock.close)

        self._become(accept)

    def black_hole(self) -> None:
        """Reset what is open; dials get no answer: the queue of a listener that never accepts
        is filled, and a full queue drops what comes."""
        self._become(None)
        self._sock.listen(0)
        for _ in range(FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((self.host, self.port))
            self._fillers.append(filler)

    def close(self) -> None:
        """End everything here."""
        self._end()
        self._sock.close()

    def _become(self, accepts: Callable[[socket.socket], None] | None) -> None:
        self._end()
        self._sock.close()
        self._sock = self._bound(self.port)
        self._accepts = accepts
        if accepts is not None:
            self._sock.listen(512)
            self.network.loop.add_reader(self._sock, self._accept)

    def _end(self) -> None:
        self.network.loop.remove_reader(self._sock)
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        for connection in list(self.connections):
            connection.reset()

    def _accept(self) -> None:
        for _ in range(64):
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.network.note("dial", self.name)
            if self._accepts is not None:
                self._accepts(sock)

    def _bound(self, port: int) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((self.host, port))
        return sock


class _Connection(asyncio.Protocol):
    """One accepted connection. Requests are answered in order, as brokers do."""

    def __init__(
        self, address: Address, cluster: Cluster, broker_id: int, *, close_when_ready: bool
    ) -> None:
        self._address, self._cluster, self._broker_id = address, cluster, broker_id
        self._close_when_ready = close_when_ready
        self._received = bytearray()
        self._waiting = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._address.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._address.connections.discard(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._read()

    def reset(self) -> None:
        """Abort the connection: the client gets a reset."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()
            self._transport = None
        self._address.connections.discard(self)

    def _read(self) -> None:
        while self._transport is not None and not self._waiting and len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            try:
                self._answer(frame)
            except KafkaError as error:
                self._note(f"unreadable: {error}")
                self.reset()

    def _answer(self, frame: bytes) -> None:
        api_key, version, correlation_id, _, position = decode_request_header(frame)
        kind = request_class(api_key)
        self._note(kind.API_NAME, version=version)
        if api_key == API_VERSIONS:
            named = None
            if version >= NAMES_WHO_IS_MEANT and self._cluster.looks:
                named = ApiVersionsRequest.decode(frame, version, position)
            self._send(*self._api_versions(named, version), correlation_id)
        elif self._close_when_ready:
            self._close()
        elif api_key == METADATA:
            asked = MetadataRequest.decode(frame, version, position)
            answer = self._cluster.metadata(asked, version)
            if self._cluster.delay:
                self._waiting = True
                self._address.network.loop.call_later(
                    self._cluster.delay, self._send_late, answer, version, correlation_id
                )
            else:
                self._send(answer, version, correlation_id)
        elif api_key == PRODUCE:
            request = ProduceRequest.decode(frame, version, position)
            response, taken = self._cluster.produce(self._broker_id, request)
            if taken:
                self._note("taken", records=taken)
            if request.acks != 0:
                self._send(response, version, correlation_id)
        elif api_key == INIT_PRODUCER_ID:
            self._send(InitProducerIdResponse(producer_id=4711), version, correlation_id)
        else:
            self._note(f"not answered: {kind.API_NAME}")
            self.reset()
        if self._close_when_ready and api_key == API_VERSIONS:
            self._close()

    def _api_versions(
        self, named: ApiVersionsRequest | None, version: int
    ) -> tuple[ApiVersionsResponse, int]:
        """The table of versions, in the layout of the asked version or, from the future, of 0; or
        that the client means somebody else.
        """
        newest = NAMES_WHO_IS_MEANT if self._cluster.looks else ADVERTISED[API_VERSIONS][1]
        spans = {**ADVERTISED, API_VERSIONS: (0, newest)}
        table = [ApiVersion(key, *span) for key, span in sorted(spans.items())]
        if version > ApiVersionsRequest.MAX_VERSION:
            code = errors.UnsupportedVersionError.code
            return ApiVersionsResponse(error_code=code, api_keys=table), 0
        cluster, broker = (None, -1) if named is None else (named.cluster_id, named.node_id)
        if cluster not in (None, self._cluster.cluster_id) or broker not in (-1, self._broker_id):
            self._note("told 129")
            return ApiVersionsResponse(error_code=errors.RebootstrapRequiredError.code), version
        return ApiVersionsResponse(api_keys=table), version

    def _send(self, message: Message, version: int, correlation_id: int) -> None:
        if self._transport is not None:
            self._transport.writelines(encode_response(message, version, correlation_id))

    def _send_late(self, message: Message, version: int, correlation_id: int) -> None:
        self._waiting = False
        self._send(message, version, correlation_id)
        self._read()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._address.connections.discard(self)

    def _note(self, what: str, **more: Any) -> None:
        self._address.network.note(
            what,
            self._address.name,
            cluster=self._cluster.cluster_id,
            broker=self._broker_id,
            **more,
        )
