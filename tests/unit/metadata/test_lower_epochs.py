"""A lower leader epoch without topic ids (R-MD-7): a stale broker, or a topic made again."""

from __future__ import annotations

import random

import pytest

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.kafka_errors import NotLeaderOrFollowerError, UnknownLeaderEpochError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.metadata.metadata import Metadata
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

REFUSED = NotLeaderOrFollowerError("no")


class Known(Metadata):
    """Two partitions of epoch 10 that broker 1 leads, and a clock of the test's own."""

    def __init__(self, id_: bytes = NO_ID) -> None:
        self.now = 0.0
        super().__init__(
            max_age=300.0,
            max_idle=300.0,
            retry=ExponentialBackoff(0.1, 1.0, 0.0),
            rng=random.Random(1),
            clock=lambda: self.now,
        )
        self.want(["t"])
        self.answer(0.0, 1, 10, id_)

    def answer(
        self,
        now: float,
        leader: int,
        epoch: int,
        id_: bytes = NO_ID,
        *,
        brokers: tuple[int, ...] = (1, 2),
    ) -> int | None:
        """Take in an answer; who leads the second partition then."""
        self.now = now
        partitions = [
            MetadataResponsePartition(partition_index=n, leader_id=leader, leader_epoch=epoch)
            for n in range(2)
        ]
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in brokers],
            cluster_id="c",
            topics=[MetadataResponseTopic(name="t", topic_id=id_, partitions=partitions)],
        )
        topics, partial = self.next_topics()
        serial = self.sent(topics)
        self.apply(response, topics, now, partial=partial, fresh=False, serial=serial)
        found = self.snapshot.partition("t", 1) if self.snapshot is not None else None
        return None if found is None else found.leader

    def refuse(self, error: KafkaError = REFUSED) -> None:
        self.refused(TopicPartition("t", 0), error)


def test_what_the_known_leader_refuses_for_ten_seconds_is_let_go() -> None:
    """For all partitions: it is another topic."""
    known = Known()
    for second in range(1, 11):
        known.refuse()
        assert known.answer(second, 2, 3) == 1
    known.refuse()
    assert known.answer(11.0, 2, 3) == 2
    assert known.answer(12.0, 1, 2) == 2  # and from then on as ever
    assert known.answer(13.0, 1, 4) == 1


def test_a_few_answers_are_too_few_however_far_apart() -> None:
    known = Known()
    for second in (1, 8, 15, 22):
        known.refuse()
        assert known.answer(second, 2, 3) == 1
    known.refuse()
    assert known.answer(29.0, 2, 3) == 2


def test_many_answers_in_a_short_time_are_too_few() -> None:
    known = Known()
    for n in range(90):
        known.refuse()
        assert known.answer(1 + n / 10, 2, 3) == 1


def test_an_answer_that_knows_the_epoch_ends_the_row() -> None:
    known = Known()
    for second in range(1, 10):
        known.refuse()
        assert known.answer(second, 2, 3) == 1
    assert known.answer(10.0, 1, 10) == 1
    for second in range(11, 21):
        known.refuse()
        assert known.answer(second, 2, 3) == 1


@pytest.mark.parametrize("error", [None, DisconnectedError("gone")])
def test_without_a_leader_that_refuses_it_is_a_broker_that_lags_behind(
    error: KafkaError | None,
) -> None:
    known = Known()
    for second in range(1, 200):
        if error is not None:
            known.refuse(error)
        assert known.answer(second, 2, 3) == 1


def test_refusals_long_ago_count_no_more() -> None:
    known = Known()
    for second in (1, 2, 3, 4, 60):
        known.refuse()
        assert known.answer(second, 2, 3) == 1


def test_a_leader_that_left_needs_not_refuse() -> None:
    known = Known()
    for second in range(1, 11):
        assert known.answer(second, 2, 3, brokers=(2, 3)) == 1
    assert known.answer(11.0, 2, 3, brokers=(2, 3)) == 2


def test_with_ids_a_lower_epoch_of_the_same_topic_is_never_believed() -> None:
    known = Known(b"i" * 16)
    for second in range(1, 60):
        known.refuse()
        assert known.answer(second, 2, 3, b"i" * 16) == 1


def test_letting_go_is_no_equivalent_answer() -> None:
    known = Known()
    for second in range(1, 12):
        known.refuse()
        known.answer(second, 2, 3)
    assert known.allowed_at == pytest.approx(11.1)


def test_a_refusal_asks_unless_a_hint_says_all() -> None:
    known = Known()
    known.refused(TopicPartition("t", 0), REFUSED, hinted=True)
    assert known.due_at() > 1
    known.refuse(UnknownLeaderEpochError("higher than mine"))
    assert known.due_at() < 1
    assert known.why == "t-0: UnknownLeaderEpochError"


def test_a_topic_that_nobody_uses_leaves_no_doubt_behind() -> None:
    known = Known()
    for second in range(1, 6):
        known.refuse()
        known.answer(second, 2, 3)
    known.refuse()
    known.forget_topics(["t"])
    assert not known._lower._doubts
    assert not known._lower._refused
