"""Test all messages: versions, defaults, values that can't be encoded, errors, lazy imports."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.answers import decode_response

from odradek.clients.consumer.group.committed_offsets import OffsetCommitByName
from odradek.common.errors import MalformedMessageError, UnsupportedFeatureError
from odradek.common.errors.kafka import InvalidRequestError, UnsupportedVersionError
from odradek.protocol.headers import decode_request_header, peek_correlation_id
from odradek.protocol.message import Message
from odradek.protocol.messages import streams_group_describe as s
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.fetch import FetchRequest, ReplicaState
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from odradek.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from odradek.protocol.primitives import (
    Buffer,
    Output,
    WireError,
    as_bytes_view,
    read_uvarint,
    records_view,
    write_uvarint,
)
from odradek.protocol.registry import API_NAMES, api_name, request_class
from odradek.simulation.world.environment import read_request

ID = bytes(7) + b"\x01" + bytes(7) + b"\x02"
"""The same id as Java's `new Uuid(1, 2)`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["odradek.protocol.registry", "odradek.protocol.headers", "odradek.protocol.message"]
)
def test_message_modules_are_imported_on_first_use(module: str) -> None:
    program = (
        f"import {module}, sys\n"
        "print([m for m in sys.modules if m.startswith('odradek.protocol.messages.')])\n"
        "from odradek.protocol.registry import request_class\n"
        "print(request_class(3).__name__)\n"
        "print([m for m in sys.modules if m.startswith('odradek.protocol.messages.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "[]",
        "MetadataRequest",
        "['odradek.protocol.messages.metadata']",
    ]


def test_all_apis_have_names_and_those_without_messages_are_unsupported() -> None:
    assert request_class(0).__name__ == "ProduceRequest"
    assert request_class(0).RESPONSE.__name__ == "ProduceResponse"
    assert API_NAMES[60] == "DescribeCluster"
    assert api_name(12345) == "API 12345"
    with pytest.raises(UnsupportedFeatureError, match="ShareGroupHeartbeat"):
        request_class(76)
    with pytest.raises(UnsupportedFeatureError, match="12345"):
        request_class(12345)


@pytest.mark.parametrize("version", [-1, 14, 1000])
def test_an_unsupported_version_can_neither_be_encoded_nor_decoded(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="0 to 13"):
        MetadataRequest().encode(version)
    with pytest.raises(UnsupportedVersionError, match="0 to 13"):
        MetadataRequest.decode(b"", version)


def test_default_values_of_fields_equal_those_of_kafka() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 0x7FFFFFFF, -1)
    assert MetadataRequest().allow_auto_topic_creation is True
    assert CreateTopicsRequest().timeout_ms == 60000
    assert MetadataResponse().cluster_authorized_operations == -(2**31)
    assert FetchRequest().topics is not FetchRequest().topics


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (MetadataRequest(allow_auto_topic_creation=False), 3, "allow_auto_topic_creation"),
        (MetadataRequest(include_topic_authorized_operations=True), 7, "include_topic"),
        (FetchRequest(replica_state=ReplicaState(1, 2)), 14, "FetchRequest.replica_state"),
        (FetchRequest(replica_id=1), 15, "FetchRequest.replica_id"),
        (ListOffsetsRequest(isolation_level=1), 1, "isolation_level"),
    ],
)
def test_a_value_that_the_version_cannot_carry_is_rejected(
    message: Message, version: int, field: str
) -> None:
    with pytest.raises(UnsupportedVersionError, match=field):
        message.encode(version)
    assert type(message)().encode(version)


def test_ignorable_fields_that_the_requested_version_lacks_are_omitted() -> None:
    topic = MetadataRequestTopic(topic_id=b"\x01" * 16, name="t")
    assert MetadataRequest([topic]).encode(9) == [b"\x02\x02t\x00\x01\x00\x00\x00"]
    assert DeleteTopicsRequest(topic_names=["t"]).encode(6) == [b"\x01\x00\x00\x00\x00\x00"]


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (MetadataRequest([MetadataRequestTopic(name=None)]), 9),
        (MetadataRequest([MetadataRequestTopic(name="x" * 40000)]), 1),
        (MetadataRequest([MetadataRequestTopic(name="\ud800")]), 1),
        (MetadataRequest([MetadataRequestTopic(b"short")]), 12),
        (CreateTopicsRequest([CreatableTopic("t", 2**31)]), 7),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_rejected(message: Message, version: int) -> None:
    with pytest.raises(InvalidRequestError, match=type(message).__name__):
        message.encode(version)


@pytest.mark.parametrize(
    ("frame", "version", "reason", "position"),
    [
        (b"", 1, "truncated", 0),
        (b"\x00\x00\x00", 1, "truncated", 0),
        (b"\xff\xff\xff\xfe", 1, "the count -2 is negative", 0),
        (b"\x7f\xff\xff\xff", 1, "the count 2147483647 doesn't fit", 4),
        (b"\x00\x00\x00\x01\xff\xff", 1, "the length -1 is negative", 6),
        (b"\x00\x00\x00\x01\x00\x03ab", 1, "the length 3 exceeds the 2 bytes", 6),
        (b"\x00\x00\x00\x01\x00\x02\xff\xfe", 1, "invalid start byte", 6),
        (b"\x00\x00\x00\x00\x00", 1, "1 unread bytes at the end", 4),
        (b"\x80\x80\x80\x80\x80\x00", 9, "varint has more than five bytes", 5),
        (b"\xff\xff\xff\xff\x0f", 9, "the varint 4294967295 is too large", 5),
        (b"\x02\x00\x00\x00\x00\x00\x00", 9, "the length -1 is negative", 2),
    ],
)
def test_errors_name_message_version_reason_and_position(
    frame: bytes, version: int, reason: str, position: int
) -> None:
    with pytest.raises(MalformedMessageError) as caught:
        MetadataRequest.decode(frame, version)
    text = str(caught.value)
    assert text.startswith(f"MetadataRequest v{version}: ")
    assert reason in text
    assert text.endswith(f"at byte {position} of {len(frame)}")


def test_trailing_bytes_of_a_request_can_be_ignored() -> None:
    """Some clients send trailing bytes, as librdkafka 2.16 does in a request for all topics."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    with pytest.raises(MalformedMessageError, match="3 unread bytes at the end"):
        read_request(frame)
    body = read_request(frame, whole=False).body
    assert isinstance(body, MetadataRequest)
    assert body.topics is None


@pytest.mark.parametrize("offset", [-1, 6, 2**40])
def test_an_offset_outside_of_the_frame_is_malformed(offset: int) -> None:
    with pytest.raises(MalformedMessageError):
        MetadataRequest.decode(b"\x00\x00\x00\x00\x00", 1, offset)


@pytest.mark.parametrize("cut", range(12))
def test_a_truncated_request_header_is_malformed(cut: int) -> None:
    header = b"\x00\x03\x00\x0c\x00\x00\x00\x07\x00\x01c\x00"
    assert decode_request_header(header) == (3, 12, 7, "c", 12)
    with pytest.raises(MalformedMessageError, match="request header"):
        decode_request_header(header[:cut])


def test_a_truncated_response_header_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="response header"):
        peek_correlation_id(b"\x00\x00\x07")
    with pytest.raises(MalformedMessageError, match="header of MetadataResponse v12"):
        decode_response(MetadataRequest, 12, b"\x00\x00\x00\x07")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: memoryview(b).cast("b")])
def test_messages_are_decoded_from_any_kind_of_buffer(kind: Any) -> None:
    frame = b"".join(MetadataRequest([MetadataRequestTopic(name="t")]).encode(1))
    assert MetadataRequest.decode(kind(frame), 1).topics == [MetadataRequestTopic(name="t")]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**21, 2**28 - 1, 2**28, 2**31 - 1])
def test_varints_round_trip(value: int) -> None:
    out = Output()
    write_uvarint(out, value)
    assert read_uvarint(memoryview(out), 0) == (value, len(out))
    with pytest.raises(IndexError):
        read_uvarint(memoryview(out)[:-1], 0)


def test_varints_above_int32_are_rejected() -> None:
    with pytest.raises(WireError):
        read_uvarint(memoryview(b"\x80\x80\x80\x80\x08"), 0)


def test_records_in_pieces_become_one_view() -> None:
    pieces: list[Buffer] = [b"ab", bytearray(b"c"), memoryview(b"de")]
    joined = records_view(pieces)
    assert joined is not None
    assert bytes(joined) == b"abcde"
    whole = b"xyz"
    single = records_view([whole])
    assert single is not None
    assert single.obj is whole
    assert records_view(None) is None
    assert as_bytes_view(memoryview(b"abcd").cast("i")).nbytes == 4


@pytest.mark.parametrize(
    ("message", "version", "written"),
    [
        (
            ApiVersionsRequest("odradek", "0.1.0", "abc", 7),
            5,
            "086f64726164656b06302e312e30046162630000000700",
        ),
        (
            ApiVersionsRequest("odradek", "0.1.0"),
            5,
            "086f64726164656b06302e312e3000ffffffff00",
        ),
        (
            TxnOffsetCommitRequest(
                "t", "g", 1, 2, 3, "x", None,
                [
                    TxnOffsetCommitRequestTopic(
                        "not sent", ID, [TxnOffsetCommitRequestPartition(3, 4, 5, "m")]
                    )
                ],
            ),
            6,
            "02740267000000000000000100020000000302780002000000000000000100000000000000020200000003000000000000000400000005026d000000",
        ),
        (DeleteGroupsRequest(["g", "h"]), 3, "030267026800"),
        (StreamsGroupDescribeRequest(["s"], True, True), 1, "020273010100"),
        (UnregisterControllerRequest(7), 0, "0000000700"),
    ],
)  # fmt: skip
def test_new_messages_of_kafka_4_4_are_encoded_as_in_java(
    message: Message, version: int, written: str
) -> None:
    """Compare with the bytes that kafka-clients 4.4.0 writes for the same fields."""
    assert b"".join(message.encode(version)).hex() == written


@pytest.mark.parametrize(
    ("written", "version", "message"),
    [
        (
            "00000000020267004405627573790000",
            3,
            DeleteGroupsResponse(results=[DeletableGroupResult("g", 68, "busy")]),
        ),
        ("000000000029036e6f00", 0, UnregisterControllerResponse(0, 41, "no")),
        (
            (
                "0000000002000000027307537461626c6500000002000000030100000001020230020274010101000002026d00"
                "00000400000263032f68000000050270010275fde8000101010202300300000001000000020001010001010100"
                "0000800000000102023002026e01020274000102026d000001000107737469636b790000"
            ),
            1,
            StreamsGroupDescribeResponse(
                groups=[
                    s.DescribedGroup(
                        0, None, "s", "Stable", 2, 3,
                        s.Topology(1, [s.Subtopology("0", ["t"])]),
                        [
                            s.Member(
                                "m", 4, client_id="c", client_host="/h", topology_epoch=5,
                                process_id="p", user_endpoint=s.Endpoint("u", 65000),
                                assignment=s.Assignment([s.TaskIds("0", [1, 2])]),
                            )
                        ],
                        topology_description=s.TopologyDescription(
                            [
                                s.TopologyDescriptionSubtopology(
                                    "0",
                                    [
                                        s.TopologyDescriptionNode(
                                            "n", 1, ["t"], successors=["m"]
                                        )
                                    ],
                                )
                            ]
                        ),
                        topology_description_status=1,
                        assignor_name="sticky",
                    )
                ]
            ),
        ),
    ],
)  # fmt: skip
def test_new_messages_of_kafka_4_4_are_decoded_as_in_java(
    written: str, version: int, message: Message
) -> None:
    """Compare with the bytes that kafka-clients 4.4.0 writes for the same fields."""
    data = bytes.fromhex(written)
    assert type(message).decode(data, version) == message
    assert b"".join(message.encode(version)) == data


def test_a_topic_id_in_a_txn_offset_commit_response_is_decoded() -> None:
    written = bytes.fromhex("00000000020000000000000001000000000000000202000000030064000000")
    answer = TxnOffsetCommitResponse.decode(memoryview(written), 6, 0)
    (topic,) = answer.topics
    assert (topic.topic_id, topic.partitions[0].error_code) == (ID, 100)


def test_messages_are_compared_and_shown_by_their_fields() -> None:
    made = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t")])
    same = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t")])
    assert made == same
    same.topics[0].name = "u"
    assert made != same
    by_name = OffsetCommitByName("g", topics=[OffsetCommitRequestTopic("t")])
    assert by_name != made
    assert repr(by_name) == repr(made).replace("Request", "ByName", 1)
    assert eval(repr(made)) == made  # noqa: S307
    assert OffsetCommitRequest().topics is not OffsetCommitRequest().topics
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
