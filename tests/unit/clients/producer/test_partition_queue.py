"""Test which batch of a partition may be sent, and with which sequence number (R-PR-1)."""

from __future__ import annotations

import pytest

from odradek.clients.producer.batch import NO_SEQUENCE, SEQUENCES, ProducerBatch
from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.clients.producer.uncertain_writes import NOT_APPENDED_CODES, in_doubt, leaves_doubt
from odradek.common.errors.kafka import ERRORS, TopicAuthorizationError, error_for
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder

TP = TopicPartition("t", 0)
ME = (7, 0)


def batch(serial: int, count: int = 1) -> ProducerBatch:
    made = ProducerBatch(TP, BatchBuilder(10_000, None), 0.0, 120.0)
    for _ in range(count):
        made.append(None, b"v", (), 0)
    made.serial = serial
    return made


def sent(queue: PartitionQueue, serial: int, count: int = 1, epoch: int = 0) -> ProducerBatch:
    made = batch(serial, count)
    queue.number(made)
    made.epoch_tried = epoch
    queue.in_flight.append(made)
    return made


def known(epoch: int = 0) -> PartitionQueue:
    queue = PartitionQueue()
    queue.numbering.begin(ME)
    queue.numbering.known_at = epoch
    return queue


def test_sequence_numbers_wrap_around_at_2_to_the_31() -> None:
    queue = known()
    queue.numbering.next_sequence = SEQUENCES - 3
    assert [sent(queue, n, 2).sequence for n in range(4)] == [SEQUENCES - 3, SEQUENCES - 1, 1, 3]


def test_the_newest_sequence_number_can_be_given_back_after_a_wrap_around() -> None:
    queue = known()
    queue.numbering.next_sequence = SEQUENCES - 1
    one = sent(queue, 0, 3)
    queue.in_flight.clear()
    assert queue.take_back(one)
    assert queue.numbering.next_sequence == SEQUENCES - 1


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_at_most_five_batches_are_sent_while_the_oldest_of_them_is_unacknowledged(
    answered: int,
) -> None:
    queue = known()
    batches = [sent(queue, n) for n in range(4)]
    assert queue.admits(batch(4), 0, 5)
    batches.append(sent(queue, 4))
    for done in batches[1 : 1 + answered]:
        queue.in_flight.remove(done)
    assert not queue.admits(batch(5), 0, 5)
    queue.in_flight.remove(batches[0])
    assert queue.admits(batch(5), 0, 5)


def test_a_new_leader_gets_one_batch_until_it_has_answered() -> None:
    queue = known(epoch=3)
    sent(queue, 0, epoch=4)
    assert not queue.admits(batch(1), 4, 5)
    queue.numbering.known_at = 4
    assert queue.admits(batch(1), 4, 5)
    assert not queue.admits(batch(1), 5, 5)  # another new leader waits for the batch in flight


def test_a_recreated_topic_gets_no_batch_until_all_batches_for_the_old_topic_have_ended() -> None:
    queue = known(epoch=0)
    queue.lives_in(b"1" * 16)
    queue.numbering.acknowledged = 7
    sent(queue, 8).topic_tried = queue.numbering.topic_id
    assert queue.admits(batch(9), 0, 5)
    for nothing_new in (b"1" * 16, bytes(16)):
        queue.lives_in(nothing_new)
        assert queue.admits(batch(9), 0, 5)
    queue.lives_in(b"2" * 16)
    assert queue.numbering.acknowledged == -1  # the old topic's offsets don't count
    queue.numbering.known_at = 0
    assert not queue.admits(batch(9), 0, 5)
    queue.in_flight.clear()
    assert queue.admits(batch(9), 0, 5)


@pytest.mark.parametrize(
    ("offset", "cut"),
    [
        (103, False),  # all sent records may be in the log
        (150, False),  # other producers write, too
        (102, True),  # not all of the three earlier records can be in the log
        (0, True),
        (-1, False),  # the leader doesn't report the offset
    ],
)
def test_an_offset_too_low_for_all_earlier_records_shows_that_the_log_was_truncated(
    offset: int, cut: bool
) -> None:
    queue = known()
    queue.appended(sent(queue, 0, 10), 90)
    queue.in_flight.clear()
    assert (queue.numbering.reached, queue.numbering.cut) == (100, False)
    first, second, late = sent(queue, 1, 2), sent(queue, 2, 1), sent(queue, 3, 2)
    younger = sent(queue, 4, 5)
    queue.in_flight[:] = [first, younger]
    queue.waiting.extend((second, batch(5, 7)))  # batch 5 was never sent
    queue.appended(late, offset)
    assert queue.numbering.cut == cut
    assert queue.numbering.acknowledged == 3


def test_a_batch_acknowledged_late_counts_once_in_the_check_for_a_truncated_log() -> None:
    queue = known()
    first, second, third = sent(queue, 0), sent(queue, 1), sent(queue, 2)
    queue.in_flight[:] = [first]
    queue.appended(second, 1)
    queue.appended(third, 2)
    assert (queue.numbering.reached, queue.numbering.cut) == (3, False)
    queue.in_flight.clear()
    queue.appended(first, 0)  # the first batch's response arrives last
    assert (queue.numbering.reached, queue.numbering.acknowledged) == (3, 2)
    queue.in_flight.append(sent(queue, 3))
    queue.appended(sent(queue, 4), 3)
    assert queue.numbering.cut


def test_a_lower_offset_reveals_no_truncation_if_no_other_record_is_unacknowledged() -> None:
    queue = known()
    queue.appended(sent(queue, 0, 10), 90)
    queue.in_flight.clear()
    queue.appended(sent(queue, 1, 2), 0)
    assert not queue.numbering.cut
    assert queue.numbering.reached == 2


def test_only_the_newest_batch_can_give_back_its_sequence_number() -> None:
    queue = known()
    first, second = sent(queue, 0, 3), sent(queue, 1, 2)
    queue.in_flight.remove(first)
    assert not queue.take_back(first)
    queue.in_flight.clear()
    assert queue.take_back(second)
    assert queue.numbering.next_sequence == 3
    queue.numbering.ended = True
    assert not queue.take_back(first)


def test_batches_that_may_be_written_are_sent_again_before_a_new_producer_id_is_used() -> None:
    queue = known()
    doubtful = batch(1)
    queue.number(doubtful)
    queue.waiting.extend((batch(0), doubtful, batch(2)))
    assert queue.next() is queue.waiting[0]
    queue.numbering.ended = True
    assert queue.next() is doubtful
    queue.out_of_order.add(doubtful)
    assert queue.next() is None  # the outcome of `doubtful` has to be known first


def test_a_new_producer_id_or_epoch_starts_with_sequence_0() -> None:
    queue = known()
    sent(queue, 0, 5)
    numbering = queue.numbering
    numbering.ended = numbering.lost = numbering.cut = True
    numbering.reached = 5
    numbering.begin((7, 1))
    assert (numbering.next_sequence, numbering.numbered, numbering.ended) == (0, 0, False)
    assert (numbering.lost, numbering.cut, numbering.reached) == (False, False, 0)
    assert numbering.known_at < -1
    assert queue.in_flight[0].sequence != NO_SEQUENCE


AFTER_THE_APPEND = (-1, 3, 6, 7, 13, 20, 56, 100)
"""Codes of errors possible after the append: a failed wait for replicas, or an exception."""


def test_errors_that_may_follow_the_append_leave_the_outcome_unknown() -> None:
    assert not NOT_APPENDED_CODES & set(AFTER_THE_APPEND)
    assert all(leaves_doubt(code) for code in AFTER_THE_APPEND)
    assert leaves_doubt(None)
    assert leaves_doubt(30_000)
    assert set(NOT_APPENDED_CODES) <= set(ERRORS)


@pytest.mark.parametrize("code", [2, 10, 19, 29, 45, 47, 59, 87])
def test_errors_before_the_append_prove_that_nothing_was_written(code: int) -> None:
    assert not leaves_doubt(code)


def test_the_error_for_a_batch_that_may_be_written_keeps_its_class_and_fields() -> None:
    refusal, mine = TopicAuthorizationError("no").needing("WRITE", "t", "topic"), batch(0, 3)
    assert in_doubt(mine, refusal) is refusal
    mine.doubt()
    made = in_doubt(mine, refusal)
    assert isinstance(made, TopicAuthorizationError)
    assert made.operation == "WRITE"
    assert "3 records for t-0 may have been written" in str(made)
    unknown = in_doubt(mine, error_for(30_000, "news"))  # a class created by `error_for`
    assert "news" in str(unknown)
    assert type(unknown) is type(error_for(30_000, "news"))
