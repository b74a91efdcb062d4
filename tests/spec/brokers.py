"""What scripted brokers answer: a picture of a cluster, and errors that a case wants.

In: requests as objects. Out: responses, or None for one that is never answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from odradek.common.types import Address, TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.fetch import LeaderIdAndEpoch as FetchLeader
from odradek.protocol.messages.fetch import NodeEndpoint as FetchEndpoint
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

# Up to Produce 11 and Fetch 12 topics go by name, which is all that most scripts need.
SPOKEN = [
    (18, 0, 4), (3, 0, 13), (0, 3, 11), (1, 4, 12), (2, 1, 11), (22, 0, 4), (60, 0, 1),
    (19, 2, 7), (20, 1, 6), (17, 0, 1), (36, 0, 2),
]  # fmt: skip


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

    def id_of(self, name: str) -> bytes:
        """A topic's id."""
        return self.ids.get(name, name.encode().ljust(16, b"\1")[:16])

    def topic_of(self, topic_id: bytes) -> str:
        """The topic with this id; one without a name for an id of another time."""
        return next((name for name in self.topics if self.id_of(name) == topic_id), "")

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name in self.topic_errors:
            return MetadataResponseTopic(error_code=self.topic_errors[name], name=name)
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.id_of(name),
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

    def describe(self) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            cluster_id=self.cluster_id or "",
            controller_id=min(self.brokers, default=-1),
            brokers=[
                DescribeClusterBroker(broker_id=i, host=parse(a).host, port=parse(a).port)
                for i, a in self.brokers.items()
            ],
        )

    def leader(self, topic: str, partition: int) -> LeaderIdAndEpoch:
        """What an answer says of the leader: nothing without hints."""
        if not self.hints:
            return LeaderIdAndEpoch()
        return LeaderIdAndEpoch(self.topics[topic][partition], self.epochs.get(topic, 1))

    def endpoints(self) -> list[NodeEndpoint]:
        """The brokers that hints may name."""
        brokers = {i: parse(a) for i, a in self.brokers.items() if self.hints}
        return [NodeEndpoint(i, a.host, a.port) for i, a in brokers.items()]

    def leads(self, address: str, topic: str, partition: int) -> bool:
        """Whether the broker at an address leads a partition."""
        leaders = self.topics.get(topic, [])
        return partition < len(leaders) and self.brokers.get(leaders[partition]) == address


class ScriptedErrors:
    """Error codes for the next answers, by API and by address, broker or partition."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], list[int]] = {}

    def set(self, api: str, where: str, codes: list[int]) -> None:
        """Answer so from now on, one code after the other; after the last one all is well."""
        self._codes[api, where] = list(codes)

    def any_left(self, api: str) -> bool:
        """Whether an answer to this API will be an error."""
        return any(codes for (name, _), codes in self._codes.items() if name == api)

    def next(self, api: str, *places: str) -> int:
        """The code for this answer; the first place that has any decides."""
        for place in (*places, "*"):
            codes = self._codes.get((api, place))
            if codes:
                return codes.pop(0)
        return 0


FETCH_WITH_ENDPOINTS = (1, 4, 16)
"""What brokers speak that give hints to consumers."""


def api_versions(error_code: int, *, hints: bool = False) -> ApiVersionsResponse:
    spoken = [*SPOKEN, FETCH_WITH_ENDPOINTS] if hints else SPOKEN
    newest = {key: (key, first, last) for key, first, last in spoken}
    return ApiVersionsResponse(
        error_code=error_code, api_keys=[ApiVersion(*one) for one in newest.values()]
    )


def answer(
    address: str, body: Any, mode: str, picture: ClusterPicture, errors: ScriptedErrors
) -> Message | None:
    """What the broker at an address says to a request."""
    if isinstance(body, SaslHandshakeRequest):
        return None if mode == "sasl_mute" else SaslHandshakeResponse(0, ["PLAIN"])
    if isinstance(body, SaslAuthenticateRequest):
        return SaslAuthenticateResponse(58 if mode == "no_password" else 0)
    if isinstance(body, ApiVersionsRequest):
        code = errors.next("ApiVersions", address)
        return api_versions(129 if mode == "error_129" else code, hints=picture.hints)
    if isinstance(body, MetadataRequest):
        return picture.answer(body)
    if isinstance(body, DescribeClusterRequest):
        described = picture.describe()
        described.error_code = errors.next("DescribeCluster", address)
        return described
    if isinstance(body, InitProducerIdRequest):
        code = errors.next("InitProducerId", address)
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0)
    if isinstance(body, ProduceRequest):
        return _produce(address, body, picture, errors)
    if isinstance(body, FetchRequest):
        return _fetch(address, body, picture, errors)
    if isinstance(body, ListOffsetsRequest):
        return _list_offsets(address, body, picture, errors)
    return cast("Message", body.RESPONSE())


def _code(
    api: str, address: str, topic: str, partition: int, of: ClusterPicture, errors: ScriptedErrors
) -> int:
    code = errors.next(api, f"{topic}-{partition}", address)
    return code or (0 if of.leads(address, topic, partition) else 6)


def _produce(
    address: str, body: ProduceRequest, picture: ClusterPicture, errors: ScriptedErrors
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=t.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=p.index,
                        error_code=_code("Produce", address, t.name, p.index, picture, errors),
                        current_leader=picture.leader(t.name, p.index),
                    )
                    for p in t.partition_data
                ],
            )
            for t in body.topic_data
        ],
        node_endpoints=picture.endpoints(),
    )


def _fetch(
    address: str, body: FetchRequest, picture: ClusterPicture, errors: ScriptedErrors
) -> FetchResponse:
    topics = [(t.topic or picture.topic_of(t.topic_id), t) for t in body.topics]
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=name,
                topic_id=t.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=p.partition,
                        error_code=_code("Fetch", address, name, p.partition, picture, errors),
                        current_leader=FetchLeader(*_named(picture.leader(name, p.partition))),
                    )
                    for p in t.partitions
                ],
            )
            for name, t in topics
        ],
        node_endpoints=[FetchEndpoint(n.node_id, n.host, n.port) for n in picture.endpoints()],
    )


def _named(leader: LeaderIdAndEpoch) -> tuple[int, int]:
    return leader.leader_id, leader.leader_epoch


def _list_offsets(
    address: str, body: ListOffsetsRequest, picture: ClusterPicture, errors: ScriptedErrors
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=t.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index,
                        error_code=_code(
                            "ListOffsets", address, t.name, p.partition_index, picture, errors
                        ),
                        offset=0,
                    )
                    for p in t.partitions
                ],
            )
            for t in body.topics
        ]
    )
