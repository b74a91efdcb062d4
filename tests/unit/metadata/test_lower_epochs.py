"""Test a lower leader epoch without topic ids (R-MD-7): a stale broker or a recreated topic."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.unit.metadata.metadata_responses import ID, Known, answer, topic

from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.errors.kafka import NotLeaderOrFollowerError, UnknownLeaderEpochError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID

REFUSED = NotLeaderOrFollowerError("no")
LOST = DisconnectedError("gone")


class Leaders(Known):
    """Metadata of two partitions of epoch 10 that broker 1 leads."""

    def __init__(self, id_: bytes = NO_ID) -> None:
        super().__init__()
        self.id = id_
        self.respond(0.0, 1, 10)

    def respond(self, now: float, leader: int, epoch: int, *brokers: int) -> int | None:
        """Apply a response with a leader and an epoch; return the second partition's leader."""
        found = topic("t", [leader] * 2, epoch=epoch, id_=self.id)
        return self.refresh(now, answer(found, brokers=brokers or (1, 2)))

    def refuse(self, error: KafkaError | None = REFUSED) -> None:
        if error is not None:
            self.refused(TopicPartition("t", 0), error)

    def after(
        self, times: Iterable[float], error: KafkaError | None = REFUSED, *brokers: int
    ) -> list[int | None]:
        """Return the leader after each response with a lower epoch; report `error` before each."""
        found = []
        for now in times:
            self.refuse(error)
            found.append(self.respond(now, 2, 3, *brokers))
        return found


@pytest.mark.parametrize(
    ("times", "error", "brokers", "until"),
    [
        pytest.param(range(1, 12), REFUSED, (), 11, id="ten seconds"),
        pytest.param((1, 8, 15, 22, 29), REFUSED, (), 29, id="four responses are too few"),
        pytest.param([1 + n / 10 for n in range(90)], REFUSED, (), None, id="90 within 10 s"),
        pytest.param((1, 2, 3, 4, 60), REFUSED, (), None, id="the refusals are too old"),
        pytest.param(range(1, 200), None, (), None, id="without a refusal"),
        pytest.param(range(1, 200), LOST, (), None, id="with lost connections only"),
        pytest.param(range(1, 12), None, (2, 3), 11, id="without the known leader in the cluster"),
    ],
)
def test_a_lower_epoch_is_accepted_after_ten_seconds_of_responses_and_not_leader_errors(
    times: Iterable[float], error: KafkaError | None, brokers: tuple[int, ...], until: float | None
) -> None:
    found = Leaders().after(times, error, *brokers)
    assert found == [2 if time == until else 1 for time in times]


def test_a_lower_epoch_of_the_same_topic_id_is_always_ignored() -> None:
    assert set(Leaders(ID).after(range(1, 60))) == {1}


def test_an_accepted_lower_epoch_becomes_the_minimum_and_counts_as_progress() -> None:
    known = Leaders()
    known.after(range(1, 12))
    assert known.allowed_at == pytest.approx(11.1)
    assert known.respond(12.0, 1, 2) == 2
    assert known.respond(13.0, 1, 4) == 1


def test_a_response_with_the_known_epoch_resets_the_count_of_lower_epochs() -> None:
    known = Leaders()
    assert set(known.after(range(1, 10))) == {1}
    assert known.respond(10.0, 1, 10) == 1
    assert set(known.after(range(11, 21))) == {1}


def test_an_error_about_leadership_requests_metadata_unless_it_contains_a_leader_hint() -> None:
    known = Leaders()
    known.refused(TopicPartition("t", 0), REFUSED, hinted=True)
    assert known.due_at() > 1
    known.refuse(UnknownLeaderEpochError("higher than mine"))
    assert known.due_at() < 1
    assert known.why == "t-0: UnknownLeaderEpochError"


def test_the_counts_of_lower_epochs_of_unused_topics_are_deleted() -> None:
    known = Leaders()
    known.after(range(1, 6))
    known.refuse()
    known.forget_topics(["t"])
    assert not known._lower._doubts
    assert not known._lower._refused
