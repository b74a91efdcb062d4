"""The checker of `make soak-groups` reports each kind of fault, and nothing else."""

from __future__ import annotations

import pytest
from tests.soak.mixed_ledger import (
    MOST_TOLD,
    Ledger,
    Member,
    at_fault,
    known_to_group,
    last_leader,
)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger("g")
    made.create("t-a", range(2))
    for partition in ("t-a-0", "t-a-1"):
        for _ in range(20):
            made.write(partition)
    return made


def member(name: str, client: str = "ours", *topics: str) -> Member:
    return Member(name, client, "", list(topics) or ["t-a"])


def read(ledger: Ledger, reader: Member, partition: str, at: float = 1.0) -> None:
    for offset in range(20):
        ledger.read(reader, at, partition, offset)


def test_a_partition_without_exactly_one_owner_is_found(ledger: Ledger) -> None:
    a, b = member("a"), member("b", "java")
    for partition in ("t-a-0", "t-a-1"):
        read(ledger, a, partition)
    a.heard("assigned", 1.0, {"partitions": ["t-a-0", "t-a-1"]})
    assert ledger.left([a, b]) == {}
    b.heard("assigned", 2.0, {"partitions": ["t-a-1"]})
    assert list(ledger.left([a, b])) == ["t-a-1"]
    a.heard("revoked", 3.0, {"partitions": ["t-a-0", "t-a-1"]})
    assert list(ledger.left([a, b])) == ["t-a-0"]


def test_a_record_that_no_member_read_is_found(ledger: Ledger) -> None:
    a = member("a", "ours", "^t-.*")
    a.heard("assigned", 1.0, {"partitions": ["t-a-0", "t-a-1"]})
    read(ledger, a, "t-a-0")
    assert list(ledger.left([a])) == ["t-a-1"]
    assert ledger.left([member("b", "ours", "t-b")]) == {}


@pytest.mark.parametrize("fault", ["lost", "holds", "error", None])
@pytest.mark.parametrize("client", ["ours", "asyncio", "java"])
def test_records_may_be_read_again_after_a_fault(
    ledger: Ledger, client: str, fault: str | None
) -> None:
    a, b = member("a", client), member("b")
    read(ledger, a, "t-a-0")
    if fault is not None:
        a.heard(fault, 1.5, {"partitions": [], "error": "text"})
    a.heard("ended", 1.9, {})
    read(ledger, b, "t-a-0", at=2.0)
    found = ledger.read_again()
    assert len(list(ledger.again())) == 20
    if a.ours and fault is None:
        assert len(found) == MOST_TOLD + 1
        assert "t-a-0:0 was read by a (ours) at 1.000, and again by b" in found[0].replace(
            client, "ours"
        )
    else:
        assert found == []


def test_committed_offsets_must_not_move_back_and_must_reach_the_log_end(ledger: Ledger) -> None:
    a = member("a")
    read(ledger, a, "t-a-0")
    assert ledger.committed("t-a-0", 10) == []
    assert "moved back from 10 to 9" in ledger.committed("t-a-0", 9)[0]
    assert "beyond the end 20" in ledger.committed("t-a-0", 21)[0]
    ledger.committed("t-a-0", 0)
    assert "19 of 20 is committed" in ledger.committed("t-a-0", 19, final=True)[0]
    assert ledger.committed("t-a-0", 20, final=True) == []


@pytest.mark.parametrize("client", ["kafka-python", "java"])
@pytest.mark.parametrize("before", [True, False])
def test_kafka_python_may_resume_at_an_earlier_offset(
    ledger: Ledger, client: str, before: bool
) -> None:
    a, b = member("a"), member("b", client)
    partitions = {"partitions": ["t-a-0"]}
    if before:
        b.heard("assigned", 0.5, partitions)
        b.heard("revoked", 0.6, partitions)
    read(ledger, a, "t-a-0", at=1.0)
    ledger.committed("t-a-0", 20)
    a.heard("revoked", 1.5, partitions)
    b.heard("assigned", 1.6, partitions)
    read(ledger, b, "t-a-0", at=2.0)
    b.heard("revoked", 2.5, partitions)
    excused = before and client == "kafka-python"
    assert (ledger.read_again() == []) == excused
    assert (ledger.committed("t-a-0", 10) == []) == excused


RECEIVED = (
    "2026-12-01T04:58:01,682 INFO o.a.k.c.g.GroupMetadataManager [GroupCoordinator id=0] "
    "Assignment received from leader {}-26eba319-c59a-4ca8-9113-f700e13c7a82 for group {} for "
    "generation 1."
)


def test_partitions_that_another_clients_group_leader_does_not_assign_are_its_fault() -> None:
    a, b = member("a-0-1"), Member("a-1-2", "confluent", "g-1", ["t-a"])
    lines = [RECEIVED.format("a-0-1", "g"), RECEIVED.format("g-1", "g")]
    log = "\n".join([*lines, RECEIVED.format("a-0-1", "other")])
    assert last_leader(log, "g", [a, b]) is b
    assert last_leader(lines[0], "g", [a, b]) is a
    assert last_leader(log, "g", [a]) is last_leader("", "g", [a, b]) is None
    assert not at_fault(b, ["t-a-0"], {"x": ["t-a-1"]})
    assert at_fault(b, ["t-a-0"], {"x": ["t-a-0"]})
    assert at_fault(a, ["t-a-0"], {"x": ["t-a-1"]})
    assert at_fault(None, ["t-a-0"], {})
    assert not at_fault(None, [], {})
    assert not at_fault(None, ["t-a-0"], {b.name: ["t-a-0"]}, [a, b])
    assert at_fault(None, ["t-a-0"], {a.name: ["t-a-0"]}, [a, b])


def test_a_member_of_another_client_that_has_left_is_not_reported() -> None:
    a, b = member("a", "ours", "t-a"), member("b", "kafka-python", "t-a", "t-b")
    partitions = ["t-a-0", "t-b-0"]
    assert known_to_group(partitions, [a, b], ["a", "b"]) == {"t-a-0", "t-b-0"}
    assert known_to_group(partitions, [a, b], ["a"]) == {"t-a-0"}
    assert known_to_group(partitions, [a, b], None) == {"t-a-0", "t-b-0"}
    c = member("c", "asyncio", "t-b")
    assert known_to_group(partitions, [a, b, c], ["a"]) == {"t-a-0", "t-b-0"}
