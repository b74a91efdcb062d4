"""Delivery reports: batch by batch into a queue, message by message out of it, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import odradek
from odradek.clients.producer.batch import BatchOutcome, Part, ProducerBatch
from odradek.common.errors import DisconnectedError
from odradek.compat.confluent_kafka import KafkaError
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.sent_messages import Reports, SentMessages
from odradek.compat.confluent_kafka.settings import Given
from odradek.record import BatchBuilder

APPENDED = 77


class Scene:
    """A queue, and messages that are sent into batches of one partition."""

    def __init__(self, **given: Any) -> None:
        found = Given({}, most_messages=1000, most_bytes=1000, **given)
        self.queue = CallbackQueue(found)
        self.sent = SentMessages(found, self.queue.put_many)
        self.told: list[tuple[KafkaError | None, tuple[object, ...]]] = []

    def batch(self) -> ProducerBatch:
        return ProducerBatch(odradek.TopicPartition("t", 2), BatchBuilder(1000, None), 0.0, 9.0)

    def send(
        self, batch: ProducerBatch, *indexes: int, call: Callable[..., object] | None = None
    ) -> None:
        for index in indexes:
            self.sent.admit(1)
            message = (index, 0.0, 5, None, b"%d" % index, call or self.tell, 1)
            self.sent.expect(batch, message)

    def tell(self, error: KafkaError | None, message: Any) -> None:
        place = message.partition(), message.offset(), message.value(), message.timestamp()
        self.told.append((error, place))


def test_a_batch_is_told_in_order() -> None:
    scene = Scene()
    batch = scene.batch()
    scene.send(batch, 0, 1, 2)
    assert (scene.queue.serve(0), len(scene.sent)) == (0, 3)
    batch.done.complete(BatchOutcome(10, -1))
    assert scene.told == []
    assert scene.queue.waits
    assert (scene.queue.serve(0), len(scene.sent)) == (3, 0)
    assert scene.told == [(None, (2, 10 + n, b"%d" % n, (1, 5))) for n in range(3)]
    assert (scene.queue.serve(0), scene.queue.waits) == (0, False)


def test_the_brokers_time_and_an_unknown_offset_are_told() -> None:
    scene = Scene()
    batch = scene.batch()
    scene.send(batch, 0)
    batch.done.complete(BatchOutcome(-1, APPENDED))
    assert scene.queue.serve(0) == 1
    assert scene.told == [(None, (2, None, b"0", (1, APPENDED)))]


def test_an_error_is_told_of_each() -> None:
    scene = Scene(only_errors=True)
    well, ill = scene.batch(), scene.batch()
    scene.send(well, 0)
    scene.send(ill, 0, 1)
    well.done.complete(BatchOutcome(0, -1))
    ill.done.fail(DisconnectedError("gone"))
    assert scene.queue.serve(0) == 3
    found: list[Any] = [(error, place[1]) for error, place in scene.told]
    assert found == [(KafkaError._TRANSPORT, None)] * 2
    assert len(scene.sent) == 0


def test_what_a_callback_raises_leaves_the_rest_of_its_batch_waiting() -> None:
    scene = Scene()
    first, second = scene.batch(), scene.batch()

    def fail(*_: object) -> None:
        raise LookupError

    scene.send(first, 0)
    scene.send(first, 1, call=fail)
    scene.send(first, 2)
    scene.send(second, 7)
    for batch in (first, second):
        batch.done.complete(BatchOutcome(0, -1))
    with pytest.raises(LookupError):
        scene.queue.serve(0)
    assert (len(scene.sent), scene.queue.waits) == (2, True)
    assert scene.queue.serve(0) == 2
    assert [place[2] for _, place in scene.told] == [b"0", b"2", b"7"]


def test_a_message_that_comes_while_the_outcome_does_is_told() -> None:
    """A thread looked its batch up, and was held up until that had its outcome."""
    scene = Scene()
    batch = scene.batch()
    scene.send(batch, 0)
    reports = scene.sent._reports[batch]
    batch.done.complete(BatchOutcome(0, -1))
    assert scene.queue.serve(0) == 1
    scene.sent._reports[batch] = reports  # as that thread has it
    scene.send(batch, 1)
    assert scene.queue.serve(0) == 1
    del scene.sent._reports[batch]
    scene.send(batch, 2)  # and one that comes later still
    assert scene.queue.serve(0) == 1
    assert [place[2] for _, place in scene.told] == [b"0", b"1", b"2"]
    assert scene.sent._reports == {}


def test_messages_go_where_their_batch_goes() -> None:
    scene = Scene()
    whole, parts = scene.batch(), (scene.batch(), scene.batch())
    scene.send(whole, 0, 1, 2)
    whole.replaced([Part(0, 2, parts[0], 4), Part(2, 1, parts[1], 0)])
    assert scene.queue.serve(0) == 0
    parts[0].done.complete(BatchOutcome(100, -1))
    parts[1].done.complete(BatchOutcome(200, -1))
    assert scene.queue.serve(0) == 3
    assert [place[1] for _, place in scene.told] == [104, 105, 200]


def test_two_threads_never_make_one_report_twice() -> None:
    """The second asks while the first is in a callback."""
    scene = Scene()
    batch = scene.batch()
    made: list[int] = []
    scene.send(batch, 0, call=lambda *_: made.append(reports()))
    scene.send(batch, 1, 2)
    reports = Reports(scene.sent, batch)
    reports.waiting = scene.sent._reports[batch].waiting
    batch.done.complete(BatchOutcome(0, -1))
    assert scene.queue.serve(0) == 1
    assert (made, len(scene.told), len(scene.sent)) == ([2], 2, 0)
