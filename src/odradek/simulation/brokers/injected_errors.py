"""Inject errors into responses: any code, in any API, for a number of responses.

In: an API, an error code of Kafka, a number of responses, and whether the request takes effect
before it is refused. Out: responses with the code in the fields where a broker sets it. For
requests that only read, the code is set in the handler's response. Requests that change state are
handled and then refused, or refused before any check (also before the check for duplicates). Must
not know connections.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from odradek.common.types import TopicPartition
from odradek.protocol.message import Message, Struct, field_names
from odradek.protocol.messages import add_partitions_to_txn as a
from odradek.protocol.messages import offset_commit as o
from odradek.protocol.messages import produce as p
from odradek.protocol.messages import txn_offset_commit as t
from odradek.protocol.messages.create_topics import CreatableTopicResult
from odradek.protocol.messages.delete_topics import DeletableTopicResult
from odradek.protocol.primitives import Records
from odradek.record import read_header
from odradek.simulation.brokers.cluster_admin_handlers import CLUSTER_ADMIN_REFUSALS
from odradek.simulation.brokers.cluster_state import Reply
from odradek.simulation.brokers.group_admin_handlers import GROUP_ADMIN_REFUSALS
from odradek.simulation.brokers.security_admin_handlers import SECURITY_ADMIN_REFUSALS
from odradek.simulation.brokers.topic_admin_handlers import TOPIC_ADMIN_REFUSALS
from odradek.simulation.brokers.transaction_admin_handlers import (
    TRANSACTION_ADMIN_REFUSALS,
)

READS = frozenset(
    ("DescribeCluster", "Fetch", "FindCoordinator", "ListOffsets", "Metadata", "OffsetFetch")
) | {"OffsetForLeaderEpoch"}
"""Requests that change no state: the error is set in the handler's response."""
CHANGES = frozenset(
    (
        "AddOffsetsToTxn", "AddPartitionsToTxn", "ConsumerGroupHeartbeat", "CreateTopics",
        "DeleteTopics", "EndTxn", "Heartbeat", "InitProducerId", "JoinGroup", "LeaveGroup",
        "OffsetCommit", "Produce", "SyncGroup", "TxnOffsetCommit",
    )
)  # fmt: skip
APIS = tuple(sorted(READS | CHANGES))
"""APIs from which schedules choose: those of producers and consumers."""
ADMIN_READS = frozenset(
    (
        "ConsumerGroupDescribe", "DescribeAcls", "DescribeClientQuotas", "DescribeConfigs",
        "DescribeDelegationToken", "DescribeGroups", "DescribeLogDirs", "DescribeProducers",
        "DescribeQuorum", "DescribeShareGroupOffsets", "DescribeTransactions",
        "DescribeUserScramCredentials", "ListConfigResources", "ListGroups",
        "ListPartitionReassignments", "ListTransactions", "ShareGroupDescribe",
        "StreamsGroupDescribe",
    )
)  # fmt: skip
"""Requests of admin clients only that change no state."""
ADMIN_REFUSALS = {
    **CLUSTER_ADMIN_REFUSALS,
    **GROUP_ADMIN_REFUSALS,
    **SECURITY_ADMIN_REFUSALS,
    **TOPIC_ADMIN_REFUSALS,
    **TRANSACTION_ADMIN_REFUSALS,
}
TELEMETRY = ("GetTelemetrySubscriptions", "PushTelemetry")
REFUSABLE = tuple(sorted({*APIS, *ADMIN_READS, *ADMIN_REFUSALS, *TELEMETRY}))
"""APIs for which an error can be injected."""
PERHAPS_DONE = (-1, 3, 6, 7, 13, 20, 56, 100)
"""Errors that leaders return for batches that may have been appended. Any other code means that the
batch wasn't appended: a broker that has appended it and returns such a code misleads every
client."""
OUT_OF_ORDER = (45, 59)
"""Errors by which leaders refuse a batch, but never a batch that their log already contains."""
LIES = {"Produce": {46}, "Fetch": {1}, "InitProducerId": {35}}
"""Errors by API that make a false claim which a client can't detect: that a request was handled
before, that an existing offset doesn't exist, or that brokers don't support producer ids (then the
producer continues without idempotence)."""
NOTHING_KNOWN = {"EndTxn": {49, 59}}
"""Errors by API that claim that a producer is unknown. If a coordinator has ended the transaction
and returns such a code, the client assumes that the transaction never ends."""

MARKED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "Metadata": (("topics",), {"partitions": []}),
    "Fetch": (("responses", "partitions"), {"records": b"", "high_watermark": -1}),
    "FindCoordinator": (("coordinators",), {"node_id": -1, "host": "", "port": -1}),
    "OffsetFetch": (("groups",), {"topics": []}),
    "ListOffsets": (("topics", "partitions"), {"offset": -1, "timestamp": -1}),
    "OffsetForLeaderEpoch": (("topics", "partitions"), {"end_offset": -1}),
}
"""For responses with an error for each item: the field names that lead to the items, and the values
of the items' other fields."""
ONE_IN_OLD_VERSIONS = ("FindCoordinator", "OffsetFetch")
"""APIs whose older responses (before version 4 or 8) have one error instead of one per item."""

Batch = tuple[TopicPartition | bytes, int, int, int]
"""A batch's partition, producer id, producer epoch and first sequence number."""


@dataclass(slots=True, eq=False)
class Injection:
    """Errors in the next `left` responses of one API."""

    api: str
    code: int
    left: int
    done: bool = False
    """Whether the request takes effect although it is refused."""
    same: bool = False
    """For Produce: refuse the same batch each time, so that later batches overtake it."""
    _batch: Batch | None = field(default=None, init=False)

    def takes(self, body: Message) -> bool:
        """Return whether this injection applies to the request."""
        if self.left <= 0 or self.api != body.API_NAME:
            return False
        if isinstance(body, p.ProduceRequest):
            batches = _batches(body)
            if self.same and self._batch is None and batches:
                self._batch = batches[0]
            return body.acks != 0 and (not self.same or self._batch in batches)
        return True

    def does(self, body: Message) -> bool:
        """Return whether the request's handler is called although an error is returned."""
        return self.done or body.API_NAME in READS | ADMIN_READS

    def answering(self, body: Any, reply: Reply) -> Reply:
        """Return a callback that sends an error instead of the response."""
        self.left -= 1

        def refused(response: Message | None) -> None:
            if body.API_NAME in READS | ADMIN_READS:
                if response is not None:
                    mark(response, self.code)
                reply(response)
            elif self.same and isinstance(response, p.ProduceResponse):
                reply(self._refused_once(response, _batches(body)))
            else:
                reply(refusal(body, self.code))

        return refused

    def _refused_once(self, response: p.ProduceResponse, batches: list[Batch]) -> p.ProduceResponse:
        """Set an error only in the result of the batch that was refused before."""
        left = iter(batches)
        return p.ProduceResponse(
            responses=[
                p.TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [
                        _refused(answer.index, self.code) if next(left) == self._batch else answer
                        for answer in topic.partition_responses
                    ],
                )
                for topic in response.responses
            ],
            node_endpoints=response.node_endpoints,
        )


def find(injections: Iterable[Injection], body: Any) -> Injection | None:
    """Return the first injection that applies to a request."""
    return next((one for one in injections if one.takes(body)), None)


def _batches(request: p.ProduceRequest) -> list[Batch]:
    found: list[Batch] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            header = read_header(memoryview(_joined(data.records)))
            where = TopicPartition(topic.name or topic.topic_id.hex(), data.index)
            found.append((where, header.producer_id, header.producer_epoch, header.base_sequence))
    return found


def _joined(records: Records) -> bytes:
    if records is None:
        return b""
    if isinstance(records, (bytes, bytearray, memoryview)):
        return bytes(records)
    return b"".join(records)


def _refused(index: int, code: int) -> p.PartitionProduceResponse:
    return p.PartitionProduceResponse(index, code, -1, error_message=f"injected {code}")


def refusal(body: Any, code: int) -> Message:
    """Return a response that refuses every item of a request."""
    response: Any = body.RESPONSE()
    if isinstance(response, p.ProduceResponse):
        for topic in body.topic_data:
            answers = [_refused(data.index, code) for data in topic.partition_data]
            response.responses.append(p.TopicProduceResponse(topic.name, topic.topic_id, answers))
    elif isinstance(response, a.AddPartitionsToTxnResponse):
        response.results_by_topic_v3_and_below = [
            a.AddPartitionsToTxnTopicResult(
                topic.name, [a.AddPartitionsToTxnPartitionResult(n, code) for n in topic.partitions]
            )
            for topic in body.v3_and_below_topics
        ]
    elif isinstance(response, o.OffsetCommitResponse):
        for topic in body.topics:
            parts = [
                o.OffsetCommitResponsePartition(part.partition_index, code)
                for part in topic.partitions
            ]
            response.topics.append(o.OffsetCommitResponseTopic(topic.name, topic.topic_id, parts))
    elif isinstance(response, t.TxnOffsetCommitResponse):
        for topic in body.topics:
            refused = [
                t.TxnOffsetCommitResponsePartition(part.partition_index, code)
                for part in topic.partitions
            ]
            response.topics.append(
                t.TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, refused)
            )
    elif body.API_NAME in ADMIN_REFUSALS:
        return ADMIN_REFUSALS[body.API_NAME](body, code)  # type: ignore[no-any-return]  # a table's
    elif body.API_NAME == "CreateTopics":
        response.topics = [CreatableTopicResult(x.name, error_code=code) for x in body.topics]
    elif body.API_NAME == "DeleteTopics":
        names: list[tuple[str | None, bytes | None]]
        names = [(name, None) for name in body.topic_names]
        names += [(x.name, x.topic_id) for x in body.topics]
        for name, topic_id in names:
            result = DeletableTopicResult(name, error_code=code)
            if topic_id is not None:
                result.topic_id = topic_id
            response.responses.append(result)
    else:
        response.error_code = code
    made: Message = response
    return made


def mark(response: Any, code: int) -> None:
    """Set an error in a successful response, in the fields where brokers set theirs."""
    if response.API_NAME not in MARKED:
        _mark_items(response, code)
        return
    path, fields = MARKED[response.API_NAME]
    items = [response]
    for name in path:
        items = [each for item in items for each in getattr(item, name)]
    if not items and response.API_NAME in ONE_IN_OLD_VERSIONS:
        items = [response]
    for item in items:
        for name, value in {"error_code": code, **fields}.items():
            if name in field_names(type(item)):
                setattr(item, name, copy.copy(value))


def _mark_items(item: Any, code: int) -> None:
    """Set the error in all items, or in the response itself if no item has an error field."""
    inside = [
        each
        for name in field_names(type(item))
        if isinstance(found := getattr(item, name), list)
        for each in found
        if isinstance(each, Struct)
    ]
    for each in inside:
        _mark_items(each, code)
    if hasattr(item, "error_code") and not any(hasattr(each, "error_code") for each in inside):
        item.error_code = code
