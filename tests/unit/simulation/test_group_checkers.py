from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.unit.simulation.test_broker import records

from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.partition_log import check_batch
from odradek.simulation.checkers.group_checkers import GroupLedger
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC, GroupShard

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Member:
    """What the books see of a member."""

    name: str
    identity: tuple[str, int] = ("", 1)
    static: bool = False
    gone: set[TopicPartition] = field(default_factory=set)

    def lost(self, partition: TopicPartition) -> bool:
        return partition in self.gone


@pytest.fixture
def ledger() -> GroupLedger:
    cluster = SimulatedCluster(World(1), 1)
    cluster.create_topic("t", 2)
    cluster.groups.create()
    return GroupLedger("g", cluster)


def shard(ledger: GroupLedger) -> GroupShard:
    found = ledger.shard()
    assert found is not None
    return found


def test_one_owner_after_the_other_is_fine(ledger: GroupLedger) -> None:
    a, b = Member("a"), Member("b")
    ledger.assigned(a, [T0, T1])
    ledger.revoked(a, [T0])
    ledger.assigned(b, [T0])
    ledger.record(b, T0, 0, b"v")
    ledger.gone(a)
    ledger.assigned(b, [T1])
    assert (ledger.handed, ledger.again) == (1, 0)


def test_two_owners_in_one_generation(ledger: GroupLedger) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b", ("id-b", 3))
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="t-0, which a has in this generation"):
        ledger.assigned(b, [T0])


def test_a_static_member_that_is_late_for_a_generation_is_excused(ledger: GroupLedger) -> None:
    """KIP-345: it stays a member though it has no say, as long as its session lasts."""
    a, b = Member("a", ("id-a", 3), static=True), Member("b", ("id-b", 4))
    group = shard(ledger).consumer("g", create=True)
    group.members["id-a"] = group.members["id-b"] = None  # type: ignore[assignment]
    ledger.assigned(a, [T0])
    ledger.assigned(b, [T0])
    ledger.revoked(b, [T0])
    a.identity = ("id-a", 4)
    with pytest.raises(Violation, match="t-0, which a has in this generation"):
        ledger.assigned(b, [T0])


def test_who_goes_elsewhere_by_its_own_will_may(ledger: GroupLedger) -> None:
    a = Member("a")
    ledger.assigned(a, [T0])
    for offset in range(3):
        ledger.record(a, T0, offset, b"v")
    ledger.sought(a, T0)
    ledger.sought(a, T1)  # (it was lost meanwhile)
    ledger.record(a, T0, 1, b"v")
    with pytest.raises(Violation, match="at 1, though 2 was next"):
        ledger.record(a, T0, 1, b"v")


def test_an_owner_that_the_group_has_dropped_is_excused_and_no_other(ledger: GroupLedger) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b", ("id-b", 4))
    group = shard(ledger).consumer("g", create=True)
    ledger.assigned(a, [T0])
    ledger.assigned(b, [T0])
    ledger.revoked(b, [T0])
    group.members["id-a"] = None  # type: ignore[assignment]  # it is looked for, no more
    ledger.assigned(b, [T0])  # it was stopped meanwhile: neither is b a member
    ledger.revoked(b, [T0])
    group.members["id-b"] = None  # type: ignore[assignment]
    with pytest.raises(Violation, match="t-0, which a has, a member like it"):
        ledger.assigned(b, [T0])
    b.identity = ("", -1)
    with pytest.raises(Violation, match="t-0, though it isn't a member"):
        ledger.assigned(b, [T0])
    b.identity = ("id-b", 4)
    a.gone.add(T0)  # its client knows; the application comes later
    ledger.assigned(b, [T0])


def test_what_is_given_back_or_read_must_be_owned(ledger: GroupLedger) -> None:
    a = Member("a")
    with pytest.raises(Violation, match="gives back t-0"):
        ledger.revoked(a, [T0])
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="is assigned t-0, which it has"):
        ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    ledger.revoked(a, [T0])
    with pytest.raises(Violation, match="gets t-0 at 1, which it doesn't have"):
        ledger.record(a, T0, 1, b"v")


def test_order_and_gaps(ledger: GroupLedger) -> None:
    a, b = Member("a"), Member("b")
    ledger.assigned(a, [T0])
    with pytest.raises(Violation, match="at 1: 0 was never handed out"):
        ledger.record(a, T0, 1, b"v")
    for offset in range(3):
        ledger.record(a, T0, offset, b"v")
    with pytest.raises(Violation, match="at 1, though 3 was next"):
        ledger.record(a, T0, 1, b"v")
    ledger.revoked(a, [T0])
    ledger.assigned(b, [T0])
    ledger.record(b, T0, 1, b"v")  # from what was committed
    assert ledger.again == 1
    with pytest.raises(Violation, match="at 3, though 2 was next"):
        ledger.record(b, T0, 3, b"v")


def test_nothing_is_committed_that_nobody_was_handed(ledger: GroupLedger) -> None:
    a = Member("a")
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    shard(ledger).replay(("offset", "g", "t", 0), Committed(1))
    ledger.look()
    assert ledger.committed("t") == {0: 1}
    shard(ledger).replay(("offset", "g", "t", 0), Committed(2))
    with pytest.raises(Violation, match="t-0 is committed at 2, but 1 is the end"):
        ledger.look()


def test_what_is_missing_at_the_end(ledger: GroupLedger) -> None:
    a = Member("a")
    log = ledger.cluster.log("t", 0)
    data = bytes(records(b"x", b"y"))
    log.commit(log.append(data, check_batch(data), 0))
    assert ledger.settled("t") == "t-0 has the owners []"
    ledger.assigned(a, [T0, T1])
    assert ledger.settled("t") == "t-0 is read up to 0 of 2"
    ledger.record(a, T0, 0, b"x")
    with pytest.raises(Violation, match="t-0 at 1 was handed to nobody"):
        ledger.verify("t")
    ledger.record(a, T0, 1, b"z")
    assert ledger.settled("t") == ""
    with pytest.raises(Violation, match="t-0 at 1: b'z'"):
        ledger.verify("t")
    ledger.values[T0, 1] = b"y"
    ledger.verify("t")


def test_without_a_coordinator_there_is_nothing_to_compare(ledger: GroupLedger) -> None:
    ledger.cluster.crash(1)
    ledger.cluster.environment.time.run_until(3.0)
    assert ledger.cluster.leader(GROUP_TOPIC, 0) is None
    assert ledger.shard() is None
    ledger.look()


def test_what_is_worked_on_is_not_committed_and_comes_again_if_its_member_dies(
    ledger: GroupLedger,
) -> None:
    a, b = Member("a", ("id-a", 3)), Member("b")
    ledger.assigned(a, [T0])
    ledger.record(a, T0, 0, b"v")
    ledger.record(a, T0, 1, b"v")
    ledger.revoked(a, [T0])
    ledger.assigned(a, [T0])
    for offset in (1, 2):  # handed out twice before it dies: that isn't what it is owed
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
    ledger.assigned(b, [T0, T1])
    ledger.ends[T0] = 0  # as the log has it here
    assert ledger.settled("t") == "t-0 at 1 wasn't handed out again: who worked on it died"
    ledger.ends[T0] = 3
    ledger.record(b, T0, 1, b"v")
    ledger.ends[T0], ledger.stints["b"][T0].next_offset = 0, None
    assert ledger.settled("t") == ""
