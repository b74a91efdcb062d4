"""Test a consumer's stored offsets, queued callbacks, topics and patterns."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import odradek
from odradek.compat.confluent_kafka import Consumer, KafkaError, TopicPartition
from odradek.compat.confluent_kafka.callback_queue import MOST_ERRORS, CallbackQueue
from odradek.compat.confluent_kafka.flows import carried_out
from odradek.compat.confluent_kafka.offset_tracking import OffsetBooks
from odradek.compat.confluent_kafka.partition_ends import PartitionEnds
from odradek.compat.confluent_kafka.produce_arguments import (
    as_bytes,
    as_headers,
    as_partition,
    check_messages,
)
from odradek.compat.confluent_kafka.settings import Given
from odradek.compat.confluent_kafka.subscription import (
    RunningCallback,
    checked_callbacks,
    topics_or_pattern,
)

HERE = odradek.TopicPartition("t", 0)


def record(offset: int, partition: int = 0) -> odradek.ConsumerRecord:
    return odradek.ConsumerRecord("t", partition, offset, 1, 0, None, b"v", (), 3)


def offsets(books: OffsetBooks) -> dict[odradek.TopicPartition, int]:
    return {place: offset.offset for place, offset in books.to_commit().items()}


def test_offsets_of_returned_records_are_committed_once() -> None:
    books = OffsetBooks(store=True)
    assert books.position(HERE).offset == -1001
    books.handed_out(record(6))
    assert (books.position(HERE).offset, books.position(HERE).leader_epoch) == (7, 3)
    assert offsets(books) == {HERE: 7}
    books.committed([(HERE, odradek.OffsetAndMetadata(7))])
    assert offsets(books) == {}
    books.handed_out(record(7))
    assert offsets(books) == {HERE: 8}
    books.sought(HERE)
    assert (books.position(HERE).offset, offsets(books)) == (-1001, {})


def test_only_offsets_stored_by_the_application_are_committed() -> None:
    books = OffsetBooks(store=False)
    books.handed_out(record(6))
    books.handed_out(record(1, partition=1))
    assert offsets(books) == {}
    books.keep(TopicPartition("t", 0, 4, "note", 2))
    assert books.to_commit() == {HERE: odradek.OffsetAndMetadata(4, "note\0", 2)}
    assert books.to_commit([("t", 1)]) == {}
    books.forget([("t", 0)])
    assert (offsets(books), books.position(("t", 1)).offset) == ({}, 2)
    books.forget()
    assert books.position(("t", 1)).offset == -1001


class ConsumerAtEnd:
    """A consumer of one partition, with settable lag and paused partitions."""

    lags: int | None = None
    held: tuple[odradek.TopicPartition, ...] = ()

    def assigned(self) -> list[odradek.TopicPartition]:
        return [HERE]

    def paused(self) -> list[odradek.TopicPartition]:
        return list(self.held)

    def at_end(self, _: odradek.TopicPartition) -> bool:
        return self.lags == 0


def test_the_end_of_a_partition_is_reported_once() -> None:
    ends, consumer = PartitionEnds(), ConsumerAtEnd()
    for lags in (None, 3):
        consumer.lags = lags
        assert (ends.reached(consumer), ends.waits) == ([], True)
    consumer.lags = 0
    assert (ends.reached(consumer), ends.waits) == ([HERE], False)
    message = ends.message(HERE, 5)
    assert message is not None
    assert message.error() == KafkaError._PARTITION_EOF
    assert (message.topic(), message.partition(), message.offset()) == ("t", 0, 5)
    assert ends.message(HERE, 5) is None
    assert ends.message(HERE, 6) is not None
    ends.forget(("t", 0))
    assert ends.message(HERE, 6) is not None
    ends.forget()
    assert ends.message(HERE, 6) is not None
    consumer.held = (HERE,)
    assert (ends.reached(consumer), ends.waits) == ([], False)


def test_queued_callbacks_run_only_when_they_are_served() -> None:
    queue, made = CallbackQueue(Given({})), list[int]()
    assert queue.serve(0) == 0
    for number in range(3):
        queue.put(lambda number=number: made.append(number))  # type: ignore[misc]
    assert made == []
    assert (queue.serve(0), made, queue.serve(0)) == (3, [0, 1, 2], 0)


def test_callbacks_queued_behind_a_callback_that_raised_run_at_the_next_poll() -> None:
    queue, made = CallbackQueue(Given({})), list[int]()

    def fail() -> None:
        raise LookupError

    for call in (lambda: made.append(1), fail, lambda: made.append(2)):
        queue.put(call)
    with pytest.raises(LookupError):
        queue.serve(0)
    assert made == [1]
    assert (queue.serve(0), made) == (1, [1, 2])


def test_a_callback_queued_by_a_callback_runs_when_the_queue_is_served_again() -> None:
    queue, made = CallbackQueue(Given({})), list[int]()
    queue.put(lambda: queue.put(lambda: made.append(1)))
    assert (queue.serve(0), made) == (1, [])
    assert (queue.serve(0), made) == (1, [1])


def test_client_errors_are_passed_to_error_cb_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    told: list[KafkaError] = []
    given = Given({}, error_cb=told.append, logger=logging.getLogger("of the program"))
    queue = CallbackQueue(given)
    assert queue.hears
    with caplog.at_level(logging.DEBUG, "of the program"):
        fields = {"address": "h:1", "error": "why", "round": 2, "backoff": 0.5}
        for kind in ("dial_failed", "round_failed", "broken", "metadata"):
            queue.hear(odradek.Event(1.0, kind, fields))
    assert queue.serve(0) == 3
    assert [e.name() for e in told] == ["_TRANSPORT", "_ALL_BROKERS_DOWN", "_FATAL"]
    assert [e.fatal() for e in told] == [False, False, True]
    assert [e.str() for e in told] == [
        "h:1: connection attempt failed: why",
        "no broker can be reached; the next attempt is in 0.50 s",
        "the client has failed and must be recreated: why",
    ]
    assert [r.getMessage() for r in caplog.records] == [e.str() for e in told]
    for _ in range(MOST_ERRORS + 5):
        queue.hear(odradek.Event(1.0, "dial_failed", fields))
    assert queue.serve(0) == MOST_ERRORS
    assert not CallbackQueue(Given({})).hears


def test_a_connection_that_the_client_closed_is_not_reported_as_an_error() -> None:
    """The client closes its bootstrap connection when brokers are known, and idle connections."""
    told: list[KafkaError] = []
    queue = CallbackQueue(Given({}, error_cb=told.append))
    fields = {"address": "h:1", "error": "closed: idle", "in_flight": 0}
    queue.hear(odradek.Event(1.0, "disconnected", {**fields, "failure": False}))
    assert (queue.serve(0), told) == (0, [])
    queue.hear(odradek.Event(1.0, "disconnected", {**fields, "failure": True}))
    assert (queue.serve(0), told[0].str()) == (1, "h:1: disconnected: closed: idle")


@pytest.mark.parametrize(
    ("topics", "matching", "others"),
    [
        (["^a"], ["a", "abc"], ["ba"]),
        (["^a.*c$", "plain.topic"], ["abc", "plain.topic"], ["abcd", "plainxtopic"]),
    ],
)
def test_a_topic_that_begins_with_a_caret_is_a_pattern(
    topics: list[str], matching: list[str], others: list[str]
) -> None:
    names, pattern = topics_or_pattern(topics)
    assert names == []
    assert pattern is not None
    assert all(re.fullmatch(pattern, name) for name in matching)
    assert not any(re.fullmatch(pattern, name) for name in others)


def test_topics_without_a_caret_are_names() -> None:
    assert topics_or_pattern(["b", "a.b"]) == (["b", "a.b"], None)
    for wrong in ("a", ["a", 3], None):
        with pytest.raises(TypeError):
            topics_or_pattern(wrong)


def test_rebalance_callbacks_that_are_not_callable_are_rejected() -> None:
    assert checked_callbacks(on_assign=None, on_revoke=print) == {
        "on_assign": None,
        "on_revoke": print,
    }
    with pytest.raises(TypeError, match="on_lost"):
        checked_callbacks(on_lost=3)


def test_partitions_of_a_rebalance_callback_are_set_only_while_it_runs() -> None:
    running, seen = RunningCallback(), list[Any]()

    def callback(consumer: Any, partitions: list[TopicPartition]) -> None:
        seen.append((consumer, partitions, running.partitions))
        raise LookupError

    with pytest.raises(LookupError):
        carried_out(running.run(callback, "consumer", [HERE]))
    assert seen == [("consumer", [TopicPartition("t", 0)], frozenset({("t", 0)}))]
    assert running.partitions is None


def test_arguments_of_produce_are_converted_or_rejected() -> None:
    found = [as_bytes(value) for value in (None, b"x", "ö", bytearray(b"y"))]
    assert found == [None, b"x", "ö".encode(), b"y"]
    assert as_headers(None) == []
    assert as_headers({"a": "b", "c": None}) == [("a", b"b"), ("c", None)]
    assert as_headers([("a", b"b")]) == [("a", b"b")]
    for wrong in ("text", [("a", 3)], [(b"a", b"b")], ["text"], [("a",)], [3]):
        with pytest.raises(TypeError):
            as_headers(wrong)
    assert (as_partition(-1), as_partition(3)) == (None, 3)
    for number in ("3", None, 1.5):
        with pytest.raises(TypeError):
            as_partition(number)  # type: ignore[arg-type]
    for batch in (
        *("text", [{}, "text"], [{}, {"value": 3}], [{}, {"key": [1]}], [{}, {"partition": "x"}]),
    ):
        with pytest.raises(TypeError, match=r"messages(\[1\]| must)"):
            check_messages(batch)


def test_an_exceeded_max_poll_interval_is_reported_once() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    assert consumer._core._too_late() is None
    fields = {"what": "g", "state": "stale", "event": "poll_overdue", "why": "late"}
    consumer._core._hear(odradek.Event(0.0, "group", {**fields, "event": "joined"}))
    assert consumer._core._too_late() is None
    consumer._core._hear(odradek.Event(0.0, "group", fields))
    message: Any = consumer.poll(0)
    assert message.error() == KafkaError._MAX_POLL_EXCEEDED
    assert "300000 ms" in message.error().str()
    assert consumer.poll(0) is None
    consumer.close()


def test_closing_runs_queued_callbacks_but_does_not_report_errors() -> None:
    told: list[object] = []
    queue = CallbackQueue(Given({}, error_cb=told.append))
    queue.put(lambda: told.append("committed"))
    queue.hear(odradek.Event(0.0, "broken", {"error": "x"}))
    queue.put(lambda: told.append("committed, too"))
    queue.serve_last()
    assert told == ["committed", "committed, too"]
    assert queue.serve(0) == 0
