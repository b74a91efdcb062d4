"""Metadata responses with packed partitions equal the plain reader's result, or fail as it does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.volume import WHOLE

from odradek.common.errors import MalformedMessageError
from odradek.protocol import packed_metadata
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.packed_metadata import PackedMetadataResponse, PackedPartitions

SMALL = st.integers(-1, 3)
NODES = st.lists(st.integers(-1, 1 << 31), max_size=3).map(lambda n: [min(i, 2**31 - 1) for i in n])
ODD = st.builds(
    MetadataResponsePartition,
    st.sampled_from((0, 0, 5, 9)), st.integers(-2, 5), SMALL, st.integers(-1, 1 << 30),
    NODES, NODES, NODES,
)  # fmt: skip


def alike(count: int, leader: int, epoch: int) -> list[MetadataResponsePartition]:
    return [MetadataResponsePartition(0, n, leader, epoch, [1, 2], [2], []) for n in range(count)]


PARTITIONS = st.one_of(
    st.builds(alike, st.integers(0, 300), st.integers(0, 9), st.integers(0, 9)),
    st.lists(ODD, max_size=5),
    st.builds(lambda a, b, n: [*a[:n], *b, *a[n:]],
              st.builds(alike, st.integers(0, 5), SMALL, SMALL),
              st.lists(ODD, max_size=1), st.integers(0, 5)),
)  # fmt: skip
TOPICS = st.builds(
    MetadataResponseTopic,
    st.sampled_from((0, 0, 3)), st.sampled_from(("t", "u", "a" * 200, "ä")),
    st.binary(min_size=16, max_size=16), st.booleans(), PARTITIONS,
)  # fmt: skip
ANSWERS = st.builds(
    MetadataResponse,
    brokers=st.just([MetadataResponseBroker(1, "b", 9092)]),
    cluster_id=st.sampled_from((None, "c")),
    topics=st.lists(TOPICS, max_size=4),
)
VERSIONS = st.integers(0, MetadataResponse.MAX_VERSION)
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3)


def outcome(answer: type[MetadataResponse], data: bytes, version: int) -> Any:
    try:
        found = answer.decode(data, version)
        while isinstance(found, PackedMetadataResponse) and not found.read_on():
            pass
    except MalformedMessageError as error:
        return str(error).replace("Packed", "")
    if version < packed_metadata.FIRST and answer is MetadataResponse:
        for topic in found.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1  # such epochs may be stale (KAFKA-9212)
    return [
        *(found.throttle_time_ms, found.brokers, found.cluster_id, found.controller_id),
        [(t.error_code, t.name, t.topic_id, t.is_internal, list(t.partitions),
          t.topic_authorized_operations) for t in found.topics],
        found.cluster_authorized_operations,
        found.error_code,
    ]  # fmt: skip


def in_order(plain: Any) -> Any:
    """Sort the partitions of the plain result by their numbers, like those of a packed topic."""
    if not isinstance(plain, str):
        for topic in plain[4]:
            topic[4].sort(key=lambda p: p.partition_index)
    return plain


def both(data: bytes, version: int) -> None:
    ours, plain = (outcome(a, data, version) for a in (PackedMetadataResponse, MetadataResponse))
    assert ours == (in_order(plain) if version >= packed_metadata.FIRST else plain)


@given(ANSWERS, VERSIONS, CHANGES, st.integers(0, 40), st.sampled_from((1, 64, 1 << 19)))
def test_packed_metadata_equals_the_plain_readers_result(
    answer: MetadataResponse, version: int, changes: list[tuple[int, int]], cut: int, piece: int
) -> None:
    for topic in answer.topics:
        if version < 10:
            topic.topic_id = bytes(16)
        for p in topic.partitions:
            p.leader_epoch = p.leader_epoch if version >= 7 else -1
            p.offline_replicas = p.offline_replicas if version >= 5 else []
    if version < 2:
        answer.cluster_id = None
    whole = b"".join(answer.encode(version))
    spoilt = bytearray(whole)
    for at, byte in changes:
        spoilt[at % len(spoilt)] = byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_metadata, "SLICE", piece)
        for data in (whole, bytes(spoilt), whole[: len(whole) - cut], whole + b"\0"):
            both(data, version)


def test_partitions_with_equal_rows_are_indexed_by_a_range() -> None:
    topics = [
        MetadataResponseTopic(0, f"t{n}", bytes(16), False, alike(50, 1, 7)) for n in range(9)
    ]
    data = b"".join(MetadataResponse(topics=topics).encode(13))
    for topic in PackedMetadataResponse.decode(data, 13).topics:
        packed: Any = topic.partitions
        assert isinstance(packed, PackedPartitions)
        assert packed.numbered
        assert isinstance(packed._offsets, range)
        assert list(packed.epochs()) == [7] * 50


@pytest.mark.parametrize("nodes", [126, 127, 128, 200])
@pytest.mark.parametrize("count", [1, 2])
def test_lists_whose_lengths_take_two_bytes_are_read(nodes: int, count: int) -> None:
    many = [-1] * nodes
    for lists in ((many, [1], []), ([1], many, []), ([1], [1], many)):
        rows = [MetadataResponsePartition(0, n, 1, 7, *lists) for n in range(count)]
        topic = MetadataResponseTopic(0, "t", bytes(16), False, rows)
        both(b"".join(MetadataResponse(topics=[topic]).encode(12)), 12)


@pytest.mark.parametrize("count", [127, 128, 999, 1001, 70_000 if WHOLE else 17_000])
def test_topics_with_any_number_of_partitions_are_read(count: int) -> None:
    for rows in (alike(count, 3, 1 << 25), alike(count, 3, 4), alike(count, -1, 4)):
        topic = MetadataResponseTopic(0, "t", bytes(16), False, rows)
        data = b"".join(MetadataResponse(topics=[topic]).encode(12))
        answer = PackedMetadataResponse.decode(data, 12)
        while not answer.read_on():
            pass
        packed: Any = answer.topics[0].partitions
        assert packed == rows
        assert packed.numbered
        assert list(packed.epochs()) == [p.leader_epoch for p in rows]
        assert packed.leaderless == sum(p.leader_id < 0 for p in rows)


def test_a_large_response_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [
        MetadataResponseTopic(0, f"t{n}", bytes(16), False, alike(9, 1, 7)) for n in range(50)
    ]
    data = b"".join(MetadataResponse(topics=topics, error_code=7).encode(13))
    monkeypatch.setattr(packed_metadata, "SLICE", 1000)
    answer = PackedMetadataResponse.decode(data, 13)
    read = [len(answer.topics)]
    while not answer.read_on():
        read.append(len(answer.topics))
    assert read[0] == 0
    assert max(b - a for a, b in pairwise(read)) <= 1000 // (9 * 31) + 1
    assert len(answer.topics) == 50
    assert answer.error_code == 7
