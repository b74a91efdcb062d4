"""Simulated brokers that belong to the cluster of a case's picture, and the errors of a case.

In: a picture of a cluster, the mode of an address, codes for the next answers. Out: a cluster of
the simulation in that state, and a broker of it at the address.
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

# Topics go by name up to Produce 11 and Fetch 12.
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
"""Seconds that a connection or a look-up takes; a request takes twice as long."""
NO_ID = -1
"""Of a broker whose address isn't in its own picture."""


def parse(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


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
    hints: bool = False
    """Whether those that don't lead say who does (KIP-951)."""

    def cluster(
        self, world: World, logs: dict[tuple[bytes, int], PartitionLog]
    ) -> SimulatedCluster:
        """Make a simulated cluster of it, whose partitions have these logs."""
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
        """Put the errors of the whole and of topics into an answer; leave out unwanted hints."""
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
    """Error codes for the next answers, by API and by address, broker or partition."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], list[int]] = {}

    def set(self, api: str, where: str, codes: list[int]) -> None:
        """Answer so from now on, one code after the other; after the last one all is well."""
        self._codes[api, where] = list(codes)

    def next(self, api: str, *places: str) -> int:
        """The code for this answer; the first place that has any decides."""
        for place in (*places, "*"):
            codes = self._codes.get((api, place))
            if codes:
                return codes.pop(0)
        return 0

    def any_left(self, api: str) -> bool:
        """Whether an answer to this API will be an error."""
        return any(codes for (name, _), codes in self._codes.items() if name == api)

    def amend(self, address: str, response: Any) -> None:
        """Put errors into an answer: of the whole, or of its partitions."""
        api = response.API_NAME
        if api not in ("Fetch", "ListOffsets", "Produce"):
            if code := self.next(api, address):
                mark(response, code)
            return
        for part, place in parts_of(response):
            if code := self.next(api, place, address):
                part.error_code = code


def parts_of(response: Any) -> list[tuple[Any, str]]:
    """Return the partitions of an answer, each with its name."""
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
    """The broker that listens at one ip:port."""

    def __init__(self, world: World, place: str, address: str) -> None:
        self.world = world
        self.place = place
        self._picture: ClusterPicture | None = None
        super().__init__(ClusterPicture().cluster(world, {}), NO_ID, parse(address), ())
        self.late = [LateRequests(NO_ID, 0.0, 0)]  # so that each request is looked at
        self._due: dict[int, float] = {}
        """When requests that have arrived may be worked on, by their objects' ids."""
        self.register()
        self.settle()

    @property
    def spoken(self) -> Mapping[int, tuple[int, int]]:
        """The APIs that it knows, with their versions."""
        return {**self.cluster.versions, **self.world.spoken}

    def misled(self, asked: ApiVersionsRequest) -> bool:
        """Never refuse a client that meant another broker, as before KIP-1242."""
        return False

    @property
    def mode(self) -> str:
        """How it behaves; a mode of its ip comes first."""
        modes = self.world.modes
        found: str = modes.get(self.place) or modes.get(str(self.address), "refused")
        return found

    def settle(self) -> None:
        """Be as mode and picture say."""
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
        """Note when a request that arrives may be worked on; no connection is stranded."""
        handshake = isinstance(request.body, ApiVersionsRequest)
        delays = self.world.handshakes if handshake else self.world.delays
        self._due[id(request)] = self.time.now + delays.get(str(self.address), 0.0) + LATENCY
        return 0.0

    def processing_time(self) -> float:
        """Nothing but the delay of each request."""
        return 0.0

    def work(self, session: BrokerSession, request: ReceivedRequest) -> None:
        """Work on a request when its delay is over."""
        self.time.at(self._due.pop(id(request)), lambda: self._work(session, request))

    def _work(self, session: BrokerSession, request: ReceivedRequest) -> None:
        """Do what a request asks, unless a case has another answer."""
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
            body.max_wait_ms = 0  # an error isn't waited for
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
                response.session_id = 0  # each fetch asks for all that it is about
            if response is not None and picture is not None:
                picture.amend(response)
                self.world.errors.amend(str(self.address), response)
            reply(response)

        return amended
