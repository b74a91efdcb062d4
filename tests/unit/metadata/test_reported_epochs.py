"""Test leader epochs of positions that are newer than the metadata (R-ID-4)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.unit.metadata.metadata_responses import ID, OTHER, Known, answer, topic

from odradek.common.errors.kafka import NotLeaderOrFollowerError
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import NO_ID, Broker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
B1, B2, B3, FRONT = (Address(name, 9092) for name in ("b1", "b2", "b3", "front"))


class Heard(Known):
    """Metadata of two partitions with epoch 3 and leader 1."""

    def __init__(self, id_: bytes = ID, brokers: tuple[int, ...] = (1, 2, 3)) -> None:
        super().__init__()
        self.id, self.brokers = id_, brokers
        self.respond(0.0, B1)

    def respond(
        self, now: float, at: Address | None, leader: int = 1, epoch: int = 3, id_: bytes = b""
    ) -> int | None:
        """Apply a response from an address and return the leader of partition 1."""
        found = topic("t", [leader] * 2, epoch=epoch, id_=id_ or self.id)
        return self.refresh(now, answer(found, brokers=self.brokers), at)

    def leads(self, partition: TopicPartition) -> int:
        assert self.snapshot is not None
        found = self.snapshot.partition(*partition)
        assert found is not None
        return found.leader


def test_a_partition_with_older_metadata_has_no_leader_until_a_newer_response() -> None:
    metadata = Heard()
    assert metadata.is_older(P1, 5)
    assert (metadata.leads(P0), metadata.leads(P1)) == (1, -1)
    assert metadata.snapshot is not None
    assert (metadata.snapshot.led, metadata.snapshot.leaderless) == (1, 1)
    assert metadata.requested
    assert list(metadata.heard.older) == [B1]
    assert metadata.heard.why(P0) is None
    said = "metadata of b1:9092 is older (epoch 3) than the position (epoch 5)"
    assert str(metadata.heard.why(P1)).startswith(said)
    assert metadata.respond(0.2, B2) == -1
    assert list(metadata.heard.older) == [B1, B2]
    assert metadata.respond(0.4, B3, leader=2, epoch=5) == 2
    assert not metadata.heard
    assert not metadata.heard.older
    assert not metadata.is_older(P1, 5)


@pytest.mark.parametrize("known", [5, 6, -1])
def test_metadata_of_the_same_epoch_or_without_epochs_is_used(known: int) -> None:
    metadata = Heard()
    metadata.respond(0.1, B1, epoch=known) if known > 0 else None
    if known < 0:
        metadata = Known()  # type: ignore[assignment]
        metadata.refresh(0.0, answer(topic("t", [1, 1], epoch=-1)))
    assert not metadata.is_older(P1, 5)
    assert not metadata.heard


def test_a_position_with_an_epoch_is_compared_with_the_first_metadata_response() -> None:
    metadata = Known()
    assert metadata.is_older(P1, 5)
    metadata.refresh(0.1, answer(topic("t", [1, 1], epoch=3)), B1)
    assert metadata.snapshot is not None
    assert [p.leader for p in metadata.snapshot.topics["t"].partitions] == [1, -1]
    assert metadata.refresh(0.2, answer(topic("t", [2, 2], epoch=5)), B2) == 2


@pytest.mark.parametrize(
    ("brokers", "times", "at", "until"),
    [
        pytest.param((1, 2, 3), range(1, 13), [B1, B2], 10, id="two of three, for 10 s"),
        pytest.param((1, 2, 3), range(1, 60), [B1], None, id="one of three brokers"),
        pytest.param((1, 2), range(1, 60), [B1], None, id="one of two brokers"),
        pytest.param(
            (1, 2), range(1, 60), [B1, FRONT], None, id="a bootstrap address may be any broker"
        ),
        pytest.param((1,), range(1, 13), [B1], 10, id="a cluster of one broker"),
        pytest.param((1, 2, 3), (1, 8, 15, 22, 29), [B1, B2], 29, id="four responses are too few"),
        pytest.param(
            (1, 2, 3),
            [1 + n / 10 for n in range(89)],
            [B1, B2],
            None,
            id="89 within 10 s",
        ),
    ],
)
@pytest.mark.parametrize("id_", [ID, NO_ID])
def test_older_metadata_is_accepted_after_enough_responses(
    brokers: tuple[int, ...],
    times: Iterable[float],
    at: list[Address],
    until: float | None,
    id_: bytes,
) -> None:
    metadata = Heard(id_, brokers)
    assert metadata.is_older(P1, 5)
    led = {now: metadata.respond(now, at[n % len(at)]) for n, now in enumerate(times)}
    assert [now for now, leader in led.items() if leader == 1] == [
        now for now in times if until is not None and now >= until
    ]
    # The older epoch is accepted now; a position with a higher epoch makes it outdated again.
    assert metadata.is_older(P1, 5) is (until is None)
    assert metadata.is_older(P1, 6)


def test_a_recreated_topic_has_its_own_epochs() -> None:
    metadata = Heard()
    assert metadata.is_older(P1, 5, ID)
    assert metadata.respond(1.0, B1, epoch=0, id_=OTHER) == 1
    assert not metadata.heard
    # The position has no topic id, so it may belong to the topic that is known now.
    assert metadata.is_older(P1, 5)
    assert metadata.leads(P1) == -1


def test_the_epochs_of_a_topic_accepted_as_recreated_are_not_rejected() -> None:
    metadata = Heard(NO_ID)
    for now in range(1, 13):
        metadata.refused(P1, NotLeaderOrFollowerError("no"))
        metadata.respond(now, B2, leader=2, epoch=0)
    assert metadata.leads(P1) == 2
    assert not metadata.is_older(P1, 3)
    assert metadata.is_older(P1, 4)


def test_leader_hints_with_a_lower_epoch_than_the_position_are_ignored() -> None:
    metadata = Heard()
    assert metadata.is_older(P1, 5)
    assert not metadata.hint("t", 1, 2, 4, [Broker(2, B2)])
    assert metadata.hint("t", 1, 2, 5, [Broker(2, B2)])
    assert metadata.leads(P1) == 2


def test_the_epochs_of_unused_topics_are_deleted() -> None:
    metadata = Heard()
    metadata.is_older(P1, 5)
    metadata.forget_topics(["t"])
    assert not metadata.heard
    assert not metadata.heard.older
