"""The readiness check of brokers: parsing of Metadata v1 and CreateTopics responses."""

from __future__ import annotations

import pytest

from odradek.common.types import Address
from odradek.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.testing.brokers.probe import Answer, ClusterView, parse, parse_creation


def partition(leader: int, replicas: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(leader_id=leader, replica_nodes=replicas, isr_nodes=[leader])


def test_brokers_controller_and_leaderless_partitions_are_parsed() -> None:
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(0, "127.1.2.10", 1234),
            MetadataResponseBroker(7, "bröker", 65535, rack="r"),
        ],
        controller_id=7,
        topics=[
            MetadataResponseTopic(
                name="a", partitions=[partition(0, [0, 7]), partition(-1, [0, 7])]
            ),
            MetadataResponseTopic(name="b", partitions=[partition(-1, []), partition(7, [7])]),
            MetadataResponseTopic(name="c", error_code=3),
        ],
    )
    data = b"\x00\x00\x00\x01" + b"".join(bytes(part) for part in answer.encode(1))
    assert parse(data) == ClusterView(
        brokers={0: Address("127.1.2.10", 1234), 7: Address("bröker", 65535)},
        controller=7,
        topics=3,
        leaderless=2,
        refused=1,
    )


def test_a_response_without_brokers_is_parsed() -> None:
    data = b"\x00\x00\x00\x01" + b"".join(bytes(part) for part in MetadataResponse().encode(1))
    assert parse(data) == ClusterView({}, -1, 0, 0)


@pytest.mark.parametrize(("code", "text"), [(0, None), (38, "too many copies")])
def test_the_result_of_creating_a_topic_is_parsed(code: int, text: str | None) -> None:
    topic = CreatableTopicResult(name="tópic", error_code=code, error_message=text)
    answer = CreateTopicsResponse(throttle_time_ms=7, topics=[topic])
    data = b"\x00\x00\x00\x01" + b"".join(bytes(part) for part in answer.encode(2))
    assert parse_creation(data) == Answer(code, text or "")
