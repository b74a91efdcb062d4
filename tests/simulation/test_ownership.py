"""Calls refer to the partition ownership that the caller was notified of (R-ID-1, R-ID-2).

A member is frozen beyond its session, another member reads on and commits, and the first member
joins again in its I/O thread while its application still holds earlier records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.simulation.group_scene import PARTITIONS, Scene
from tests.volume import third

from odradek.api.consumer import Consumer
from odradek.clients.consumer.group.consumer_group import ConsumerGroup
from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import (
    AbortableTransactionError,
    CommitFailedError,
    IllegalStateError,
    KafkaError,
)
from odradek.common.types import TopicPartition
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.world.environment import ReceivedRequest

SHORT = pytest.mark.parametrize("kind", ["classic", "cooperative", "consumer"])
P = PARTITIONS[0]
Test = Callable[..., None]


def kinds(test: Test) -> Test:
    """Parametrize a test with both protocols and one other kind of member, or with all kinds."""
    others = third(["cooperative", "static", "static-consumer"], test.__name__)
    return pytest.mark.parametrize("kind", ["classic", "consumer", *others])(test)


def settings(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"enable_auto_commit": False}
    if kind == "cooperative":
        found["partition_assignment_strategy"] = "cooperative-sticky"
    if kind.startswith("static"):
        found["group_instance_id"] = name
    if not kind.endswith("consumer"):
        found |= {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1000}
    return found


def scene_of(kind: str) -> Scene:
    scene = Scene("consumer" if kind.endswith("consumer") else "classic")
    scene.write(range(40))
    return scene


def read(scene: Scene, consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Return the records of all partitions, by offset."""
    records: list[ConsumerRecord] = []
    end = scene.world.now + 60
    while len(records) < count:
        records += consumer.poll(1.0)
        assert scene.world.now < end
    return sorted(records, key=lambda r: (r.partition, r.offset))


def group_of(consumer: Consumer) -> ConsumerGroup:
    assert consumer._engine.group is not None
    return consumer._engine.group


def lost_by(scene: Scene, kind: str, a: Consumer, commits: int = 10) -> None:
    """Freeze the member until another one has read and committed, then let it join again."""
    group = group_of(a)
    member = group.membership
    assert member is not None
    before = member.generation
    frozen(scene, kind, commits)
    end = scene.world.now + 60
    while not (len(group.owned()) == 4 and member.generation not in (before, -1)):
        scene.world.advance(0.5)
        assert scene.world.now < end
    assert scene.committed() == [commits] * 4


def frozen(scene: Scene, kind: str, commits: int) -> None:
    """Freeze the first member until another has read and committed."""
    scene.world.hosts["a"].freeze()
    scene.world.advance(60)
    with scene.subscribed("b", **settings(kind, "b")) as b:
        read(scene, b, 40 - sum(offset or 0 for offset in scene.committed()))
        b.commit(dict.fromkeys(PARTITIONS, commits))
    scene.world.hosts["a"].freeze(False)


def rejoined(
    kind: str, listens: bool = True, commits: int = 10, **config: Any
) -> tuple[Scene, Consumer, list[ConsumerRecord]]:
    """Return a member that rejoined in the background, and the records that its program holds."""
    scene = scene_of(kind)
    a = scene.member("a", **{**settings(kind, "a"), **config})
    a.subscribe(["t"], **(scene.callbacks("a") if listens else {}))
    records = read(scene, a, 40)
    lost_by(scene, kind, a, commits)
    return scene, a, records


def refusals(a: Consumer, record: ConsumerRecord) -> list[Callable[[], object]]:
    by_hand = {record.topic_partition: record.offset + 1}
    return [
        *(lambda given=given: a.commit(given) for given in (record, [record], by_hand)),
        a.commit,
    ]


@kinds
@pytest.mark.parametrize("listens", [True, False], ids=["listener", "no listener"])
def test_commit_after_a_rejoin_in_the_background_is_refused(kind: str, listens: bool) -> None:
    scene, a, records = rejoined(kind, listens=listens)
    for _ in range(2):
        for call in refusals(a, records[0]):
            with pytest.raises(CommitFailedError, match="lost"):
                call()
    ends: list[KafkaError | None] = []
    for given in (records[0], {P: 1}, None):
        a.commit_async(given, lambda _, error: ends.append(error))
    scene.world.advance(2.0)
    assert scene.committed() == [10] * 4
    a.close()
    assert [type(end) for end in ends] == [CommitFailedError] * 3
    assert scene.committed() == [10] * 4


@kinds
def test_positions_of_a_lost_partition_are_unchanged(kind: str) -> None:
    """No retry of the old owner changes where the new owner starts."""
    scene, a, _ = rejoined(kind, commits=7)
    calls: list[Callable[[], object]] = [
        lambda: a.seek(P, 1),
        lambda: a.pause(P),
        lambda: a.resume(P),
        lambda: a.seek_to_beginning([P]),
        lambda: a.seek_to_end([P]),
        lambda: a.seek_to_committed([P]),
        lambda: a.seek_to_beginning(),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="and then assigned"):
            call()
    assert a.paused() == []
    assert a.assignment() == []
    a.pause(*a.assignment())  # no error for partitions that `assignment` returns
    found = read(scene, a, 12)
    assert sorted(a.assignment()) == PARTITIONS
    assert {(r.partition, r.offset) for r in found} == {(p, o) for p in range(4) for o in (7, 8, 9)}
    assert scene.log[-2:] == ["a lost 0 1 2 3", "a assigned 0 1 2 3"]
    a.seek(P, 1)
    assert next(r.offset for r in a.poll(1.0) if r.partition == 0) == 1


@kinds
def test_a_seek_before_the_loss_has_no_effect_afterwards(kind: str) -> None:
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"))
    read(scene, a, 40)
    a.seek(P, 1)
    a.pause(P)
    lost_by(scene, kind, a, commits=7)
    found = read(scene, a, 12)
    assert min(r.offset for r in found) == 7
    assert a.paused() == []


@kinds
@pytest.mark.parametrize("listens", [True, False], ids=["listener", "no listener"])
def test_a_notified_member_commits_records_that_it_has_read_since(kind: str, listens: bool) -> None:
    scene, a, old = rejoined(kind, listens=listens, commits=7)
    new = read(scene, a, 12)
    for stale in (old[0], old[5]):
        with pytest.raises(CommitFailedError, match="t-0"):
            a.commit(stale)
    assert scene.committed() == [7] * 4
    a.commit(new[0])
    assert scene.committed() == [8, 7, 7, 7]
    a.commit(old[8])  # this record was read again since
    a.commit({PARTITIONS[1]: 3})  # an explicit offset
    assert scene.committed() == [9, 3, 7, 7]
    assert set(a.commit().values()) == {OffsetAndMetadata(10, "", 0)}


@kinds
def test_an_empty_poll_also_notifies_the_caller_of_the_ownership(kind: str) -> None:
    scene, a, old = rejoined(kind, listens=False)
    assert a.poll(1.0) == []
    assert {offset.offset for offset in a.commit().values()} == {10}
    with pytest.raises(CommitFailedError):
        a.commit(old[0])
    a.seek(P, 3)
    assert a.poll(1.0)[0].offset == 3
    a.commit(old[3])  # after the seek the caller may move the group back
    assert scene.committed() == [4, 10, 10, 10]


@kinds
def test_callbacks_commit_for_the_ownership_that_they_announce(kind: str) -> None:
    scene = scene_of(kind)
    a = scene.member("a", **settings(kind, "a"))
    said: list[str] = []

    def tried(what: str, call: Callable[[], object]) -> None:
        try:
            call()
            said.append(f"{what} done")
        except KafkaError as error:
            said.append(f"{what} {type(error).__name__}")

    def lost(consumer: Consumer, _: list[TopicPartition]) -> None:
        tried("lost", lambda: consumer.commit({P: 3}))
        tried("lost", consumer.commit)
        tried("lost", lambda: consumer.seek(P, 3))

    def assigned(consumer: Consumer, _: list[TopicPartition]) -> None:
        tried("assigned", lambda: consumer.commit({P: 8}))
        tried("assigned", lambda: consumer.seek(P, 9))

    a.subscribe(["t"], on_assigned=assigned, on_lost=lost)
    read(scene, a, 31)  # the last record belongs to the first partition
    said.clear()
    lost_by(scene, kind, a)
    first = a.poll(1.0)
    assert said == [
        "lost CommitFailedError",
        "lost CommitFailedError",
        "lost IllegalStateError",
        "assigned done",
        "assigned done",
    ]
    assert [r.offset for r in first if r.partition == 0] == [9]
    assert scene.committed() == [8, 10, 10, 10]


@kinds
def test_the_end_of_a_poll_notifies_the_caller_without_on_assigned(kind: str) -> None:
    """Within on_lost, commits are still refused; after the poll they are accepted."""
    scene = scene_of(kind)
    a = scene.member("a", **settings(kind, "a"))
    said: list[type[BaseException]] = []

    def lost(consumer: Consumer, _: list[TopicPartition]) -> None:
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit({P: 3})
        said.append(caught.type)

    a.subscribe(["t"], on_lost=lost)
    read(scene, a, 40)
    lost_by(scene, kind, a)
    assert a.poll(1.0) == []
    assert said == [CommitFailedError]
    a.commit({P: 9})
    assert scene.committed() == [9, 10, 10, 10]


@kinds
def test_auto_commit_commits_nothing_of_lost_partitions(kind: str) -> None:
    scene, a, _ = rejoined(
        kind, commits=4, enable_auto_commit=True, auto_commit_interval_ms=600_000
    )
    a.close()
    assert scene.committed() == [4] * 4


@SHORT
def test_a_rejoined_member_sends_no_old_offsets_in_a_transaction(kind: str) -> None:
    scene, a, old = rejoined(kind, commits=7)
    with scene.transactional() as producer:
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError):
            producer.send_offsets_to_transaction(old[0], a.group_metadata())
        producer.abort_transaction()
        new = read(scene, a, 12)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(new[0], a.group_metadata())
        producer.commit_transaction()
    scene.world.advance(1.0)
    assert scene.committed() == [8, 7, 7, 7]


@SHORT
def test_a_commit_that_waits_while_its_member_is_removed_is_checked_again(kind: str) -> None:
    """The commit is requested while the member is the owner, but sent after it has rejoined."""
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"), default_api_timeout_ms=600_000)
    records = read(scene, a, 40)
    ends: list[KafkaError | None] = []
    for broker in scene.cluster.brokers.values():
        broker.delays[OffsetCommitRequest.API_KEY] = 5.0
    for record in records[:3]:
        a.commit_async(record, lambda _, error: ends.append(error))
    scene.world.hosts["a"].freeze()
    scene.world.advance(2.0)
    for broker in scene.cluster.brokers.values():
        broker.delays.clear()
    frozen(scene, kind, 10)
    end = scene.world.now + 30
    while len(ends) < 3:
        a.poll(0.5)
        assert scene.world.now < end
    assert ends[0] is None, "it had come to the coordinator"
    assert [type(end) for end in ends[1:]] == [CommitFailedError] * 2
    assert scene.committed() == [10] * 4


def commits_seen(scene: Scene) -> list[tuple[str, int]]:
    """Return the client and the generation or epoch of each OffsetCommit."""
    seen: list[tuple[str, int]] = []

    def note(_: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
        if request.api_key == OffsetCommitRequest.API_KEY:
            body = cast(OffsetCommitRequest, request.body)
            seen.append((client, body.generation_id_or_member_epoch))

    scene.cluster.observers.append(note)
    return seen


@SHORT
def test_records_from_before_a_rebalance_are_committed_if_the_partition_is_kept(kind: str) -> None:
    """The commit has the newest generation; offsets of moved partitions are refused."""
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"))
    records = read(scene, a, 40)
    b = scene.subscribed("b", **settings(kind, "b"))
    end = scene.world.now + 30
    while not (len(a.assignment()) == 2 and len(b.assignment()) == 2):
        a.poll(0.2)
        b.poll(0.2)
        assert scene.world.now < end
    mine, theirs = ([r for r in records if (r.topic_partition in c.assignment())] for c in (a, b))
    first = {p: next(r for r in mine if r.topic_partition == p) for p in a.assignment()}
    seen = commits_seen(scene)
    a.commit(list(first.values()))
    assert seen == [("a", a.group_metadata().generation_id)]
    with pytest.raises(CommitFailedError, match="another member"):
        a.commit(theirs[0])
    with pytest.raises(CommitFailedError, match="the other 2 partitions are committed"):
        a.commit([records[1], records[11], records[21], records[31]])
    found = dict(zip(PARTITIONS, scene.committed(), strict=True))
    assert {found[p] for p in a.assignment()} == {2}
    assert {found[p] for p in b.assignment()} == {None}


def test_a_commit_during_an_eager_rebalance_has_the_former_generation() -> None:
    """Until the assignment is known, another member may own the partition."""
    scene = scene_of("classic")
    a = scene.subscribed("a", **settings("classic", "a"))
    c = scene.subscribed("c", **settings("classic", "c"))
    end = scene.world.now + 60
    records: list[ConsumerRecord] = []
    while not (len(a.assignment()) == 2 and len(records) >= 20):
        records += [r for r in a.poll(0.2) if r.topic_partition in a.assignment()]
        c.poll(0.2)
        assert scene.world.now < end
    generation = a.group_metadata().generation_id
    records = [r for r in records if r.topic_partition in a.assignment()]
    scene.subscribed("b", **settings("classic", "b"))
    member = group_of(a).membership
    for broker in scene.cluster.brokers.values():
        broker.delays[SyncGroupRequest.API_KEY] = 2.0
    while member is None or member.state is not MemberState.COMPLETING_REBALANCE:
        a.poll(0.05)
        c.poll(0.05)
        assert scene.world.now < end
    seen = commits_seen(scene)
    chosen = [records[0], records[-1]]
    ends: dict[ConsumerRecord, KafkaError | None] = {}

    def note(record: ConsumerRecord) -> Callable[[object, KafkaError | None], None]:
        return lambda _, error: ends.update({record: error})

    for record in chosen:
        a.commit_async(record, note(record))
    scene.world.advance(0.5)
    assert {found for _, found in seen} == {generation}, "and not the one that may have lost it"
    while len(ends) < 2:
        a.poll(0.2)
        c.poll(0.2)
        assert scene.world.now < end
    owned = [record.topic_partition in a.assignment() for record in chosen]
    assert sorted(owned) == [False, True], "three members, four partitions"
    assert [ends[record] is None for record in chosen] == owned
    assert sum(offset is not None for offset in scene.committed()) == 1
    assert seen[-1][1] == generation + 1


@SHORT
def test_commits_of_partitions_that_another_member_owned_in_between_are_refused(kind: str) -> None:
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"))
    old = read(scene, a, 40)
    a.commit(dict.fromkeys(PARTITIONS, 5))
    b = scene.subscribed("b", **settings(kind, "b"))
    end = scene.world.now + 30
    while len(b.assignment()) != 2 or b.committed([b.assignment()[0]]) is None:
        a.poll(0.2)
        b.poll(0.2)
        assert scene.world.now < end
    moved = b.assignment()
    b.commit(dict.fromkeys(moved, 8))
    b.close()
    while len(a.assignment()) != 4:
        a.poll(0.2)
        assert scene.world.now < end
    for partition in moved:
        record = next(r for r in old if r.topic_partition == partition)
        with pytest.raises(CommitFailedError, match="another member"):
            a.commit(record)
    found = dict(zip(PARTITIONS, scene.committed(), strict=True))
    assert {found[p] for p in moved} == {8}


@kinds
def test_commits_of_records_read_before_unsubscribe_are_refused(kind: str) -> None:
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"))
    old = read(scene, a, 40)
    a.commit(dict.fromkeys(PARTITIONS, 6))
    a.unsubscribe()
    a.subscribe(["t"])
    end = scene.world.now + 60
    while len(a.assignment()) < 4:
        scene.world.advance(0.5)
        assert scene.world.now < end
    with pytest.raises(CommitFailedError, match="t-0"):
        a.commit(old[0])
    a.seek(P, 6)  # after subscribing again, no notification is pending
    a.commit({P: 6})
    read(scene, a, 16)
    with pytest.raises(CommitFailedError, match="t-0"):
        a.commit(old[0])
    a.commit(old[7])
    assert scene.committed() == [8, 6, 6, 6]


@pytest.mark.parametrize("kind", ["cooperative", "consumer"])
def test_commit_without_arguments_excludes_partitions_not_yet_announced(kind: str) -> None:
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"))
    read(scene, a, 40)
    b = scene.subscribed("b", **settings(kind, "b"))
    end = scene.world.now + 60
    while len(b.assignment()) != 2:
        a.poll(0.2)
        b.poll(0.2)
        assert scene.world.now < end
    kept = a.assignment()
    b.close()
    while len(a._engine.subscription.partitions) != 4:
        scene.world.advance(0.5)
        assert scene.world.now < end
    assert set(a.assignment()) == set(kept)
    assert set(a.commit()) == set(kept)
    a.poll(1.0)
    assert set(a.commit()) == set(PARTITIONS)


@SHORT
def test_commit_without_arguments_raises_after_a_loss_until_the_next_announcement(
    kind: str,
) -> None:
    """An empty result would mean that all is committed."""
    scene = scene_of(kind)
    a = scene.subscribed("a", **settings(kind, "a"), max_poll_interval_ms=20_000)
    read(scene, a, 40)
    scene.world.advance(40)
    for _ in range(2):
        with pytest.raises(CommitFailedError):
            a.commit()
    a.poll(0.0)
    assert scene.log[-1] == "a lost 0 1 2 3"
    with pytest.raises(CommitFailedError):
        a.commit()
    read(scene, a, 40)
    assert set(a.commit().values()) == {OffsetAndMetadata(10, "", 0)}


@kinds
@pytest.mark.parametrize("listens", [True, False], ids=["listener", "no listener"])
def test_a_member_that_lost_its_only_partition_has_nothing_to_commit(
    kind: str, listens: bool
) -> None:
    """After the next poll `commit()` refers to the current ownership."""
    scene = scene_of(kind)
    scene.cluster.create_topic("one", 1)
    a, b = (scene.member(name, **settings(kind, name)) for name in "ab")
    a.subscribe(["one"], **(scene.callbacks("a") if listens else {}))
    end = scene.world.now + 150
    while not a.assignment():
        a.poll(0.5)
        assert scene.world.now < end
    scene.world.hosts["a"].freeze()
    scene.world.advance(60)
    b.subscribe(["one"])
    while not b.assignment():
        b.poll(0.5)
        assert scene.world.now < end
    scene.world.hosts["a"].freeze(False)
    member = group_of(a).membership
    assert member is not None
    before = member.generation
    while member.state is not MemberState.STABLE or member.generation in (before, -1):
        b.poll(0.5)
        scene.world.advance(0.5)
        assert scene.world.now < end
    if kind == "static":  # the static member gets its former assignment (KIP-345)
        return
    with pytest.raises(CommitFailedError, match="lost"):
        a.commit()
    a.poll(0.5)
    assert a.assignment() == []
    assert a.commit() == {}
    assert a.group_metadata().generation_id == member.generation


@kinds
def test_a_revocation_waits_for_requested_commits(kind: str) -> None:
    """Commits are sent one after the other, so most aren't sent yet when on_revoked returns."""
    scene = scene_of(kind)
    a, b = (scene.member(name, **settings(kind, name)) for name in "ab")
    ends: dict[TopicPartition, KafkaError | None] = {}

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.commit_async(
                {partition: 10}, lambda offsets, error: ends.update(dict.fromkeys(offsets, error))
            )

    a.subscribe(["t"], on_revoked=revoked)
    read(scene, a, 40)
    b.subscribe(["t"])
    again: list[ConsumerRecord] = []
    end = scene.world.now + 60
    while not (len(a.assignment()) == 2 and len(b.assignment()) == 2 and len(ends) >= 2):
        a.poll(0.2)
        again += b.poll(0.2)
        assert scene.world.now < end
    assert set(ends.values()) == {None}
    again += b.poll(1.0)
    assert {r.topic_partition for r in again}.isdisjoint(ends)


@kinds
def test_a_revocation_waits_no_longer_than_its_own_commits(kind: str) -> None:
    """Commits of other partitions don't delay a revocation, as other members wait for its end."""
    scene = scene_of(kind)
    slow = {"default_api_timeout_ms": 2000, "request_timeout_ms": 2000, "enable_auto_commit": False}
    a, b = (scene.member(name, **{**settings(kind, name), **slow}) for name in "ab")
    ends: list[KafkaError | None] = []
    a.subscribe(
        ["t"],
        on_revoked=lambda c, ps: c.commit_async(
            dict.fromkeys(ps, 10), lambda _, error: ends.append(error)
        ),
    )
    read(scene, a, 40)
    for broker in scene.cluster.brokers.values():
        broker.delays[OffsetCommitRequest.API_KEY] = 30.0
    b.subscribe(["t"])
    end = scene.world.now + 30
    while not (len(a.assignment()) == 2 and len(b.assignment()) == 2):
        a.poll(0.2)
        b.poll(0.2)
        assert scene.world.now < end
    assert len(ends) == 1


@SHORT
@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "records"])
def test_a_transaction_accepts_offsets_of_partitions_that_are_still_owned(
    kind: str, by_hand: bool
) -> None:
    """The transaction's coordinator only checks the generation, which is the current one again."""
    scene = scene_of(kind)
    a, b = (scene.member(name, **settings(kind, name)) for name in "ab")
    a.subscribe(["t"])
    old = read(scene, a, 40)
    b.subscribe(["t"])
    end = scene.world.now + 60
    while not (len(a.assignment()) == 2 and len(b.assignment()) == 2):
        a.poll(0.2)
        b.poll(0.2)
        assert scene.world.now < end
    b.commit(dict.fromkeys(b.assignment(), 10))
    mine, theirs = ([r for r in old if r.topic_partition in c.assignment()] for c in (a, b))

    def given(record: ConsumerRecord) -> Any:
        return {record.topic_partition: record.offset + 1} if by_hand else record

    with scene.transactional() as producer:
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError, match="another member"):
            producer.send_offsets_to_transaction(given(theirs[0]), a.group_metadata())
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(given(mine[0]), a.group_metadata())
        producer.commit_transaction()
    scene.world.advance(1.0)
    found = dict(zip(PARTITIONS, scene.committed(), strict=True))
    assert {found[p] for p in b.assignment()} == {10}
    assert {found[p] for p in a.assignment()} == {1, None}


@SHORT
def test_a_member_that_lost_its_only_partition_sends_no_old_offsets_in_a_transaction(
    kind: str,
) -> None:
    scene = scene_of(kind)
    scene.cluster.create_topic("one", 1)
    scene.write(range(10), topic="one")
    a, b = (scene.member(name, **settings(kind, name)) for name in "ab")
    a.subscribe(["one"])
    old = read(scene, a, 10)
    scene.world.hosts["a"].freeze()
    scene.world.advance(60)
    b.subscribe(["one"])
    read(scene, b, 10)
    b.commit()
    scene.world.hosts["a"].freeze(False)
    for _ in range(20):
        a.poll(0.5)
        b.poll(0.5)
    assert a.commit() == {}
    with scene.transactional() as producer:
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError, match="another member"):
            producer.send_offsets_to_transaction(old[0], a.group_metadata())
        producer.abort_transaction()
    place = old[0].topic_partition
    stored = b.committed([place])[place]
    assert stored is not None
    assert stored.offset == 10
