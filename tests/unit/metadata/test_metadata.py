"""Test a client's metadata: hints, the cluster id, topics in use, backoff of refreshes."""

from __future__ import annotations

from tests.unit.metadata.metadata_responses import Known, answer, topic

from odradek.protocol.messages.metadata import MetadataResponse


def led(leader: int, epoch: int) -> MetadataResponse:
    return answer(topic("t", [leader], epoch=epoch))


def test_metadata_with_a_lower_epoch_than_a_leader_hint_is_ignored() -> None:
    """Metadata that is older than the hint is ignored, also after a rebootstrap."""
    metadata = Known()
    metadata.refresh(0.0, led(1, 4))
    assert metadata.hint("t", 0, 2, 6, [])
    assert metadata.refresh(1.0, led(1, 5)) == 2
    metadata.forget()
    assert metadata.refresh(2.0, led(1, 5)) == -1  # a stale leader is not used
    assert metadata.refresh(3.0, led(1, 7)) == 1


def test_the_cluster_id_is_kept_if_a_response_has_none() -> None:
    metadata = Known()
    metadata.refresh(0.0, answer())
    for nothing in (None, ""):
        metadata.refresh(1.0, answer(cluster_id=nothing))
        assert metadata.snapshot is not None
        assert metadata.cluster_id == metadata.snapshot.cluster_id == "c"


def test_periodic_refreshes_do_not_increase_the_backoff_of_requested_refreshes() -> None:
    metadata = Known()
    for n in range(50):
        metadata.refresh(300.0 * n, led(1, 4))
    for now, wait in ((15_000.0, 0.1), (15_000.1, 0.2)):
        metadata.request("a leader is away")
        metadata.refresh(now, led(1, 4))
        assert round(metadata.allowed_at - now, 6) == wait


def test_a_topic_that_is_no_longer_used_is_deleted_and_reported_once() -> None:
    metadata, told = Known(), list[str]()
    metadata.on_forgotten.append(told.append)
    metadata.refresh(0.0, led(1, 4))
    metadata.use("t", 100.0)  # in a client, another thread calls `use`
    metadata.refresh(399.0, led(1, 4))
    assert not told
    metadata.refresh(401.0, answer())
    metadata.refresh(702.0, answer())
    assert told == ["t"]
    assert metadata.snapshot is not None
    assert not metadata.snapshot.topics
    assert not metadata.topics
    assert not metadata._epochs
