from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.unit.simulation.test_broker import records

from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker_faults import recreate_topic
from odradek.simulation.checkers.group_checkers import SENT_BEFORE, GroupLedger
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.coordinators.consumer_protocol_group import ConsumerMember
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC, GroupShard
from odradek.simulation.logs.partition_log import check_batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Member:
    """The attributes of a member that the checker reads."""

    name: str
    identity: tuple[str, int] = ("", 1)
    static: bool = False
    auto_commits: bool = False
    gone: set[TopicPartition] = field(default_factory=set)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    former: bytes = NO_ID
    ids: dict[str, bytes] = field(default_factory=dict)

    def lost(self, partition: TopicPartition) -> bool:
        return partition in self.gone

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions.get(partition)

    def topic_id(self, topic: str) -> bytes:
        return self.ids.get(topic, NO_ID)

    def former_id(self, partition: TopicPartition) -> bytes:
        return self.former


@pytest.fixture
def ledger() -> GroupLedger:
    return ledger_of(1)


def ledger_of(brokers: int) -> GroupLedger:
    cluster = SimulatedCluster(World(1), brokers)
    cluster.create_topic("t", 2)
    cluster.groups.create()
    return GroupLedger("g", cluster)


def shard(ledger: GroupLedger) -> GroupShard:
    found = ledger.shard()
    assert found is not None
    return found


def test_successive_owners_of_a_partition_are_accepted(ledger: GroupLedger) -> None:
    a, b = Member("a"), Member("b")
    ledger.assigned(a, [T0, T1])
    ledger.revoked(a, [T0])
    ledger.assigned(b, [T0])
    ledger.record(b, T0, 0, b"v")
    ledger.gone(a)
    ledger.assigned(b, [T1])
    assert (ledger.handed, ledger.again) == (1, 0)


def test_two_owners_in_one_generation_are_reported(ledger: GroupLedger) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b", ("id-b", 3))
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="t-0, which a has in this generation"):
        ledger.assigned(b, [T0])


def test_a_static_member_that_rejoins_late_may_still_own_a_reassigned_partition(
    ledger: GroupLedger,
) -> None:
    """KIP-345: a static member remains in the group until its session times out."""
    a, b = Member("a", ("id-a", 3), static=True), Member("b", ("id-b", 4))
    group = shard(ledger).consumer("g", create=True)
    group.members |= {name: ConsumerMember(name) for name in ("id-a", "id-b")}
    ledger.assigned(a, [T0])
    ledger.assigned(b, [T0])
    ledger.revoked(b, [T0])
    a.identity = ("id-a", 4)
    with pytest.raises(Violation, match="t-0, which a has in this generation"):
        ledger.assigned(b, [T0])


def test_a_seek_by_the_application_is_accepted(ledger: GroupLedger) -> None:
    a = Member("a")
    ledger.assigned(a, [T0])
    for offset in range(3):
        ledger.record(a, T0, offset, b"v")
    ledger.sought(a, T0)
    ledger.sought(a, T1)  # ignored, as member a doesn't own t-1
    ledger.record(a, T0, 1, b"v")
    with pytest.raises(Violation, match="at 1, though 2 was next"):
        ledger.record(a, T0, 1, b"v")


def test_a_second_owner_is_accepted_only_if_the_group_has_removed_the_first_owner(
    ledger: GroupLedger,
) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b", ("id-b", 4))
    group = shard(ledger).consumer("g", create=True)
    ledger.assigned(a, [T0])
    ledger.assigned(b, [T0])
    ledger.revoked(b, [T0])
    group.members["id-a"] = None  # type: ignore[assignment]  # it is looked for, no more
    ledger.assigned(b, [T0])  # accepted, as member b isn't in the group yet
    ledger.revoked(b, [T0])
    group.members["id-b"] = None  # type: ignore[assignment]
    with pytest.raises(Violation, match="t-0, which a has, a member like it"):
        ledger.assigned(b, [T0])
    b.identity = ("", -1)
    with pytest.raises(Violation, match="t-0, though it isn't a member"):
        ledger.assigned(b, [T0])
    b.identity = ("id-b", 4)
    a.gone.add(T0)  # only a's client knows of the loss
    ledger.assigned(b, [T0])


def test_revoking_or_reading_a_partition_that_the_member_does_not_own_is_reported(
    ledger: GroupLedger,
) -> None:
    a = Member("a")
    with pytest.raises(Violation, match="returns t-0"):
        ledger.revoked(a, [T0])
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="is assigned t-0, which it has"):
        ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    ledger.revoked(a, [T0])
    with pytest.raises(Violation, match="gets t-0 at 1, which it doesn't have"):
        ledger.record(a, T0, 1, b"v")


def test_records_in_a_wrong_order_and_skipped_records_are_reported(ledger: GroupLedger) -> None:
    a, b = Member("a"), Member("b")
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="at 1: 0 was never returned to a caller"):
        ledger.record(a, T0, 1, b"v")
    for offset in range(3):
        ledger.record(a, T0, offset, b"v")
    with pytest.raises(Violation, match="at 1, though 3 was next"):
        ledger.record(a, T0, 1, b"v")
    ledger.revoked(a, [T0])
    ledger.assigned(b, [T0])
    ledger.record(b, T0, 1, b"v")  # a second read: member a got this record before
    assert ledger.again == 1
    with pytest.raises(Violation, match="at 3, though 2 was next"):
        ledger.record(b, T0, 3, b"v")


def test_a_commit_of_a_record_that_was_not_returned_is_reported(ledger: GroupLedger) -> None:
    a = Member("a")
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    shard(ledger).replay(("offset", "g", "t", 0), Committed(1))
    ledger.look()
    assert ledger.committed("t") == {0: 1}
    shard(ledger).replay(("offset", "g", "t", 0), Committed(2))
    with pytest.raises(Violation, match="t-0 is committed at 2, but returned records end at 1"):
        ledger.look()


def test_unread_records_and_partitions_without_an_owner_at_the_end_are_reported(
    ledger: GroupLedger,
) -> None:
    a = Member("a")
    log = ledger.cluster.log("t", 0)
    data = bytes(records(b"x", b"y"))
    log.commit(log.append(data, check_batch(data), 0))
    assert ledger.settled("t") == "t-0 has the owners []"
    ledger.assigned(a, [T0, T1])
    assert ledger.settled("t") == "t-0 is read up to 0 of 2"
    ledger.record(a, T0, 0, b"x")
    with pytest.raises(Violation, match="t-0 at 1 was returned to no member"):
        ledger.verify("t")
    ledger.record(a, T0, 1, b"z")
    assert ledger.settled("t") == ""
    with pytest.raises(Violation, match="t-0 at 1: b'z'"):
        ledger.verify("t")
    ledger.values[T0, 1] = b"y"
    ledger.verify("t")


def test_without_a_coordinator_no_violation_is_reported(ledger: GroupLedger) -> None:
    ledger.cluster.crash(1)
    ledger.cluster.environment.time.run_until(3.0)
    assert ledger.cluster.leader(GROUP_TOPIC, 0) is None
    assert ledger.shard() is None
    ledger.look()


def test_commits_of_unprocessed_records_and_unread_records_after_a_crash_are_reported(
    ledger: GroupLedger,
) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b")
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    ledger.record(a, T0, 1, b"v")
    ledger.revoked(a, [T0])
    ledger.assigned(a, [T0])
    for offset in (1, 2):  # records that a reads before it dies
        ledger.record(a, T0, offset, b"v")
    ledger.works_on(a, {T0: 1})
    group = shard(ledger).consumer("g", create=True)
    group.members["id-a"] = None  # type: ignore[assignment]  # it is looked for, no more
    shard(ledger).replay(("offset", "g", "t", 0), Committed(1))
    ledger.look()
    shard(ledger).replay(("offset", "g", "t", 0), Committed(2))
    with pytest.raises(Violation, match="works on t-0 at 1; 2 is committed"):
        ledger.look()
    a.gone.add(T0)
    ledger.look()
    ledger.gone(a)
    shard(ledger).replay(("offset", "g", "t", 0), Committed(1))  # offset 1 is still in progress
    ledger.assigned(b, [T0, T1])
    ledger.ends[T0] = 0  # the log is empty, although member a read a record
    assert (
        ledger.settled("t") == "t-0 at 1 wasn't returned again: the member that processed it died"
    )
    ledger.ends[T0] = 3
    ledger.record(b, T0, 1, b"v")
    ledger.ends[T0], ledger.stints["b"][T0].next_offset = 0, None
    assert ledger.settled("t") == ""


def test_a_new_owner_that_does_not_start_at_the_committed_offset_is_reported(
    ledger: GroupLedger,
) -> None:
    a = Member("a", ("id-a", 3))
    ledger.ends[T0] = 9
    shard(ledger).replay(("offset", "g", "t", 0), Committed(5, 1))
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 4, b"v")  # accepted, as member a isn't in the group
    ledger.revoked(a, [T0])
    members = shard(ledger).consumer("g", create=True).members
    members["id-a"] = ConsumerMember("id-a")
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="begins t-0 at 4; 5 is committed"):
        ledger.record(a, T0, 4, b"v")
    ledger.sought(a, T0)
    ledger.record(a, T0, 4, b"v")


def test_a_fenced_member_may_start_at_an_older_committed_offset() -> None:
    a, ledger = Member("a", ("id-a", 3)), ledger_of(3)
    ledger.ends[T0] = 9
    shard(ledger).replay(("offset", "g", "t", 0), Committed(2, 1))
    cluster = ledger.cluster
    topic = cluster.topics["__consumer_offsets"]
    cluster.zombie_leader(topic.partitions[cluster.groups.index("g")].leader)
    cluster.environment.time.run_until(5.0)
    shard(ledger).replay(("offset", "g", "t", 0), Committed(5, 1))
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 2, b"v")


# Committed offsets that move back, and recreated topics


def commits(ledger: GroupLedger, member: Member | None, offset: int) -> None:
    """Report to the checker that the coordinator accepted a commit of t-0 at `offset`."""
    ledger.commits("g", None if member is None else member.identity[0], {T0: Committed(offset)})


def test_only_a_late_commit_of_the_same_owner_may_move_a_committed_offset_back(
    ledger: GroupLedger,
) -> None:
    a, b = Member("a", ("id-a", 1)), Member("b", ("id-b", 2))
    ledger.assigned(a, [T0])
    for offset in range(9):
        ledger.record(a, T0, offset, b"v")
    for offset in (5, 9, 7, 9):
        commits(ledger, a, offset)
    ledger.look()
    assert ledger.hits["committed offset set back by a late commit of the same owner"] == 1
    ledger.commits("another group", "id-b", {T0: Committed(1)})
    ledger.look()
    ledger.assigned(b, [T1])
    commits(ledger, b, 3)
    with pytest.raises(Violation, match="was committed at 9 by a, and goes back to 3 by .* b"):
        ledger.look()


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize("zombie", ["leader", "another broker"])
def test_with_a_zombie_leader_an_offset_may_move_back_if_it_has_no_leader_epoch(
    epoch: int, zombie: str
) -> None:
    a, b, ledger = Member("a", ("id-a", 1)), Member("b", ("id-b", 2)), ledger_of(3)
    cluster = ledger.cluster
    leader = cluster.topics["t"].partitions[0].leader
    coordinator = cluster.topics[GROUP_TOPIC].partitions[cluster.groups.index("g")].leader
    ledger.ends[T0] = 9
    ledger.assigned(a, [T0])
    ledger.assigned(b, [T1])
    commits(ledger, a, 9)
    shard(ledger).replay(("offset", "g", "t", 0), Committed(9, epoch))
    others = cluster.brokers.keys() - {leader, coordinator}
    cluster.zombie_leader(leader if zombie == "leader" else min(others))
    commits(ledger, b, 3)
    if zombie == "leader" and epoch < 0:
        ledger.look()
        assert ledger.set_back == {T0: 9}
    else:
        with pytest.raises(Violation, match="goes back to 3"):
            ledger.look()


def test_a_transaction_that_moves_a_committed_offset_back_is_reported(ledger: GroupLedger) -> None:
    a = Member("a")
    ledger.assigned(a, [T0])
    for offset in range(9):
        ledger.record(a, T0, offset, b"v")
    commits(ledger, None, 9)
    commits(ledger, None, 8)
    with pytest.raises(Violation, match="goes back to 8 by a commit of a transaction"):
        ledger.look()


def test_a_members_ownership_ends_when_another_member_has_committed(ledger: GroupLedger) -> None:
    a, b = Member("a", ("id-a", 1)), Member("b", ("id-b", 2))
    ledger.assigned(a, [T0, T1])
    assert ledger.broken(a, T0) is None
    ledger.cluster.environment.time.run_until(1.0)
    commits(ledger, a, 0)
    a.identity = ("id-a2", 3)  # member a rejoined; its application doesn't know yet
    commits(ledger, a, 0)
    assert ledger.broken(a, T0) is None
    a.gone.add(T0)
    ledger.assigned(b, [T0])
    commits(ledger, b, 0)
    assert ledger.broken(a, T0) == "id-b"
    assert ledger.broken(a, T1) is None
    assert ledger.broken(b, T0) is None
    ledger.revoked(a, [T0])
    assert ledger.broken(a, T0) is None


def recreated(ledger: GroupLedger, value: bytes) -> None:
    """Delete the topic and create it again, with one record."""
    recreate_topic(ledger.cluster, "t")
    data = bytes(records(value))
    log = ledger.cluster.log("t", 0)
    log.commit(log.append(data, check_batch(data), 0))
    ledger.births[value] = ledger.place(T0)


@pytest.mark.parametrize(
    ("by_id", "again", "epoch", "offset", "knows", "reported"),
    [
        (False, True, 0, 1, False, False),
        (False, True, 3, 0, False, False),
        (False, False, 0, 7, False, True),
        (True, True, 0, 1, False, True),
        (False, True, 0, 1, True, True),
        (False, True, 0, 7, False, True),
    ],
    ids=["unread", "later epoch", "first topic", "by id", "new id known", "never written"],
)
def test_an_offset_of_a_deleted_topic_is_accepted_if_the_member_cannot_know_the_new_topic(
    ledger: GroupLedger, by_id: bool, again: bool, epoch: int, offset: int, knows: bool,
    reported: bool,
) -> None:  # fmt: skip
    """Before OffsetCommit 10 the coordinator stores an offset by the topic's name, not its id."""
    a = Member("a", ("id-a", 1))
    ledger.by_name = not by_id
    data = bytes(records(b"u"))
    log = ledger.cluster.log("t", 0)
    log.commit(log.append(data, check_batch(data), 0))
    ledger.assigned(a, [T0])
    if again:
        recreated(ledger, b"v")
    if knows:
        a.ids["t"] = ledger.cluster.topics["t"].id
        ledger.look()
        ledger.cluster.environment.time.run_until(SENT_BEFORE + 1.0)
    ledger.commits("g", "id-a", {T0: Committed(offset, epoch)})
    assert bool(ledger.violations) == reported
    assert ledger.hits["offset of a deleted topic committed by name"] == (not reported)
    assert (ledger.place(T0) in ledger.misnamed) == (not reported)


def test_a_recreated_topic_is_checked_separately_from_the_deleted_one(ledger: GroupLedger) -> None:
    a = Member("a")
    ledger.assigned(a, [T0, T1])
    for offset, value in enumerate((b"v", b"w")):
        ledger.births[value] = T0
        ledger.record(a, T0, offset, value)
    recreated(ledger, b"x")
    assert list(ledger.lives("t")) == ["t", "t#2"]
    assert ledger.settled("t") == "t#2-0 is read up to 0 of 1"
    with pytest.raises(Violation, match="t#2-0 at 0 was returned to no member"):
        ledger.verify("t")
    shard(ledger).replay(("offset", "g", "t", 0), Committed(2))
    ledger.look()  # the coordinator will delete the old topic's offset
    commits(ledger, a, 2)
    with pytest.raises(Violation, match="t#2-0 is committed at 2, but returned records end at 0"):
        ledger.look()
    ledger.violations.clear()
    shard(ledger).replay(("forget", "t"), None)
    ledger.look()
    ledger.record(a, T0, 0, b"x")
    with pytest.raises(Violation, match="gets t-0 after records of t#2"):
        ledger.record(a, T0, 1, b"w")
    assert ledger.settled("t") == ""
    ledger.verify("t")
    assert ledger.hits["topic created again with offsets of the deleted one pending"] == 1


def test_a_recreated_topic_may_be_assigned_while_the_old_one_is_owned(ledger: GroupLedger) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b", ("id-b", 3))
    ledger.assigned(a, [T0])
    ledger.by_id = True
    recreated(ledger, b"x")
    ledger.assigned(b, [T0])
    ledger.record(b, T0, 0, b"x")
    commits(ledger, b, 1)
    ledger.look()
    commits(ledger, a, 0)
    with pytest.raises(Violation, match="t#2-0 was committed at 1 by b, and goes back to 0"):
        ledger.look()
    ledger.violations.clear()
    commits(ledger, a, 5)  # the old topic had an offset 5
    with pytest.raises(Violation, match="t#2-0 is committed at 5, but returned records end at 1"):
        ledger.look()
    ledger.violations.clear()
    assert ledger.broken(a, T0) is None
    ledger.revoked(a, [T0])
    ledger.by_id = False
    recreated(ledger, b"y")
    with pytest.raises(Violation, match="t-0, which b has"):
        ledger.assigned(a, [T0])


def test_an_assignment_of_a_deleted_topic_may_arrive_after_the_topics_recreation(
    ledger: GroupLedger,
) -> None:
    """Member a still gets the deleted topic's partition, while b owns the new topic's."""
    a, b = Member("a", ("id-a", 1)), Member("b", ("id-b", 5))
    ledger.by_id = True
    group = shard(ledger).consumer("g", create=True)
    topics = ledger.cluster.topics
    old = (topics["t"].id, 0)
    recreated(ledger, b"x")
    new = (topics["t"].id, 0)
    group.members = {
        "id-a": ConsumerMember("id-a", revoking=frozenset({old})),
        "id-b": ConsumerMember("id-b", assigned=frozenset({new})),
    }
    ledger.assigned(b, [T0])
    ledger.assigned(a, [T0])
    assert [ledger.stints[m][T0].born for m in ("a", "b")] == ["t", "t#2"]
    ledger.revoked(a, [T0])
    group.members["id-a"] = ConsumerMember("id-a", assigned=frozenset({old, new}))
    with pytest.raises(Violation, match="t-0, which b has, a member like it"):
        ledger.assigned(a, [T0])


def test_commits_of_a_topic_that_is_deleted_meanwhile_are_ignored(ledger: GroupLedger) -> None:
    ledger.cluster.group_settings.observers.append(ledger.commits)
    heard: list[object] = []
    words = ("", -1, None)
    shard(ledger).commit("g", words, 9, {T0: Committed(0)}, heard.append)
    ledger.cluster.environment.time.run_until(1.0)
    assert ledger.taken[T0] == (0, "")
    shard(ledger).commit("g", words, 9, {T0: Committed(5)}, heard.append)
    recreated(ledger, b"x")
    ledger.cluster.environment.time.run_until(2.0)
    assert (heard, list(ledger.taken)) == ([None, None], [T0])
    assert shard(ledger).committed("g").stable == {}
    ledger.look()


def test_with_reset_to_latest_records_after_the_first_commit_must_be_read(
    ledger: GroupLedger,
) -> None:
    a, b = Member("a", ("id-a", 1)), Member("b", ("id-b", 2))
    ledger.latest = True
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 5, b"v")  # without a committed offset, a may start anywhere
    ledger.revoked(a, [T0])
    ledger.assigned(b, [T0])
    commits(ledger, b, 8)
    ledger.revoked(b, [T0])
    ledger.assigned(a, [T0, T1])
    with pytest.raises(Violation, match="gets t-0 at 9: 6 was never returned to a caller"):
        ledger.record(a, T0, 9, b"w")
    ledger.record(a, T0, 8, b"w")
    assert ledger.settled("t") == "t-0 is read up to None of 0 by a"
    a.positions = {T0: 0, T1: 0}
    assert ledger.settled("t") == ""
    ledger.verify("t")


def stored(ledger: GroupLedger, member: Member, offset: int, now: float) -> None:
    """Advance to a time, and let the coordinator accept and store an offset of t-0."""
    ledger.cluster.environment.time.run_until(now)
    commits(ledger, member, offset)
    shard(ledger).replay(("offset", "g", "t", 0), Committed(offset, at=now))


def expires(ledger: GroupLedger, now: float) -> None:
    """Advance to a time, and let the coordinator delete the offset of t-0."""
    ledger.cluster.environment.time.run_until(now)
    shard(ledger).replay(("offset", "g", "t", 0), None)


def test_records_after_an_expired_offset_may_be_read_and_committed_again(
    ledger: GroupLedger,
) -> None:
    a, b = Member("a", ("id-a", 1)), Member("b", ("id-b", 2))
    ledger.cluster.group_settings.offsets_retention = 900.0
    ledger.assigned(a, [T0])
    for offset in range(5):
        ledger.record(a, T0, offset, b"v")
    stored(ledger, a, 4, 1.0)
    stored(ledger, a, 3, 1.0)
    assert ledger.set_back == {T0: 4}
    ledger.gone(a)
    ledger.assigned(b, [T0])
    expires(ledger, 1000.0)
    ledger.record(b, T0, 0, b"v")
    stored(ledger, b, 1, 1001.0)
    ledger.look()
    assert (ledger.again, ledger.set_back) == (0, {})
    assert ledger.hits["committed offset that no client renews expired"] == 1
    commits(ledger, a, 0)
    with pytest.raises(Violation, match="was committed at 1 by b, and goes back to 0"):
        ledger.look()


@pytest.mark.parametrize("expired", [True, False])
def test_with_reset_to_latest_records_may_be_skipped_only_if_the_offset_expired(
    ledger: GroupLedger, expired: bool
) -> None:
    a, b = Member("a", ("id-a", 1)), Member("b", ("id-b", 2))
    ledger.latest, ledger.cluster.group_settings.offsets_retention = True, 900.0
    shard(ledger).consumer("g", create=True).members["id-b"] = ConsumerMember("id-b")
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    stored(ledger, a, 1, 1.0)
    ledger.gone(a)
    ledger.assigned(b, [T0])
    if expired:
        expires(ledger, 1000.0)
        ledger.record(b, T0, 9, b"w")
        ledger.look()
    else:
        ledger.cluster.environment.time.run_until(1000.0)
        with pytest.raises(Violation, match="gets t-0 at 9: 1 was never returned to a caller"):
            ledger.record(b, T0, 9, b"w")


@pytest.mark.parametrize("late", [True, False])
def test_an_offset_that_expires_too_soon_after_its_auto_committing_owner_left_is_reported(
    ledger: GroupLedger, late: bool
) -> None:
    a = Member("a", ("id-a", 1), auto_commits=True)
    ledger.cluster.group_settings.offsets_retention = 900.0
    shard(ledger).consumer("g", create=True).members["id-a"] = ConsumerMember("id-a")
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    stored(ledger, a, 1, 1.0)
    ledger.look()
    ledger.gone(a)
    expires(ledger, 1000.0 if late else 100.0)
    b = Member("b", ("id-b", 2))
    ledger.assigned(b, [T0])
    ledger.record(b, T0, 0, b"v")
    commits(ledger, b, 1)
    if late:
        ledger.look()
    else:
        with pytest.raises(Violation, match="committed offset of t-0 has expired 99 s after"):
            ledger.look()


RETENTION = 900.0


def expired(ledger: GroupLedger, *, age: float) -> Member:
    """Let member a commit t-0 at 5 and leave; expire the offset after `age`; return member b."""
    ledger.cluster.group_settings.offsets_retention = RETENTION
    a = Member("a", ("id-a", 1), auto_commits=True)
    group = shard(ledger).consumer("g", create=True)
    group.members["id-a"] = group.members["id-b"] = None  # type: ignore[assignment]
    ledger.assigned(a, [T0])
    for offset in range(5):
        ledger.record(a, T0, offset, b"v")
    commits(ledger, a, 5)
    shard(ledger).replay(("offset", "g", "t", 0), Committed(5))
    ledger.look()
    ledger.gone(a)
    world = ledger.cluster.environment
    assert isinstance(world, World)
    world.advance(age)
    shard(ledger).replay(("offset", "g", "t", 0), None)
    return Member("b", ("id-b", 2), auto_commits=True)


def test_after_an_offset_has_expired_the_next_owner_may_commit_a_lower_offset(
    ledger: GroupLedger,
) -> None:
    b = expired(ledger, age=RETENTION)
    ledger.assigned(b, [T0])
    ledger.look()
    ledger.look()
    ledger.record(b, T0, 0, b"v")
    commits(ledger, b, 1)  # accepted, because the offset 5 has expired
    shard(ledger).replay(("offset", "g", "t", 0), Committed(1))
    ledger.look()
    shard(ledger).replay(("offset", "g", "t", 0), None)
    with pytest.raises(Violation, match="offset of t-0 has expired 0 s after its last owner"):
        ledger.look()
