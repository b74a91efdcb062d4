"""Errors that brokers answer by order of a schedule: any code, at any API, for so many answers.

In: an API, a code of Kafka's table, a number of answers, and whether what was asked is done before
it is refused. Out: answers in which the code stands where a broker would put it. What only reads is
asked of the handler and then marked; what changes something is done and refused, or refused before
it was looked at (so before the look for duplicates, too). Must not: know connections.
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
"""What changes nothing: the handler answers, and its answer is marked."""
CHANGES = frozenset(
    (
        "AddOffsetsToTxn", "AddPartitionsToTxn", "ConsumerGroupHeartbeat", "CreateTopics",
        "DeleteTopics", "EndTxn", "Heartbeat", "InitProducerId", "JoinGroup", "LeaveGroup",
        "OffsetCommit", "Produce", "SyncGroup", "TxnOffsetCommit",
    )
)  # fmt: skip
APIS = tuple(sorted(READS | CHANGES))
"""What schedules draw from: clients that produce and consume ask for these."""
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
"""What only admin clients ask, and what changes nothing either."""
ADMIN_REFUSALS = {
    **CLUSTER_ADMIN_REFUSALS,
    **GROUP_ADMIN_REFUSALS,
    **SECURITY_ADMIN_REFUSALS,
    **TOPIC_ADMIN_REFUSALS,
    **TRANSACTION_ADMIN_REFUSALS,
}
REFUSABLE = tuple(sorted({*APIS, *ADMIN_READS, *ADMIN_REFUSALS}))
"""What can be refused at all."""
PERHAPS_DONE = (-1, 3, 6, 7, 13, 20, 56, 100)
"""What leaders say of batches that may have been appended; any other code says that they weren't,
so a broker that has appended one and answers so lies, and no client can be right then."""
OUT_OF_ORDER = (45, 59)
"""And what they say of none that they have."""
LIES = {"Produce": {46}, "Fetch": {1}}
"""What says that something was done before, or that an offset isn't there that is; no client can
know better."""
NOTHING_KNOWN = {"EndTxn": {49, 59}}
"""What says that a producer isn't known (any more). A coordinator that has ended its transaction
for it and answers so lies: the client takes the transaction for one that nobody ends."""

MARKED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "Metadata": (("topics",), {"partitions": []}),
    "Fetch": (("responses", "partitions"), {"records": b"", "high_watermark": -1}),
    "FindCoordinator": (("coordinators",), {"node_id": -1, "host": "", "port": -1}),
    "OffsetFetch": (("groups",), {"topics": []}),
    "ListOffsets": (("topics", "partitions"), {"offset": -1, "timestamp": -1}),
    "OffsetForLeaderEpoch": (("topics", "partitions"), {"end_offset": -1}),
}
"""Of answers with several places for an error: the items that have one, and their other fields."""
ONE_IN_OLD_VERSIONS = ("FindCoordinator", "OffsetFetch")
"""Before versions 4 and 8 these have no items, and the error is the answer's."""

Batch = tuple[TopicPartition | bytes, int, int, int]
"""Where it is to be written, its producer's id and epoch, its sequence."""


@dataclass(slots=True, eq=False)
class Injection:
    """Some answers of one API that are errors."""

    api: str
    code: int
    left: int
    done: bool = False
    """What was asked is done all the same."""
    same: bool = False
    """Of Produce: the same batch each time, so that others overtake it."""
    _batch: Batch | None = field(default=None, init=False)

    def takes(self, body: Message) -> bool:
        """Whether this request is one of those to be refused."""
        if self.left <= 0 or self.api != body.API_NAME:
            return False
        if isinstance(body, p.ProduceRequest):
            batches = _batches(body)
            if self.same and self._batch is None and batches:
                self._batch = batches[0]
            return body.acks != 0 and (not self.same or self._batch in batches)
        return True

    def does(self, body: Message) -> bool:
        """Whether the handler is asked."""
        return self.done or body.API_NAME in READS | ADMIN_READS

    def answering(self, body: Any, reply: Reply) -> Reply:
        """`reply`, but for an answer that is an error."""
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
        """Return an answer in which the same batch as before is refused."""
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
    """The first injection that takes a request."""
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
    """An answer that refuses all that a request asks."""
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
    """Put an error into an answer that was to be good, where brokers put theirs."""
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
    """Put it wherever there is a place for one, but to items rather than to the whole."""
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
