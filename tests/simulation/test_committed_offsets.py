"""Commits and committed offsets on the wire: all versions, names and ids, errors."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import CommitFailedError, KafkaTimeoutError
from odradek.common.errors.kafka import TopicAuthorizationError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Scene(Stage):
    """Brokers with these versions, and consumers of one group."""

    def __init__(self, commit: int = 10, fetch: int = 10) -> None:
        versions = {
            OffsetCommitRequest.API_KEY: (OffsetCommitRequest.MIN_VERSION, commit),
            OffsetFetchRequest.API_KEY: (OffsetFetchRequest.MIN_VERSION, fetch),
        }
        super().__init__(3, brokers=2, partitions=2, versions=versions)
        self.cluster.create_topic("u", partitions=2)

    def consumer(self, **config: Any) -> Consumer:
        return super().consumer(group_id="g", **config)


@pytest.mark.parametrize("commit", range(OffsetCommitRequest.MIN_VERSION, 11))
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_offsets_are_committed_with_each_version_of_offset_commit(
    commit: int, isolation: str
) -> None:
    fetch = (commit * 7) % 10 + 1
    scene = Scene(commit, fetch)
    a = scene.consumer(isolation_level=isolation, group_instance_id="static")
    a.assign([T0, U0])
    assert a.position(T0) == 0  # the client knows the id of t now
    offsets = {T0: OffsetAndMetadata(5, "mine", 2), U0: OffsetAndMetadata(7)}
    a.commit(offsets)
    epoch = 2 if commit >= 6 and fetch >= 5 else -1
    found = a.committed([U0, T1, T0])
    assert found[U0] == OffsetAndMetadata(7)
    assert found[T1] is None
    committed = found[T0]
    assert committed is not None
    assert (committed.offset, committed.metadata) == (5, "mine")
    assert committed.leader_epoch == epoch
    assert list(found) == [U0, T1, T0]
    a.close()


@pytest.mark.parametrize("fetch", range(OffsetFetchRequest.MIN_VERSION, 11))
@pytest.mark.parametrize("known", [True, False], ids=["ids known", "names only"])
def test_committed_offsets_are_read_with_each_version_of_offset_fetch(
    fetch: int, known: bool
) -> None:
    scene = Scene(fetch=fetch)
    with scene.consumer(enable_auto_commit=False) as a:
        a.commit({T0: OffsetAndMetadata(5, "mine", 2)})
    b = scene.consumer(isolation_level="read_committed")
    if known:
        b.assign([T0, T1])
        assert b.position(T1) == 0
    epoch = 2 if fetch >= 5 else -1
    assert b.committed([T0, T1]) == {T0: OffsetAndMetadata(5, "mine", epoch), T1: None}
    assert b.committed([]) == {}
    b.close()


def test_a_refused_lookup_of_committed_offsets_does_not_delay_other_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    for topic in ("t", "u"):
        scene.write(range(1), topic)

    def refuse(answer: Any) -> None:
        for topic in (t for group in answer.groups for t in group.topics):
            if topic.topic_id == scene.cluster.topics["u"].id or topic.name == "u":
                for partition in topic.partitions:
                    partition.error_code = 29

    spoil_answers(monkeypatch, OffsetFetchRequest.API_KEY, refuse)
    a = scene.consumer()
    a.assign([T0, U0])
    read: list[str] = []
    refusals: list[str] = []
    while not (read and len(refusals) > 3):
        try:
            read += [r.topic for r in a.poll(1)]
        except TopicAuthorizationError as error:
            refusals.append(str(error))
    assert read == ["t"]
    assert all("u-0" in text for text in refusals)
    a.close()


def test_committed_waits_for_a_missing_topic_until_the_timeout() -> None:
    scene = Scene()
    with scene.consumer(enable_auto_commit=False) as a:
        began = scene.world.now
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            a.commit({TopicPartition("nix", 0): 1}, timeout=3)
        assert scene.world.now - began == pytest.approx(3, abs=0.1)


def test_a_member_that_was_removed_gets_an_error_and_rejoins() -> None:
    scene = Scene()
    scene.write(range(1))
    a = scene.consumer(enable_auto_commit=False)
    a.subscribe(["t"])
    assert len(a.poll(5)) == 1
    before = a.group_metadata().member_id
    broker = a._engine.group.coordinator.broker  # type: ignore[union-attr]
    cluster = scene.cluster
    group = cluster.groups.shard(cluster.brokers[broker or 0], "g").groups["g"]
    group.members.clear()
    with pytest.raises(CommitFailedError, match="joins the group again") as caught:
        a.commit()
    assert "UNKNOWN_MEMBER_ID" in str(caught.value.__cause__)
    a.poll(2)
    assert a.group_metadata().member_id not in ("", before)
    assert a.commit() == {T0: OffsetAndMetadata(1, "", 0), T1: OffsetAndMetadata(0)}
    a.close()


@pytest.mark.parametrize(
    ("version", "what"),
    [*product((7, 9, 10), ("a partition", "a topic", "everything")), (10, "the topic's id")],
)
def test_partitions_missing_in_a_response_are_requested_again(
    version: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a missing partition counted as one without an offset, auto.offset.reset would apply."""
    scene = Scene(10, version)
    writer = scene.consumer()
    writer.assign([T0, T1, U0])
    writer.commit({T0: 5, T1: 6, U0: 7})
    left = 3

    def cut(answer: Any) -> None:
        nonlocal left
        left = max(0, left - 1)
        for group in (answer.groups or [answer]) if left else ():
            if what == "a partition":
                group.topics[0].partitions.pop()
            elif what == "a topic":
                group.topics.pop()
            elif what == "everything":
                group.topics.clear()
            else:
                group.topics[0].topic_id = b"?" * 16

    spoil_answers(monkeypatch, OffsetFetchRequest.API_KEY, cut)
    reader = scene.consumer()
    reader.assign([T0, T1, U0])
    found = reader.committed([T0, T1, U0], timeout=20)
    assert [o.offset for o in found.values() if o] == [5, 6, 7]
    assert not left
    for one in (writer, reader):
        one.close()
