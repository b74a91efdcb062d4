"""Leader epochs of positions, and metadata that is older (R-ID-4)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.unit.metadata.known import ID, OTHER, Known, answer, topic

from odradek.common.errors.kafka import NotLeaderOrFollowerError
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import NO_ID, Broker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
B1, B2, B3, FRONT = (Address(name, 9092) for name in ("b1", "b2", "b3", "front"))


class Heard(Known):
    """Two partitions of epoch 3 that broker 1 leads, as broker 1 says."""

    def __init__(self, id_: bytes = ID, brokers: tuple[int, ...] = (1, 2, 3)) -> None:
        super().__init__()
        self.id, self.brokers = id_, brokers
        self.told(0.0, B1)

    def told(
        self, now: float, at: Address | None, leader: int = 1, epoch: int = 3, id_: bytes = b""
    ) -> int | None:
        """An answer from an address; who leads partition 1 then."""
        found = topic("t", [leader] * 2, epoch=epoch, id_=id_ or self.id)
        return self.refresh(now, answer(found, brokers=self.brokers), at)

    def leads(self, partition: TopicPartition) -> int:
        assert self.snapshot is not None
        found = self.snapshot.partition(*partition)
        assert found is not None
        return found.leader


def test_metadata_below_a_positions_epoch_has_no_leader_and_others_are_asked() -> None:
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
    assert metadata.told(0.2, B2) == -1
    assert list(metadata.heard.older) == [B1, B2]
    assert metadata.told(0.4, B3, leader=2, epoch=5) == 2
    assert not metadata.heard
    assert not metadata.heard.older
    assert not metadata.is_older(P1, 5)


@pytest.mark.parametrize("known", [5, 6, -1])
def test_metadata_that_is_as_new_or_has_no_epochs_counts(known: int) -> None:
    metadata = Heard()
    metadata.told(0.1, B1, epoch=known) if known > 0 else None
    if known < 0:
        metadata = Known()  # type: ignore[assignment]
        metadata.refresh(0.0, answer(topic("t", [1, 1], epoch=-1)))
    assert not metadata.is_older(P1, 5)
    assert not metadata.heard


def test_an_epoch_that_is_known_before_any_metadata() -> None:
    metadata = Known()
    assert metadata.is_older(P1, 5)
    metadata.refresh(0.1, answer(topic("t", [1, 1], epoch=3)), B1)
    assert metadata.snapshot is not None
    assert [p.leader for p in metadata.snapshot.topics["t"].partitions] == [1, -1]
    assert metadata.refresh(0.2, answer(topic("t", [2, 2], epoch=5)), B2) == 2


@pytest.mark.parametrize(
    ("brokers", "times", "at", "until"),
    [
        pytest.param((1, 2, 3), range(1, 13), [B1, B2], 10, id="most of three, ten seconds"),
        pytest.param((1, 2, 3), range(1, 60), [B1], None, id="one of three may be cut off"),
        pytest.param((1, 2), range(1, 60), [B1], None, id="half may be"),
        pytest.param(
            (1, 2), range(1, 60), [B1, FRONT], None, id="a bootstrap address may be any broker"
        ),
        pytest.param((1,), range(1, 13), [B1], 10, id="alone it is all there is"),
        pytest.param((1, 2, 3), (1, 8, 15, 22, 29), [B1, B2], 29, id="four are few"),
        pytest.param(
            (1, 2, 3), [1 + n / 10 for n in range(89)], [B1, B2], None, id="many in a short time"
        ),
    ],
)
@pytest.mark.parametrize("id_", [ID, NO_ID])
def test_how_long_an_older_epoch_is_not_believed(
    brokers: tuple[int, ...],
    times: Iterable[float],
    at: list[Address],
    until: float | None,
    id_: bytes,
) -> None:
    metadata = Heard(id_, brokers)
    assert metadata.is_older(P1, 5)
    led = {now: metadata.told(now, at[n % len(at)]) for n, now in enumerate(times)}
    assert [now for now, leader in led.items() if leader == 1] == [
        now for now in times if until is not None and now >= until
    ]
    # Then it is the truth for this epoch, and not for a higher one.
    assert metadata.is_older(P1, 5) is (until is None)
    assert metadata.is_older(P1, 6)


def test_another_topic_id_has_epochs_of_its_own() -> None:
    metadata = Heard()
    assert metadata.is_older(P1, 5, ID)
    assert metadata.told(1.0, B1, epoch=0, id_=OTHER) == 1
    assert not metadata.heard
    # A position whose id isn't known may be one of this topic.
    assert metadata.is_older(P1, 5)
    assert metadata.leads(P1) == -1


def test_a_topic_that_is_believed_to_be_recreated_is_not_doubted_again() -> None:
    metadata = Heard(NO_ID)
    for now in range(1, 13):
        metadata.refused(P1, NotLeaderOrFollowerError("no"))
        metadata.told(now, B2, leader=2, epoch=0)
    assert metadata.leads(P1) == 2
    assert not metadata.is_older(P1, 3)
    assert metadata.is_older(P1, 4)


def test_hints_below_it_are_refused() -> None:
    metadata = Heard()
    assert metadata.is_older(P1, 5)
    assert not metadata.hint("t", 1, 2, 4, [Broker(2, B2)])
    assert metadata.hint("t", 1, 2, 5, [Broker(2, B2)])
    assert metadata.leads(P1) == 2


def test_what_nobody_uses_is_forgotten() -> None:
    metadata = Heard()
    metadata.is_older(P1, 5)
    metadata.forget_topics(["t"])
    assert not metadata.heard
    assert not metadata.heard.older
