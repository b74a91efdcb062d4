"""Test encoding and decoding with frames written by hand, field by field."""

from __future__ import annotations

import pytest
from tests.answers import decode_response

from odradek.common.errors import MalformedMessageError
from odradek.protocol.headers import (
    decode_api_versions_response,
    decode_request_header,
    encode_request,
    encode_response,
    peek_correlation_id,
)
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def frame_of(*parts: str) -> bytes:
    """Join hexadecimal parts and, after a `'`, text."""
    return b"".join(
        part[1:].encode() if part.startswith("'") else bytes.fromhex(part) for part in parts
    )


def test_api_versions_request_v3_has_a_flexible_header_with_a_non_flexible_client_id() -> None:
    request = ApiVersionsRequest("odradek", "0.1")
    body = frame_of("0012 0003", "00000007", "0002", "'me", "00", "08", "'odradek", "04", "'0.1")
    body += b"\x00"
    (frame,) = encode_request(request, 3, 7, "me")
    assert frame == len(body).to_bytes(4) + body
    assert decode_request_header(body) == (18, 3, 7, "me", 13)
    assert ApiVersionsRequest.decode(body, 3, 13) == request


def test_api_versions_request_v0_has_an_empty_body() -> None:
    (frame,) = encode_request(ApiVersionsRequest(), 0, -1, None)
    assert frame == frame_of("0000000a", "0012 0000", "ffffffff", "ffff")
    assert decode_request_header(frame[4:]) == (18, 0, -1, None, 10)


def test_an_api_versions_response_always_has_header_version_0() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 13)], finalized_features_epoch=9)
    body = frame_of("00000007", "0000", "02", "0003 0000 000d", "00", "00000000")
    body += frame_of("01", "01 08", "0000000000000009")
    assert b"".join(encode_response(response, 3, 7)) == len(body).to_bytes(4) + body
    assert decode_api_versions_response(body, 3) == (7, response)
    assert decode_response(ApiVersionsRequest, 3, body) == (7, response)
    assert peek_correlation_id(body) == 7


@pytest.mark.parametrize("listed", ["00000000", "00000001 0012 0000 0003"])
def test_a_version_0_response_of_an_older_broker_is_decoded(listed: str) -> None:
    correlation_id, response = decode_response(
        ApiVersionsRequest, 4, frame_of("00000007", "0023", listed)
    )
    assert (correlation_id, response.error_code) == (7, 35)
    assert response.api_keys == ([ApiVersion(18, 0, 3)] if len(listed) > 8 else [])


def test_an_unsupported_version_error_in_the_requested_version_is_decoded() -> None:
    body = frame_of("00000007", "0023", "01", "00000000", "00")
    assert decode_api_versions_response(body, 3)[1] == ApiVersionsResponse(error_code=35)


def test_metadata_request_v12_names_a_topic() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    expected = frame_of("02", "00" * 16, "02", "'t", "00", "00", "00", "00")
    assert request.encode(12) == [expected]
    assert MetadataRequest.decode(expected, 12) == request


def test_a_metadata_request_for_all_topics_has_a_null_topic_list_from_version_1_on() -> None:
    assert MetadataRequest(topics=None).encode(1) == [frame_of("ffffffff")]
    assert MetadataRequest(topics=[]).encode(0) == [frame_of("00000000")]
    assert MetadataRequest.decode(b"\xff\xff\xff\xff\x01", 4).topics is None


def test_a_metadata_response_of_version_1_is_encoded_and_decoded() -> None:
    expected = frame_of("00000001", "00000005", "0001", "'h", "00002384", "ffff")
    expected += frame_of("00000005")
    expected += frame_of("00000001", "0000", "0001", "'t", "00")
    expected += frame_of("00000001", "0005", "00000000", "ffffffff", "00000001", "00000005")
    expected += frame_of("00000000")
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(5, "h", 9092)],
        controller_id=5,
        topics=[
            MetadataResponseTopic(
                name="t", partitions=[MetadataResponsePartition(5, 0, -1, replica_nodes=[5])]
            )
        ],
    )
    assert response.encode(1) == [expected]
    assert MetadataResponse.decode(expected, 1) == response


def test_unknown_tagged_fields_are_skipped_in_every_struct() -> None:
    tags = "01 2a 01 ff"
    body = frame_of("00000000", "02", "00000005", "02", "'h", "00002384", "00", tags)
    body += frame_of("03", "'id", "00000005")
    body += frame_of("02", "0000", "02", "'t", "11" * 16, "00")
    body += frame_of("02", "0000", "00000000", "00000005", "00000002")
    body += frame_of("02", "00000005", "02", "00000005", "01", tags, "80000000", tags, tags)
    response = MetadataResponse.decode(body, 12)
    (topic,) = response.topics
    assert (response.cluster_id, response.brokers[0].port) == ("id", 9092)
    assert (topic.name, topic.topic_id) == ("t", b"\x11" * 16)
    assert topic.partitions[0] == MetadataResponsePartition(0, 0, 5, 2, [5], [5], [])


def test_records_of_a_produce_request_are_not_copied() -> None:
    head, tail = bytearray(b"batch"), memoryview(b"-two")
    whole = b"another"
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            TopicProduceData(
                "t", partition_data=[PartitionProduceData(0, [head, tail]), PartitionProduceData(1)]
            ),
            TopicProduceData("u", partition_data=[PartitionProduceData(2, whole)]),
        ],
    )
    buffers = encode_request(request, 3, 1, None)
    body = frame_of("ffff", "ffff", "00007530", "00000002", "0001", "'t", "00000002")
    body += frame_of("00000000", "00000009", "'batch-two", "00000001", "ffffffff")
    body += frame_of("0001", "'u", "00000001", "00000002", "00000007", "'another")
    frame = b"".join(buffers)
    assert frame == len(frame[4:]).to_bytes(4) + frame_of("0000 0003 00000001 ffff") + body
    assert [len(item) for item in buffers] == [41, 5, 4, 23, 7]
    assert isinstance(buffers[1], memoryview)
    assert buffers[1].obj is head
    assert buffers[2] is tail
    assert buffers[4] is whole


def test_produce_response_v10_contains_a_current_leader_only_if_known() -> None:
    partition = frame_of("00000000", "0006", "ff" * 8, "ff" * 8, "ff" * 8, "01", "00")
    leader = frame_of("01", "00 09", "00000002 00000003 00")
    end = frame_of("00", "00000000", "00")
    start = frame_of("02", "02", "'t", "02")
    named = ProduceResponse.decode(start + partition + leader + end, 10)
    found = named.responses[0].partition_responses[0]
    assert (found.error_code, found.base_offset) == (6, -1)
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 3)
    assert named.encode(10) == [start + partition + leader + end]
    found.current_leader = type(found.current_leader)()
    assert named.encode(10) == [start + partition + b"\x00" + end]


def fetch_response() -> bytes:
    partition = frame_of("00000003", "0000", "000000000000002a" * 2, "00" * 8, "00", "ffffffff")
    partition += frame_of("05", "'abcd", "02", "01 09 00000002 00000007 00", "4d 02 beef")
    return frame_of("00000001", "00000000", "0000", "00000009", "02", "22" * 16, "02") + (
        partition + b"\x00\x00"
    )


def test_records_of_a_fetch_response_are_views_of_the_frame() -> None:
    frame = bytearray(frame_of("00000063", "00") + fetch_response()[4:])
    correlation_id, response = decode_response(FetchRequest, 13, frame)
    assert correlation_id == 99
    (topic,) = response.responses
    (partition,) = topic.partitions
    assert partition.current_leader == LeaderIdAndEpoch(2, 7)
    assert partition.aborted_transactions is None
    assert (partition.high_watermark, partition.preferred_read_replica) == (42, -1)
    assert isinstance(partition.records, memoryview)
    assert bytes(partition.records) == b"abcd"
    frame[frame.index(b"abcd")] = ord("X")
    assert bytes(partition.records) == b"Xbcd", "the records are a view, not a copy"


def test_a_tagged_field_with_a_wrong_length_is_malformed() -> None:
    frame = fetch_response()[4:]
    longer = frame.replace(bytes.fromhex("010900000002"), bytes.fromhex("010a00000002"))
    assert longer != frame
    with pytest.raises(MalformedMessageError, match="tagged field 1"):
        FetchResponse.decode(longer, 13)


def test_null_and_empty_records_remain_different_in_a_round_trip() -> None:
    def answer(records: bytes | None) -> FetchResponse:
        partitions = [PartitionData(records=records)]
        return FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])

    for version in (4, 12):
        for records in (None, b""):
            found = FetchResponse.decode(b"".join(answer(records).encode(version)), version)
            assert found.responses[0].partitions[0].records == records
