"""Every commit of a member that was removed from its group reports the removal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import AbortableTransactionError, CommitFailedError, KafkaError


def put_out(protocol: str, **config: Any) -> tuple[Scene, Any]:
    """Return a member that received records and then exceeded max.poll.interval.ms."""
    scene = Scene(protocol)
    scene.write(range(8))
    if protocol == "classic":
        config["session_timeout_ms"] = 10_000
    a = scene.subscribed(max_poll_interval_ms=20_000, **config)
    scene.read(a, 8)
    scene.world.advance(60)
    assert a.assignment() == []
    return scene, a


@PROTOCOLS
def test_commit_of_a_removed_member_reports_the_removal(protocol: str) -> None:
    scene, a = put_out(protocol, enable_auto_commit=False)
    for _ in range(2):
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            a.commit()
    with pytest.raises(CommitFailedError):
        a.commit({PARTITIONS[0]: 1})
    assert scene.committed() == [None] * 4
    a.close()


@PROTOCOLS
def test_commit_async_of_a_removed_member_reports_the_removal(protocol: str) -> None:
    scene, a = put_out(protocol, enable_auto_commit=False)
    told: list[KafkaError | None] = []
    a.commit_async(callback=lambda _, error: told.append(error))
    a.close()
    assert [type(e) for e in told] == [CommitFailedError]
    assert scene.committed() == [None] * 4


@PROTOCOLS
def test_a_removed_member_commits_again_after_it_has_rejoined(protocol: str) -> None:
    scene, a = put_out(protocol, enable_auto_commit=False)
    # nothing was committed, so all records are returned again
    assert sorted(scene.read(a, 8)) == list(range(8))
    assert set(a.commit()) == set(PARTITIONS)
    assert scene.committed() == [2, 2, 2, 2]
    a.close()


@PROTOCOLS
def test_a_commit_without_any_records_succeeds_without_a_request(protocol: str) -> None:
    """Commit before the join, after a join without a record, and after leaving the group."""
    scene = Scene(protocol)
    a = scene.member(enable_auto_commit=False)
    assert a.commit() == {}
    a.subscribe(["t"])
    assert a.commit() == {}
    told: list[Any] = []
    a.commit_async(callback=lambda offsets, error: told.append((offsets, error)))
    assert a.poll(5.0) == []
    assert told == [({}, None)]
    assert a.commit() == {p: OffsetAndMetadata(0) for p in PARTITIONS}
    a.unsubscribe()
    assert a.commit() == {}
    assert a.commit({PARTITIONS[1]: 0}) == {PARTITIONS[1]: OffsetAndMetadata(0)}


@PROTOCOLS
@pytest.mark.parametrize("alone", [True, False])
def test_a_removed_member_sends_no_offsets_in_a_transaction(protocol: str, alone: bool) -> None:
    """Test also an empty group, whose coordinator accepts offsets without a member id."""
    scene, a = put_out(protocol, enable_auto_commit=False)
    if not alone:
        b = scene.subscribed("b")
        assert sorted(scene.read(b, 8)) == list(range(8))
    with scene.transactional() as producer:
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError):
            producer.send_offsets_to_transaction({PARTITIONS[0]: 1}, a.group_metadata())
        producer.abort_transaction()
        if alone:
            assert sorted(scene.read(a, 8)) == list(range(8))
            producer.begin_transaction()
            producer.send_offsets_to_transaction({PARTITIONS[0]: 1}, a.group_metadata())
            producer.commit_transaction()
            scene.world.advance(1.0)
            assert scene.committed()[0] == 1
    a.close()
