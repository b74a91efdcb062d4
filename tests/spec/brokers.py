"""Simulate brokers whose cluster state and errors a test case defines.

In: the state of a cluster, the mode of an address, error codes for the next responses. Out: a
cluster of the simulation in that state, with a broker at the address.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.common.types import Address, TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.produce import ProduceResponse
from odradek.simulation import Misbehaviour, SimulatedCluster
from odradek.simulation.brokers.broker import BrokerSession, LateRequests, SimulatedBroker
from odradek.simulation.brokers.injected_errors import mark
from odradek.simulation.brokers.sasl_listener import Hostile
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.logs.topics import SimulatedPartition, SimulatedTopic
from odradek.simulation.world.environment import ReceivedRequest

if TYPE_CHECKING:
    from tests.spec.world import World

# Produce up to version 11 and Fetch up to version 12 identify topics by name.
SPOKEN = {
    0: (3, 11), 1: (4, 12), 2: (1, 11), 3: (0, 13), 17: (0, 1), 18: (0, 5), 19: (2, 7), 20: (1, 6),
    22: (0, 4), 36: (0, 2), 60: (0, 1),
}  # fmt: skip
WITH_HINTS = {**SPOKEN, 1: (4, 16)}
FAULTS = {
    **dict.fromkeys(("up", "refused", "error_129", "no_password", "sasl_mute"), Misbehaviour.NONE),
    "black_hole": Misbehaviour.BLACK_HOLE,
    "reset": Misbehaviour.ACCEPT_RESET,
    "mute": Misbehaviour.SILENT,
    "handshake": Misbehaviour.READY_CLOSE,
}
LATENCY = 0.001
"""Seconds that a connection attempt or a name lookup takes; a request takes twice as long."""
NO_ID = -1
"""Broker id of a broker whose address isn't in its own cluster state."""


def parse(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


@dataclass
class ClusterPicture:
    """State of a cluster as its brokers report it."""

    cluster_id: str | None = "cluster-1"
    brokers: dict[int, str] = field(default_factory=dict)
    topics: dict[str, list[int]] = field(default_factory=dict)
    """Leader of each partition, by topic."""
    epochs: dict[str, int] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    error_code: int = 0
    throttle_ms: int = 0
    topic_errors: dict[str, int] = field(default_factory=dict)
    hints: bool = False
    """Whether brokers that aren't the leader name the current leader (KIP-951)."""

    def cluster(
        self, world: World, logs: dict[tuple[bytes, int], PartitionLog]
    ) -> SimulatedCluster:
        """Create a simulated cluster in this state, whose partitions have these logs."""
        made = SimulatedCluster(
            world.simulation, 0, self.cluster_id or "", bootstrap_name=None, start=False
        )
        made.cluster_id = self.cluster_id  # type: ignore[assignment]  # a case may leave it out
        made.versions = dict(WITH_HINTS if self.hints else SPOKEN)
        made.replication_delay = 0.0
        made.sasl = world.sasl
        for number, address in self.brokers.items():
            made.brokers[number] = SimulatedBroker(made, number, parse(address), ())
            made.brokers[number].alive = True
            made.brokers[number].register()
        for name, leaders in self.topics.items():
            topic_id = self.ids.get(name, name.encode().ljust(16, b"\1")[:16])
            partitions = [
                SimulatedPartition(
                    i,
                    [leader] if leader in self.brokers else [],
                    leader,
                    self.epochs.get(name, 1),
                    logs.setdefault((name.encode() + topic_id, i), PartitionLog()),
                )
                for i, leader in enumerate(leaders)
            ]
            made.topics[name] = SimulatedTopic(name, topic_id, partitions)
            made._topics_by_id[topic_id] = made.topics[name]
        return made

    def amend(self, response: Any) -> None:
        """Put the scripted errors into a metadata response and remove leader hints if disabled."""
        if isinstance(response, MetadataResponse):
            response.error_code, response.throttle_time_ms = self.error_code, self.throttle_ms
            response.topics = [
                MetadataResponseTopic(self.topic_errors[t.name or ""], t.name)
                if t.name in self.topic_errors
                else t
                for t in response.topics
            ]
        elif isinstance(response, FetchResponse | ProduceResponse) and not self.hints:
            response.node_endpoints = []
            for part, _ in parts_of(response):
                part.current_leader = type(part.current_leader)()


class ScriptedErrors:
    """Error codes for the next responses, by API and by address, broker or partition."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], list[int]] = {}

    def set(self, api: str, where: str, codes: list[int]) -> None:
        """Set the error codes of the next responses; responses after them have no error."""
        self._codes[api, where] = list(codes)

    def next(self, api: str, *places: str) -> int:
        """Return the next error code of the first of these addresses or partitions that has one."""
        for place in (*places, "*"):
            codes = self._codes.get((api, place))
            if codes:
                return codes.pop(0)
        return 0

    def any_left(self, api: str) -> bool:
        """Return whether a response of this API is still going to be an error."""
        return any(codes for (name, _), codes in self._codes.items() if name == api)

    def amend(self, address: str, response: Any) -> None:
        """Put error codes into a response: at its top level, or into its partitions."""
        api = response.API_NAME
        if api not in ("Fetch", "ListOffsets", "Produce"):
            if code := self.next(api, address):
                mark(response, code)
            return
        for part, place in parts_of(response):
            if code := self.next(api, place, address):
                part.error_code = code


def parts_of(response: Any) -> list[tuple[Any, str]]:
    """Return the partitions of a response, each with its name."""
    found = []
    topics: list[Any] = getattr(response, "topics", None) or getattr(response, "responses", [])
    for topic in topics:
        name = topic.topic if isinstance(response, FetchResponse) else topic.name
        for part in getattr(topic, "partition_responses", None) or topic.partitions:
            produced = isinstance(response, ProduceResponse)
            index = part.index if produced else part.partition_index
            found.append((part, f"{name}-{index}"))
    return found


class ScriptedBroker(SimulatedBroker):
    """Broker that listens at one ip:port."""

    def __init__(self, world: World, place: str, address: str) -> None:
        self.world = world
        self.place = place
        self._picture: ClusterPicture | None = None
        super().__init__(ClusterPicture().cluster(world, {}), NO_ID, parse(address), ())
        self.late = [LateRequests(NO_ID, 0.0, 0)]  # so that late_by() is called
        self._due: dict[int, float] = {}
        """When the broker may process each received request, by the id() of the request."""
        self.register()
        self.settle()

    @property
    def spoken(self) -> Mapping[int, tuple[int, int]]:
        """Supported API versions."""
        return {**self.cluster.versions, **self.world.spoken}

    def misled(self, asked: ApiVersionsRequest) -> bool:
        """Return False: brokers before KIP-1242 never detect a misrouted client."""
        return False

    @property
    def mode(self) -> str:
        """Fault mode; a mode of the IP address takes precedence over one of the host name."""
        modes = self.world.modes
        found: str = modes.get(self.place) or modes.get(str(self.address), "refused")
        return found

    def settle(self) -> None:
        """Apply the current mode and cluster state."""
        mode, name = self.mode, str(self.address)
        found = self.world.pictures.get(name) or self.world.pictures.get("*") or ClusterPicture()
        if found != self._picture:
            self._picture = copy.deepcopy(found)
            self.cluster = found.cluster(self.world, self.world.logs)
            self.id = next((i for i, a in found.brokers.items() if a == name), NO_ID)
        self.alive = mode != "refused"
        fault = FAULTS[mode]
        if fault is not self.fault:
            self.set_fault(fault)
        if self.world.sasl is not None:
            refusing = self.world.sasl.refusing
            (refusing.add if mode == "no_password" else refusing.discard)(self.id)
            if mode == "sasl_mute":
                self.world.sasl.hostile = Hostile.SILENT

    def late_by(self, request: ReceivedRequest) -> float:
        """Note when a request may be processed and return no delay of the connection."""
        handshake = isinstance(request.body, ApiVersionsRequest)
        delays = self.world.handshakes if handshake else self.world.delays
        self._due[id(request)] = self.time.now + delays.get(str(self.address), 0.0) + LATENCY
        return 0.0

    def processing_time(self) -> float:
        """Return 0: only the delay of each request counts."""
        return 0.0

    def work(self, session: BrokerSession, request: ReceivedRequest) -> None:
        """Process a request when its delay is over."""
        self.time.at(self._due.pop(id(request)), lambda: self._work(session, request))

    def _work(self, session: BrokerSession, request: ReceivedRequest) -> None:
        """Process a request, unless the case defines another response."""
        self.settle()
        if session.ended or not self.alive:
            return
        name, body = str(self.address), request.body
        scripted = self.world.answer(name, body)
        if isinstance(body, ApiVersionsRequest):
            code = 129 if self.mode == "error_129" else self.world.errors.next("ApiVersions", name)
            scripted = ApiVersionsResponse(code) if code else scripted
        elif isinstance(body, FetchRequest) and self.world.errors.any_left("Fetch"):
            body = copy.copy(body)
            body.max_wait_ms = 0  # an error response doesn't wait for records
            request = replace(request, body=body)
        if scripted is not None:
            answer = None if scripted == "silence" else scripted
            session.answer(request, answer, request.version)
        else:
            super().work(session, request)

    def _reply(
        self, session: BrokerSession, request: ReceivedRequest
    ) -> Callable[[Message | None], None]:
        reply, picture = super()._reply(session, request), self._picture

        def amended(response: Message | None) -> None:
            if isinstance(response, FetchResponse):
                response.session_id = 0  # no fetch session: each fetch lists all of its partitions
            if response is not None and picture is not None:
                picture.amend(response)
                self.world.errors.amend(str(self.address), response)
            reply(response)

        return amended
