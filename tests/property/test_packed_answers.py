"""A client that keeps partitions as encoded bytes has the same metadata as one that decodes all."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metadata.metadata_responses import ID, OTHER, Known, answer

from odradek.metadata.cluster import NO_ID, Cluster, from_hint, seen_epochs, to_hint
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.packed_metadata import PackedMetadataResponse

NAMES = ("t", "u", "v")
ROW = st.tuples(st.integers(-1, 2), st.integers(-1, 4))


def alike(rows: list[tuple[int, int]], first: int, isr: int) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(0, n + first, leader, epoch, [1, 2], [1, 2][: isr if n else 2])
        for n, (leader, epoch) in enumerate(rows)
    ]


PARTITIONS = st.builds(
    alike, st.lists(ROW, max_size=4), st.sampled_from((0, 0, 0, 0, 0, 1)), st.integers(1, 2)
)
TOPIC = st.builds(
    MetadataResponseTopic,
    st.sampled_from((0, 0, 0, 0, 3, 5)), st.sampled_from(NAMES),
    st.sampled_from((ID, ID, ID, OTHER, NO_ID)), st.just(False), PARTITIONS,
)  # fmt: skip
ANSWER = st.tuples(st.just("answer"), st.lists(TOPIC, max_size=4), st.booleans())
STEP = st.one_of(
    ANSWER, ANSWER, ANSWER,
    st.tuples(st.just("hint"), st.sampled_from(NAMES), st.integers(0, 3), st.integers(0, 6)),
    st.tuples(st.just("forget")),
    st.tuples(st.just("again")),
    st.tuples(st.just("unused"), st.sampled_from(NAMES)),
)  # fmt: skip


def _picture(snapshot: Cluster | None) -> Any:
    """Return the comparable state of a client."""
    if snapshot is None:
        return None
    of_cluster = snapshot.cluster_id, snapshot.controller, snapshot.updated_at
    return of_cluster, snapshot.brokers, snapshot.topics


def state(metadata: Known) -> Any:
    names = list(metadata._epochs)
    snapshot = metadata.snapshot
    if snapshot is not None:
        leaders = [p.leader for t in snapshot.topics.values() for p in t.partitions]
        assert snapshot.leaderless == sum(leader < 0 for leader in leaders)
        assert snapshot.led == len(leaders) - snapshot.leaderless
    return [
        _picture(snapshot),
        {name: seen for name in names if (seen := dict(seen_epochs(metadata._epochs, name)))},
        metadata.topic_errors,
        metadata.allowed_at,
        sorted(metadata.topics),
    ]


def packed(response: MetadataResponse) -> PackedMetadataResponse:
    return PackedMetadataResponse.decode(b"".join(response.encode(12)), 12)


@given(st.lists(STEP, max_size=12), st.booleans())
def test_packed_and_plain_responses_result_in_the_same_metadata(
    steps: list[Any], looks: bool
) -> None:
    plain, ours = Known(), Known()
    now = 0.0
    for what, *details in steps:
        now += 20.0
        for metadata in (plain, ours):
            metadata.now = now
            if what == "answer":
                topics, full = details
                response = answer(*topics)
                if metadata is ours:
                    response = packed(response)
                    if looks:
                        ours.look_over(response)
                names = list(NAMES) if full else list(dict.fromkeys(t.name for t in topics))
                metadata.want(names)
                serial = metadata.sent(names)
                metadata.apply(response, names, now, partial=not full, fresh=False, serial=serial)
            elif what == "hint":
                metadata.hint(details[0], details[1], 1, details[2], [])
            elif what == "forget":
                metadata.forget()
            elif what == "again" and metadata.snapshot is not None:
                metadata.start_from(from_hint(to_hint(metadata.snapshot), now), now)
            elif what == "unused":
                metadata.forget_topics(details)
        assert _shown(plain) == _shown(ours)
    assert state(plain) == state(ours)


def _shown(metadata: Known) -> Any:
    """Return the state without calls that would decode stored epochs and so change it."""
    return [_picture(metadata.snapshot), metadata.topic_errors, metadata.allowed_at]


def test_an_equal_response_leaves_every_topic_unchanged() -> None:
    metadata = Known()
    said = answer(
        *(MetadataResponseTopic(0, n, ID, False, alike([(1, 3)] * 9, 0, 2)) for n in NAMES)
    )
    for now in (1.0, 2.0):
        metadata.apply(packed(said), NAMES, now, partial=False, fresh=False, serial=0)
        before = metadata.snapshot
        metadata.apply(packed(said), NAMES, now + 0.5, partial=False, fresh=False, serial=0)
        assert before is not None
        assert metadata.snapshot is not None
        assert metadata.snapshot.topics is before.topics
        assert metadata.snapshot.brokers is before.brokers


def test_other_topics_are_unchanged_when_one_topic_changes() -> None:
    metadata = Known()
    topics = [MetadataResponseTopic(0, n, ID, False, alike([(1, 3)] * 9, 0, 2)) for n in "tuvwx"]
    names = list("tuvwx")
    metadata.apply(packed(answer(*topics)), names, 1.0, partial=False, fresh=False, serial=0)
    before = metadata.snapshot
    topics[2].partitions[4].leader_epoch = 4
    metadata.want(names)
    metadata.apply(packed(answer(*topics)), names, 2.0, partial=False, fresh=False, serial=0)
    after = metadata.snapshot
    assert before is not None
    assert after is not None
    assert [n for n in names if after.topics[n] is not before.topics[n]] == ["v"]
    assert before.topics["v"].partitions[4].leader_epoch == 3
    assert after.topics["v"].partitions[4].leader_epoch == 4


def test_a_leader_hint_during_the_reading_of_a_response_is_kept() -> None:
    """Check that topics that were compared before the hint are compared again."""
    metadata = Known()
    rows = alike([(1, 3)] * 3, 0, 2)
    said = answer(MetadataResponseTopic(0, "t", ID, False, rows))
    metadata.apply(packed(said), ["t"], 1.0, partial=False, fresh=False, serial=0)
    rows[0].leader_epoch = 4
    large = packed(said)
    metadata.look_over(large)
    assert metadata.hint("t", 2, 2, 9, [])
    metadata.apply(large, ["t"], 2.0, partial=False, fresh=False, serial=0)
    assert metadata.snapshot is not None
    there = metadata.snapshot.topics["t"].partitions
    assert [(p.leader, p.leader_epoch) for p in there] == [(1, 4), (1, 3), (2, 9)]
