"""A lower leader epoch without topic ids (R-MD-7): a stale broker, or a topic made again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.unit.metadata.known import ID, Known, answer, topic

from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.errors.kafka import NotLeaderOrFollowerError, UnknownLeaderEpochError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID

REFUSED = NotLeaderOrFollowerError("no")
LOST = DisconnectedError("gone")


class Leaders(Known):
    """Two partitions of epoch 10 that broker 1 leads."""

    def __init__(self, id_: bytes = NO_ID) -> None:
        super().__init__()
        self.id = id_
        self.told(0.0, 1, 10)

    def told(self, now: float, leader: int, epoch: int, *brokers: int) -> int | None:
        """An answer that names a leader and an epoch; who leads the second partition then."""
        found = topic("t", [leader] * 2, epoch=epoch, id_=self.id)
        return self.refresh(now, answer(found, brokers=brokers or (1, 2)))

    def refuse(self, error: KafkaError | None = REFUSED) -> None:
        if error is not None:
            self.refused(TopicPartition("t", 0), error)

    def after(
        self, times: Iterable[float], error: KafkaError | None = REFUSED, *brokers: int
    ) -> list[int | None]:
        """Who leads after each answer with the lower epoch; before each, a broker refuses."""
        found = []
        for now in times:
            self.refuse(error)
            found.append(self.told(now, 2, 3, *brokers))
        return found


@pytest.mark.parametrize(
    ("times", "error", "brokers", "until"),
    [
        pytest.param(range(1, 12), REFUSED, (), 11, id="ten seconds, and for all partitions"),
        pytest.param((1, 8, 15, 22, 29), REFUSED, (), 29, id="four are few, however far apart"),
        pytest.param([1 + n / 10 for n in range(90)], REFUSED, (), None, id="many in a short time"),
        pytest.param((1, 2, 3, 4, 60), REFUSED, (), None, id="refusals long ago"),
        pytest.param(range(1, 200), None, (), None, id="nobody refuses: a broker lags"),
        pytest.param(range(1, 200), LOST, (), None, id="a lost connection is no refusal"),
        pytest.param(range(1, 12), None, (2, 3), 11, id="a leader that left needs not refuse"),
    ],
)
def test_how_long_the_known_leader_is_kept(
    times: Iterable[float], error: KafkaError | None, brokers: tuple[int, ...], until: float | None
) -> None:
    found = Leaders().after(times, error, *brokers)
    assert found == [2 if time == until else 1 for time in times]


def test_with_ids_a_lower_epoch_of_the_same_topic_is_never_believed() -> None:
    assert set(Leaders(ID).after(range(1, 60))) == {1}


def test_once_let_go_epochs_count_as_ever_and_it_was_no_equivalent_answer() -> None:
    known = Leaders()
    known.after(range(1, 12))
    assert known.allowed_at == pytest.approx(11.1)
    assert known.told(12.0, 1, 2) == 2
    assert known.told(13.0, 1, 4) == 1


def test_an_answer_that_knows_the_epoch_ends_the_row() -> None:
    known = Leaders()
    assert set(known.after(range(1, 10))) == {1}
    assert known.told(10.0, 1, 10) == 1
    assert set(known.after(range(11, 21))) == {1}


def test_a_refusal_asks_unless_a_hint_says_all() -> None:
    known = Leaders()
    known.refused(TopicPartition("t", 0), REFUSED, hinted=True)
    assert known.due_at() > 1
    known.refuse(UnknownLeaderEpochError("higher than mine"))
    assert known.due_at() < 1
    assert known.why == "t-0: UnknownLeaderEpochError"


def test_a_topic_that_nobody_uses_leaves_no_doubt_behind() -> None:
    known = Leaders()
    known.after(range(1, 6))
    known.refuse()
    known.forget_topics(["t"])
    assert not known._lower._doubts
    assert not known._lower._refused
