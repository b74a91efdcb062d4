"""Offsets belong to the topic that they were read from, not to its name (R-ID-3, R-ID-5)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.simulation.group_scene import MADE, PROTOCOLS, Scene
from tests.simulation.scene import Stage
from tests.volume import pairs, part, some

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import ConsumerGroupMetadata, ConsumerRecord
from odradek.common.errors import AbortableTransactionError, CommitFailedError, KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.simulation.brokers.broker_faults import slow_api

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
BY_NAME = {OffsetCommitRequest.API_KEY: (2, 9), TxnOffsetCommitRequest.API_KEY: (0, 5)}


class Recreated(Scene):
    """Topic t with one partition, which a test fills, deletes and creates again; and topic u."""

    def __init__(self, protocol: str = "consumer", seed: int = 1, **cluster: Any) -> None:
        Stage.__init__(self, seed, partitions=0, **cluster)
        self.protocol, self.log = protocol, []
        for name in ("t", "u"):
            self.cluster.create_topic(name, partitions=1)

    def fill(self, count: int, name: str, topic: str = "t") -> None:
        with self.producer() as producer:
            for n in range(count):
                producer.send(topic, b"%s %d" % (name.encode(), n), partition=0)

    def recreate(self, *, count: int, noticed: bool) -> None:
        """Recreate t with `count` records; if `noticed`, wait until the I/O thread notices."""
        self.cluster.delete_topic("t")
        self.cluster.create_topic("t", partitions=1)
        self.fill(count, "new")
        if noticed:
            self.world.advance(3)

    def poll_for(self, consumer: Consumer, seconds: float) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        end = self.world.now + seconds
        while self.world.now < end:
            records += consumer.poll(0.5)
        return records

    def reader(self, *, noticed: bool) -> Consumer:
        """Create a member that commits on request.

        Without `background` it doesn't notice changes of the topic between two calls.
        """
        given = {"group_id": "g", "group_protocol": self.protocol, "enable_auto_commit": False}
        MADE.append(self.consumer(name="a", background=noticed, **given))
        MADE[-1].subscribe(["t", "u"])
        return MADE[-1]

    def stored(self, partition: TopicPartition = TP) -> int | None:
        with self.member("observer", enable_auto_commit=False) as observer:
            found = observer.committed([partition])[partition]
        return None if found is None else found.offset

    def topic_id(self) -> str:
        with self.client(_admin(), "admin") as admin:
            return str(admin.describe_topics(["t"])["t"].topic_id)


def _admin() -> Any:
    from odradek.api.admin import Admin

    return Admin


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


@PROTOCOLS
@pytest.mark.parametrize("gone", some([0.74, 1.48, 2.22, 4.0, 8.0], 3))
def test_a_group_reads_all_records_of_a_topic_recreated_while_in_use(
    protocol: str, gone: float
) -> None:
    """Records that were processed before are committed while the topic is missing.

    A commit by name moved the group to offset 20 of the new topic, whose 6 records were never read.
    """
    scene = Recreated(protocol)
    scene.fill(20, "old")
    member = scene.subscribed()
    assert len(scene.poll_for(member, 3.3)) == 20
    scene.cluster.delete_topic("t")
    scene.poll_for(member, gone)
    scene.cluster.create_topic("t", partitions=1)
    scene.fill(6, "new")
    assert values(scene.poll_for(member, 60)) == [b"new %d" % n for n in range(6)]
    assert scene.stored() == 6


def last_record(consumer: Consumer, records: list[ConsumerRecord]) -> Any:
    return consumer.commit(records[-1:])


def by_hand(consumer: Consumer, records: list[ConsumerRecord]) -> Any:
    return consumer.commit({TP: records[-1].offset + 1})


def positions(consumer: Consumer, records: list[ConsumerRecord]) -> Any:
    return consumer.commit()


def in_background(consumer: Consumer, records: list[ConsumerRecord]) -> Any:
    heard: list[KafkaError | None] = []
    consumer.commit_async(records[-1:], lambda offsets, error: heard.append(error))
    while not heard:
        consumer.commit({OTHER: 0})  # calls the callbacks, but returns no records
    if heard[0] is not None:
        raise heard[0]


COMMITS = [last_record, by_hand, positions, in_background]
NOTICED = pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])


@PROTOCOLS
@NOTICED
@pytest.mark.parametrize(("commit", "count"), pairs(COMMITS, [20, 100]))
def test_a_commit_of_the_deleted_topic_is_refused(
    protocol: str,
    noticed: bool,
    commit: Callable[[Consumer, list[ConsumerRecord]], Any],
    count: int,
) -> None:
    scene = Recreated(protocol)
    before = scene.topic_id()
    scene.fill(50, "old")
    member = scene.reader(noticed=noticed)
    records = scene.poll_for(member, 8)
    assert len(records) == 50
    scene.recreate(count=count, noticed=noticed)
    with pytest.raises(TopicRecreatedError) as caught:
        commit(member, records)
    assert (caught.value.read_id, caught.value.current_id) == (before, scene.topic_id())
    assert not caught.value.retriable
    assert not caught.value.maybe_stored
    assert all(text in str(caught.value) for text in (before, scene.topic_id(), "t-0", "Nothing"))
    assert scene.stored() is None
    member.close()
    successor = scene.subscribed("b", enable_auto_commit=False)
    assert len(scene.poll_for(successor, 10)) == count


@PROTOCOLS
@NOTICED
def test_closing_with_auto_commit_stores_nothing_of_the_deleted_topic(
    protocol: str, noticed: bool
) -> None:
    scene = Recreated(protocol)
    scene.fill(50, "old")
    member = scene.subscribed(auto_commit_interval_ms=600_000)
    assert len(scene.poll_for(member, 8)) == 50
    scene.recreate(count=100, noticed=noticed)
    member.close()
    assert scene.stored() in (None, 0)


@PROTOCOLS
@NOTICED
def test_offsets_of_other_topics_in_a_refused_commit_are_stored(
    protocol: str, noticed: bool
) -> None:
    scene = Recreated(protocol)
    scene.fill(5, "old")
    scene.fill(7, "other", "u")
    member = scene.reader(noticed=noticed)
    assert len(scene.poll_for(member, 8)) == 12
    scene.recreate(count=30, noticed=noticed)
    with pytest.raises(TopicRecreatedError) as caught:
        member.commit()
    assert {p: o.offset for p, o in caught.value.results.items()} == {OTHER: 7}
    assert list(caught.value.errors) == [TP]
    assert (scene.stored(), scene.stored(OTHER)) == (None, 7)


@PROTOCOLS
def test_a_commit_fails_for_a_deleted_topic_and_stores_the_other_offsets(protocol: str) -> None:
    scene = Recreated(protocol)
    scene.fill(5, "old")
    scene.fill(7, "other", "u")
    member = scene.member(enable_auto_commit=False)
    member.subscribe(["t", "u"])
    assert len(scene.poll_for(member, 8)) == 12
    scene.cluster.delete_topic("t")
    began = scene.world.now
    # With KIP-848 the group revokes the partition meanwhile.
    with pytest.raises((UnknownTopicOrPartitionError, CommitFailedError)) as caught:
        member.commit()
    assert scene.world.now - began < 8
    if protocol == "classic":
        assert "no topic t with id" in str(caught.value)
        assert {p: o.offset for p, o in caught.value.results.items()} == {OTHER: 7}
    assert scene.stored(OTHER) == 7


@PROTOCOLS
def test_the_new_topic_is_committed_once_its_records_were_returned(protocol: str) -> None:
    scene = Recreated(protocol)
    scene.fill(50, "old")
    member = scene.subscribed(enable_auto_commit=False)
    old = scene.poll_for(member, 8)
    scene.recreate(count=20, noticed=True)
    new = scene.poll_for(member, 15)
    assert values(new) == [b"new %d" % n for n in range(20)]
    with pytest.raises(TopicRecreatedError):
        member.commit(old)  # from a thread that still processes old records
    assert (
        member.commit(old[:10])[TP].offset == 10
    )  # the new topic's records up to this offset were returned
    assert member.commit(new)[TP].offset == 20
    assert member.commit()[TP].offset == 20
    assert scene.stored() == 20


@PROTOCOLS
def test_a_commit_without_arguments_refers_to_the_returned_records(protocol: str) -> None:
    """Only the next poll makes the caller aware of the new topic, whose position then counts."""
    scene = Recreated(protocol)
    scene.fill(50, "old")
    member = scene.subscribed(enable_auto_commit=False)
    assert len(scene.poll_for(member, 8)) == 50
    scene.recreate(count=0, noticed=True)
    with pytest.raises(TopicRecreatedError):
        member.commit()
    assert scene.poll_for(member, 12) == []
    assert member.commit()[TP].offset == 0


def test_commits_of_a_deleted_topic_are_refused_if_brokers_accept_only_names() -> None:
    """The client compares topic ids of its metadata before the request."""
    scene = Recreated("classic", versions=BY_NAME)
    scene.fill(50, "old")
    member = scene.reader(noticed=True)
    records = scene.poll_for(member, 8)
    scene.recreate(count=100, noticed=True)
    with pytest.raises(TopicRecreatedError) as caught:
        member.commit(records[-1])
    assert not caught.value.maybe_stored
    assert scene.stored() is None


@pytest.mark.parametrize("gone", [0.05, 0.5, 2.0, 4.0])
def test_a_commit_by_name_of_a_missing_topic_is_not_stored_for_the_new_one(
    gone: float,
) -> None:
    """The coordinator doesn't know the topic; the retry waits for newer metadata (R-ID-5)."""
    scene = Recreated("classic", versions=BY_NAME)
    scene.fill(50, "old")
    member = scene.reader(noticed=True)
    records = scene.poll_for(member, 8)
    scene.cluster.delete_topic("t")
    heard: list[KafkaError | None] = []
    member.commit_async(records[-1:], lambda _, error: heard.append(error))
    scene.world.advance(gone)
    scene.cluster.create_topic("t", partitions=1)
    end = scene.world.now + 30
    while not heard and scene.world.now < end:
        member.poll(0.5)
    assert isinstance(heard[0], TopicRecreatedError | UnknownTopicOrPartitionError)
    assert scene.stored() is None


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("committed", [0, 60])
def test_a_member_with_stale_metadata_begins_at_the_committed_offset_of_the_new_topic(
    reset: str, committed: int
) -> None:
    """The member looks its offset up by name while its metadata has the deleted topic.

    It looks the offset up again once the metadata has the new topic, whose records before that
    offset another member has read.
    """
    scene = Recreated("classic", versions={**BY_NAME, OffsetFetchRequest.API_KEY: (1, 9)})
    scene.fill(50, "old")
    given = {"group_id": "g", "auto_offset_reset": reset, "session_timeout_ms": 6000}
    member = scene.consumer(name="a", background=False, enable_auto_commit=False, **given)
    MADE.append(member)
    member.subscribe(["t"])
    assert len(scene.poll_for(member, 5)) == (0 if reset == "latest" else 50)
    scene.world.advance(20)  # the group removes the member
    scene.recreate(count=100, noticed=False)
    if committed:
        with scene.consumer(name="b", enable_auto_commit=False, **given) as other:
            other.commit({TP: committed})
    slow_api(scene.cluster, "Metadata", 4.0)
    records = scene.poll_for(member, 20)
    assert values(records) == [b"new %d" % n for n in range(committed, 100)]


@pytest.mark.parametrize("gone", [0.05, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("call", ["commit", "transaction"])
def test_offsets_of_a_recreated_topic_are_not_sent_by_name(call: str, gone: float) -> None:
    """The member's metadata shows the deletion, but not yet the new topic (R-ID-3)."""
    scene = Recreated("classic", versions=BY_NAME)
    scene.fill(50, "old")
    member = scene.reader(noticed=True)
    records = scene.poll_for(member, 8)
    producer = scene.transactional()
    producer.begin_transaction()
    scene.cluster.delete_topic("t")
    scene.world.advance(gone)
    scene.cluster.create_topic("t", partitions=1)
    if call == "commit":
        with pytest.raises(TopicRecreatedError) as caught:
            member.commit(records[-1])
        assert not caught.value.maybe_stored
    else:
        with pytest.raises(AbortableTransactionError):
            producer.send_offsets_to_transaction(records[-1], member.group_metadata())
    producer.abort_transaction()
    producer.close()
    assert scene.stored() is None


def test_only_the_first_commit_by_name_waits_for_metadata_of_a_missing_topic() -> None:
    """Commits are sent in turn; if each waited, commits of other topics would pile up."""
    scene = Recreated("classic", versions=BY_NAME)
    scene.fill(20, "old")
    member = scene.reader(noticed=True)
    assert len(scene.poll_for(member, 3.3)) == 20
    scene.cluster.delete_topic("t")
    scene.poll_for(member, 5)
    ends: list[type[object]] = []
    began = scene.world.now
    for offset in range(100):
        member.commit_async({TP: 20, OTHER: offset}, lambda _, error: ends.append(type(error)))
    while len(ends) < 100:
        member.poll(0.1)
        assert scene.world.now < began + 3
    assert set(ends) == {UnknownTopicOrPartitionError}
    assert scene.stored(OTHER) == 99
    scene.cluster.create_topic("t", partitions=1)
    scene.fill(6, "new")
    while not scene.poll_for(member, 0.5):
        assert scene.world.now < began + 60
    member.commit({TP: 6, OTHER: 7})
    assert (scene.stored(), scene.stored(OTHER)) == (6, 7)


@pytest.mark.parametrize("gone", [0.05, 0.5, 2.0])
def test_offsets_by_name_in_a_transaction_are_not_stored_for_the_new_topic(gone: float) -> None:
    scene = Recreated("classic", versions=BY_NAME)
    scene.fill(50, "old")
    member = scene.reader(noticed=True)
    records = scene.poll_for(member, 8)
    producer = scene.transactional()
    producer.begin_transaction()
    producer.send("u", b"made of old", partition=0)
    producer.flush()
    scene.cluster.delete_topic("t")

    def create_again() -> None:
        scene.cluster.create_topic("t", partitions=1)

    scene.world.time.after(gone, create_again)
    with pytest.raises(AbortableTransactionError):
        producer.send_offsets_to_transaction(records[-1], member.group_metadata())
    producer.abort_transaction()
    producer.close()


@pytest.mark.parametrize("gone", [0.5, 2.0])
def test_a_refused_name_is_not_retried_for_a_group_given_by_its_id(gone: float) -> None:
    """No consumer's metadata shows that the topic is missing; a retry may reach a new topic."""
    scene = Recreated("classic", versions=BY_NAME)
    producer = scene.transactional()
    producer.partitions_for("t")
    producer.begin_transaction()
    scene.cluster.delete_topic("t")

    def create_again() -> None:
        scene.cluster.create_topic("t", partitions=1)

    scene.world.time.after(gone, create_again)
    with pytest.raises(AbortableTransactionError):
        producer.send_offsets_to_transaction({TP: 5}, "g")
    producer.abort_transaction()
    producer.close()
    scene.world.advance(gone)
    assert scene.stored() is None


@pytest.mark.parametrize("versions", [{}, BY_NAME], ids=["ids", "names"])
def test_a_commit_that_waits_for_its_coordinator_keeps_the_topic_id(
    versions: dict[int, tuple[int, int]],
) -> None:
    scene = Recreated("classic", versions=versions)
    scene.fill(50, "old")
    member = scene.reader(noticed=True)
    records = scene.poll_for(member, 8)
    broker = member._engine.group.coordinator.broker  # type: ignore[union-attr]
    scene.cluster.stop(broker or 0)
    scene.world.advance(0.5)
    heard: list[KafkaError | None] = []
    member.commit_async(records[-1:], lambda _, error: heard.append(error))
    scene.recreate(count=100, noticed=True)
    while not heard:
        member.poll(0.5)
    assert isinstance(heard[0], TopicRecreatedError)
    assert not heard[0].maybe_stored


def test_a_commit_by_name_raises_if_the_topic_id_changed_before_the_response() -> None:
    scene = Recreated("classic", versions=BY_NAME)
    scene.fill(50, "old")
    member = scene.reader(noticed=True)
    records = scene.poll_for(member, 8)
    for broker in scene.cluster.brokers.values():
        broker.delays[OffsetCommitRequest.API_KEY] = 3.0
    scene.cluster.delete_topic("t")
    scene.cluster.create_topic("t", partitions=1)
    with pytest.raises(TopicRecreatedError, match="may have been stored") as caught:
        member.commit({TP: records[-1].offset + 1, OTHER: 0})
    assert caught.value.maybe_stored
    assert list(caught.value.results) == [OTHER]


def test_topics_without_ids_are_committed_by_name_in_another_request() -> None:
    """One request contains either ids or names."""
    scene = Recreated()
    scene.fill(5, "old")
    member = scene.reader(noticed=True)
    assert len(scene.poll_for(member, 8)) == 5
    missing = TopicPartition("v", 0)  # unknown to the member's metadata
    scene.cluster.create_topic("v", partitions=1)
    assert set(member.commit({TP: 5, missing: 3, OTHER: 1})) == {TP, missing, OTHER}
    assert [scene.stored(p) for p in (TP, missing, OTHER)] == [5, 3, 1]
    assert member.committed([TP, missing, OTHER])[missing] is not None


@PROTOCOLS
@NOTICED
@pytest.mark.parametrize("versions", [{}, BY_NAME], ids=["ids", "names"])
def test_a_transaction_with_offsets_of_the_deleted_topic_must_be_aborted(
    protocol: str, noticed: bool, versions: dict[int, tuple[int, int]]
) -> None:
    scene = Recreated(protocol, versions=versions)
    scene.fill(50, "old")
    member = scene.reader(noticed=noticed)
    records = scene.poll_for(member, 8)
    producer = scene.transactional()
    scene.recreate(count=100, noticed=noticed)
    producer.begin_transaction()
    producer.send("u", b"made of old", partition=0)
    if versions and not noticed:  # the client isn't aware of the new topic, and aborts
        producer.send_offsets_to_transaction(records[-1], member.group_metadata())
        producer.abort_transaction()
        return
    began = scene.world.now
    with pytest.raises(AbortableTransactionError) as caught:
        producer.send_offsets_to_transaction(records[-1], member.group_metadata())
    assert scene.world.now - began < 8
    if noticed:
        assert isinstance(caught.value, TopicRecreatedError)
    producer.abort_transaction()
    assert scene.stored() is None
    producer.begin_transaction()
    new = scene.poll_for(member, 12)
    producer.send_offsets_to_transaction(new[-1], member.group_metadata())
    producer.commit_transaction()
    assert scene.stored() == 100
    producer.close()


def test_a_pickled_copy_of_the_group_metadata_has_the_public_type() -> None:
    import pickle

    scene = Recreated()
    member = scene.subscribed()
    found = member.group_metadata()
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 - made here
    assert again == found
    assert type(again) is ConsumerGroupMetadata
    assert repr(found) == repr(again)


@pytest.mark.parametrize("seed", range(part(40, 2)))
def test_random_recreations_lose_no_record_of_the_last_topic(seed: int) -> None:
    """Members commit at random times, crash, and are replaced by other members."""
    chance = random.Random(seed)
    scene = Recreated(chance.choice(["classic", "consumer"]), seed)
    automatic = chance.random() < 0.5
    handed: list[ConsumerRecord] = []
    mine: list[ConsumerRecord] = []  # records of the current member

    def begin() -> Consumer:
        mine.clear()
        return scene.subscribed(f"m{chance.random()}", enable_auto_commit=automatic)

    def poll(consumer: Consumer, seconds: float) -> None:
        mine.extend(scene.poll_for(consumer, seconds))
        handed.extend(mine)

    def commit(consumer: Consumer) -> None:
        kind = chance.choice([positions, last_record, by_hand] if mine else [positions])
        with suppress(TopicRecreatedError, CommitFailedError, UnknownTopicOrPartitionError):
            kind(consumer, mine)

    member = begin()
    count, name = 0, ""
    for round_ in range(4):
        count, name = chance.choice([3, 20, 60]), f"r{round_}"
        scene.fill(count, name)
        poll(member, chance.choice([0.5, 4.0, 12.0]))
        if chance.random() < 0.6:
            commit(member)
        if round_ < 3:
            scene.cluster.delete_topic("t")
            for _ in range(chance.randrange(3)):
                if chance.random() < 0.5:
                    poll(member, chance.uniform(0.1, 4.0))
                else:
                    commit(member)
            scene.cluster.create_topic("t", partitions=1)
            if chance.random() < 0.5:
                commit(member)
        if chance.random() < 0.3:
            if chance.random() < 0.5 or scene.protocol == "classic":
                member.close()
            else:  # without LeaveGroup: the group waits for the session timeout
                member._host.close(0.0)
            member = begin()
    poll(member, 120)
    last = {b"%s %d" % (name.encode(), n) for n in range(count)}
    assert last <= {record.value for record in handed}
    assert (scene.stored() or 0) <= count


def test_records_of_a_recreated_topic_are_read_only_after_its_assignment() -> None:
    """With KIP-848 the group may have assigned the new topic's partition to another member.

    The former owner of the deleted topic read the new topic because of its name.
    """
    scene = Recreated("consumer")
    scene.fill(10, "old")
    log: list[object] = []
    member = scene.reader(noticed=True)
    member.subscribe(
        ["t", "u"],
        on_assigned=lambda _, ps: log.extend(("assigned", p) for p in ps),
        on_revoked=lambda _, ps: log.extend(("revoked", p) for p in ps),
    )
    assert len(scene.poll_for(member, 8)) == 10
    slow_api(scene.cluster, "ConsumerGroupHeartbeat", 6.0)
    log.clear()
    scene.recreate(count=6, noticed=True)
    end = scene.world.now + 30
    while scene.world.now < end:
        log += [("record", TopicPartition(r.topic, r.partition)) for r in member.poll(0.5)]
    assert log == [("revoked", TP), ("assigned", TP), *[("record", TP)] * 6]


def test_a_heartbeat_asks_immediately_for_partitions_of_the_new_topic() -> None:
    """The next heartbeat would have been due up to 5 s later."""
    scene = Recreated("consumer")
    scene.fill(10, "old")
    member = scene.reader(noticed=True)
    assert len(scene.poll_for(member, 10)) == 10
    scene.recreate(count=6, noticed=False)
    began = scene.world.now
    while not member.poll(0.1):
        assert scene.world.now < began + 2


@pytest.mark.parametrize("noticed", [True, False])
def test_a_seek_to_an_offset_of_the_deleted_topic_is_refused(noticed: bool) -> None:
    scene = Recreated("classic")  # KIP-848 would assign the new topic again
    scene.fill(20, "old")
    a = scene.reader(noticed=noticed)
    assert len(scene.poll_for(a, 5.0)) == 20
    former = scene.topic_id()
    scene.recreate(count=30, noticed=noticed)
    if noticed:
        with pytest.raises(TopicRecreatedError, match="seek to offset 5 of t-0: .*poll") as refused:
            a.seek(TP, 5)
        assert (refused.value.read_id, refused.value.current_id) == (former, scene.topic_id())
    else:
        a.seek(TP, 5)
    assert [r.offset for r in scene.poll_for(a, 10.0)] == [*range(30)]
    a.seek(TP, 12)  # the caller has records of the new topic now
    assert [r.offset for r in scene.poll_for(a, 5.0)] == [*range(12, 30)]


@pytest.mark.parametrize("way", ["beginning", "seek_to_beginning", "assign"])
def test_seeks_that_are_valid_for_any_topic_are_allowed(way: str) -> None:
    scene = Recreated("classic")
    scene.fill(20, "old")
    a = scene.reader(noticed=True)
    assert len(scene.poll_for(a, 5.0)) == 20
    scene.recreate(count=30, noticed=True)
    if way == "beginning":
        a.seek(TP, 0)
    elif way == "seek_to_beginning":
        a.seek_to_beginning([TP])
        assert a.position(TP) == 0
        a.seek(TP, 7)
    else:
        a.unsubscribe()
        a.assign({TP: 7})
    first = 0 if way == "beginning" else 7
    assert [r.offset for r in scene.poll_for(a, 5.0)] == [*range(first, 30)]


OFFSETS: dict[str, Callable[[Consumer], int | None]] = {
    "end": lambda a: a.end_offsets([TP])[TP] - 10,
    "time": lambda a: (at := a.offsets_for_times({TP: 0})[TP]) and at.offset + 20,
    "beginning": lambda a: a.beginning_offsets([TP])[TP] + 20,
}


@pytest.mark.parametrize("ask", OFFSETS)
def test_a_seek_is_allowed_after_offsets_of_the_new_topic_were_requested(ask: str) -> None:
    scene = Recreated("classic")
    scene.fill(20, "old")
    a = scene.reader(noticed=True)
    assert len(scene.poll_for(a, 5.0)) == 20
    scene.recreate(count=30, noticed=True)
    a.end_offsets([OTHER])
    with pytest.raises(TopicRecreatedError):
        a.seek(TP, 20)
    a.seek(TP, OFFSETS[ask](a) or 0)
    assert [r.offset for r in scene.poll_for(a, 5.0)] == [*range(20, 30)]


def test_an_assignment_at_an_offset_of_the_deleted_topic_is_refused() -> None:
    """An offset for a partition that is already assigned counts as a seek."""
    scene = Recreated()
    scene.fill(20, "old")
    a = scene.consumer(name="a")
    MADE.append(a)
    a.assign([TP])
    assert len(scene.poll_for(a, 5.0)) == 20
    scene.recreate(count=30, noticed=True)
    with pytest.raises(TopicRecreatedError, match="seek to offset 20 of t-0"):
        a.assign({TP: 20, OTHER: 0})
    assert a.assignment() == [TP]
    a.assign([TP, OTHER])
    assert [r.offset for r in scene.poll_for(a, 5.0)] == [*range(30)]
    a.assign({TP: 20})
    assert [r.offset for r in scene.poll_for(a, 5.0)] == [*range(20, 30)]


def test_a_seek_to_the_beginning_is_allowed_at_any_time_of_a_recreation() -> None:
    """Seek also while the offsets of the new topic are looked up."""
    scene = Recreated("classic")
    scene.fill(20, "old")
    a = scene.reader(noticed=True)
    assert len(scene.poll_for(a, 5.0)) == 20
    scene.recreate(count=30, noticed=False)
    for _ in range(60):
        scene.world.advance(0.05)
        a.seek(TP, 0)
    assert [r.offset for r in scene.poll_for(a, 5.0)] == [*range(30)]


def test_a_listener_may_seek_in_a_recreated_topic() -> None:
    """The consumer notices the new topic within the poll that calls `on_assigned`."""
    scene = Recreated("consumer")
    scene.fill(20, "old")
    told: list[int] = []

    def assigned(consumer: Any, partitions: Any) -> None:
        if TP in partitions:
            consumer.seek(TP, 7 * len(told))
            told.append(len(partitions))

    a = scene.consumer(name="a", background=False, group_id="g", group_protocol="consumer")
    MADE.append(a)
    a.subscribe(["t", "u"], on_assigned=assigned)
    assert len(scene.poll_for(a, 8.0)) == 20
    scene.recreate(count=30, noticed=False)
    assert [r.offset for r in scene.poll_for(a, 15.0)] == [*range(7, 30)]
    assert len(told) == 2
