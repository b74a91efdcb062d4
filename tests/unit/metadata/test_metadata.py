"""What one client knows and wants: hints, the cluster id, topics in use, how often it asks."""

from __future__ import annotations

import random

from odradek.common.backoff import ExponentialBackoff
from odradek.metadata.metadata import Metadata
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = b"i" * 16


class Known(Metadata):
    """Metadata with a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(
            max_age=300.0,
            max_idle=300.0,
            retry=ExponentialBackoff(0.1, 1.0, 0.0),
            rng=random.Random(1),
            clock=lambda: self.now,
        )

    def refresh(self, now: float, response: MetadataResponse) -> None:
        self.now = now
        topics, partial = self.next_topics()
        serial = self.sent(topics)
        self.apply(response, topics, now, partial=partial, fresh=False, serial=serial)


def answer(leader: int, epoch: int, cluster_id: str | None = "c") -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in (1, 2)],
        cluster_id=cluster_id,
        topics=[MetadataResponseTopic(name="t", topic_id=ID, partitions=[partition])],
    )


def leader_of(metadata: Metadata) -> int | None:
    found = metadata.snapshot.leader("t", 0) if metadata.snapshot is not None else None
    return None if found is None else found.id


def test_a_hints_epoch_is_remembered() -> None:
    """A broker that lags behind the hint isn't believed, and that outlives a rebootstrap."""
    metadata = Known()
    metadata.want(["t"])
    metadata.refresh(0.0, answer(1, 4))
    assert metadata.hint("t", 0, 2, 6, [])
    metadata.refresh(1.0, answer(1, 5))
    assert leader_of(metadata) == 2
    metadata.forget()
    metadata.refresh(2.0, answer(1, 5))
    assert leader_of(metadata) is None  # better none than a stale one
    metadata.refresh(3.0, answer(1, 7))
    assert leader_of(metadata) == 1


def test_the_cluster_id_is_not_forgotten() -> None:
    metadata = Known()
    metadata.refresh(0.0, answer(1, 4))
    for nothing in (None, ""):
        metadata.refresh(1.0, answer(1, 4, nothing))
        assert metadata.cluster_id == "c"
        assert metadata.snapshot is not None
        assert metadata.snapshot.cluster_id == "c"  # other processes start from it


def test_refreshes_by_age_are_no_row_of_equivalent_answers() -> None:
    metadata = Known()
    metadata.want(["t"])
    for n in range(50):
        metadata.refresh(300.0 * n, answer(1, 4))
    metadata.request("a leader is away")
    metadata.refresh(15_000.0, answer(1, 4))
    assert round(metadata.allowed_at - 15_000.0, 6) == 0.1
    metadata.request("a leader is away")
    metadata.refresh(15_000.1, answer(1, 4))
    assert round(metadata.allowed_at - 15_000.1, 6) == 0.2


def test_what_leaves_is_told_once_and_leaves_nothing_behind() -> None:
    metadata, told = Known(), list[str]()
    metadata.on_forgotten.append(told.append)
    metadata.want(["t"])
    metadata.refresh(0.0, answer(1, 4))
    metadata.use("t", 100.0)  # by another thread
    metadata.refresh(399.0, answer(1, 4))
    assert not told
    nothing = MetadataResponse(brokers=answer(1, 4).brokers, cluster_id="c")
    metadata.refresh(401.0, nothing)
    metadata.refresh(702.0, nothing)
    assert told == ["t"]
    assert metadata.snapshot is not None
    assert not metadata.snapshot.topics
    assert not metadata.topics
    assert not metadata._epochs
