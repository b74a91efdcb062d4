"""Test that a delivery report is queued with its batch and delivered once for each message."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.time_limits import HANG_S

import odradek
from odradek.clients.producer.batch import BatchOutcome, Part, ProducerBatch
from odradek.common.errors import DisconnectedError
from odradek.compat.confluent_kafka import KafkaError, Producer
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.sent_messages import SentMessages
from odradek.compat.confluent_kafka.settings import Given
from odradek.record import BatchBuilder
from odradek.testing import FakeCluster

APPENDED = 77


class Scene:
    """A callback queue, and messages in batches of one partition."""

    def __init__(
        self, *, most_messages: int = 1000, most_bytes: int = 1000, only_errors: bool = False
    ) -> None:
        found = Given(
            {}, most_messages=most_messages, most_bytes=most_bytes, only_errors=only_errors
        )
        self.queue = CallbackQueue(found)
        self.sent = SentMessages(found, self.queue.put_many)
        self.told: list[tuple[KafkaError | None, tuple[object, ...]]] = []

    def batch(self) -> ProducerBatch:
        return ProducerBatch(odradek.TopicPartition("t", 2), BatchBuilder(1000, None), 0.0, 9.0)

    def send(
        self,
        batch: ProducerBatch,
        *indexes: int,
        call: Callable[..., object] | None = None,
        size: int = 1,
    ) -> None:
        for index in indexes:
            self.sent.admit(size)
            message = (index, 0.0, 5, None, b"%d" % index, call or self.tell)
            self.sent.expect(batch, message, size)

    def tell(self, error: KafkaError | None, message: Any) -> None:
        place = message.partition(), message.offset(), message.value(), message.timestamp()
        self.told.append((error, place))


def test_delivery_reports_of_a_batch_are_delivered_in_order_when_poll_is_called() -> None:
    scene = Scene()
    batch = scene.batch()
    scene.send(batch, 0, 1, 2)
    assert (scene.queue.serve(0), len(scene.sent)) == (0, 3)
    batch.done.complete(BatchOutcome(10, -1))
    assert scene.told == []
    assert not scene.queue.empty()
    assert (scene.queue.serve(0), len(scene.sent)) == (3, 0)
    assert scene.told == [(None, (2, 10 + n, b"%d" % n, (1, 5))) for n in range(3)]
    assert (scene.queue.serve(0), scene.queue.empty()) == (0, True)


def test_the_brokers_timestamp_and_an_unknown_offset_are_reported() -> None:
    scene = Scene()
    batch = scene.batch()
    scene.send(batch, 0)
    batch.done.complete(BatchOutcome(-1, APPENDED))
    assert scene.queue.serve(0) == 1
    assert scene.told == [(None, (2, None, b"0", (1, APPENDED)))]


def test_each_message_of_a_failed_batch_is_reported() -> None:
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


def test_after_an_exception_of_a_callback_the_next_poll_delivers_the_other_reports() -> None:
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
    assert (len(scene.sent), scene.queue.empty()) == (2, False)
    assert scene.queue.serve(0) == 2
    assert [place[2] for _, place in scene.told] == [b"0", b"2", b"7"]


def test_a_message_added_while_its_batch_completes_is_reported() -> None:
    """A thread looked up the message's batch, and was suspended until the batch was complete."""
    scene = Scene()
    batch = scene.batch()
    scene.send(batch, 0)
    reports = scene.sent.by_batch[batch]
    batch.done.complete(BatchOutcome(0, -1))
    assert scene.queue.serve(0) == 1
    scene.sent.by_batch[batch] = reports  # the thread still refers to the batch's reports
    scene.send(batch, 1)
    assert scene.queue.serve(0) == 1
    del scene.sent.by_batch[batch]
    scene.send(batch, 2)  # another message for the complete batch
    assert scene.queue.serve(0) == 1
    assert [place[2] for _, place in scene.told] == [b"0", b"1", b"2"]
    assert scene.sent.by_batch == {}


def test_reports_of_a_split_batch_have_the_offsets_of_its_parts() -> None:
    scene = Scene()
    whole, parts = scene.batch(), (scene.batch(), scene.batch())
    scene.send(whole, 0, 1, 2)
    whole.replaced([Part(0, 2, parts[0], 4), Part(2, 1, parts[1], 0)])
    assert scene.queue.serve(0) == 0
    parts[0].done.complete(BatchOutcome(100, -1))
    parts[1].done.complete(BatchOutcome(200, -1))
    assert scene.queue.serve(0) == 3
    assert [place[1] for _, place in scene.told] == [104, 105, 200]


def test_reports_requested_by_a_callback_are_not_delivered_twice() -> None:
    """A callback delivers the reports of its own batch, as another thread might."""
    scene = Scene()
    batch = scene.batch()
    made: list[int] = []
    scene.send(batch, 0, call=lambda *_: made.append(reports()))
    scene.send(batch, 1, 2)
    reports = scene.sent.by_batch[batch]
    batch.done.complete(BatchOutcome(0, -1))
    assert scene.queue.serve(0) == 3
    assert (made, len(scene.told), len(scene.sent)) == ([0], 2, 0)


def test_the_number_of_pending_messages_decreases_with_each_delivered_report() -> None:
    scene = Scene()
    batch = scene.batch()
    left: list[int] = []
    scene.send(batch, 0, 1, 2, call=lambda *_: left.append(len(scene.sent)))
    batch.done.complete(BatchOutcome(0, -1))
    assert scene.queue.serve(0) == 3
    assert left == [2, 1, 0]


def test_no_references_to_a_message_rejected_by_a_full_queue_are_kept() -> None:
    value, headers = bytes(1000), [("name", bytes(1000))]

    def references() -> list[int]:
        return [sys.getrefcount(one) for one in (value, headers, headers[0])]

    with FakeCluster(1, topics={"t": 1}) as fake:
        options = {"bootstrap.servers": fake.bootstrap_servers, "queue.buffering.max.messages": 1}
        with Producer(options) as producer:
            producer.produce("t", b"first", on_delivery=lambda *_: None)
            before = references()
            refused = 0
            for _ in range(50):
                try:
                    producer.produce("t", value, headers=headers)
                except BufferError:
                    refused += 1
            gc.collect()
            assert (refused, references()) == (50, before)
            assert producer.flush(HANG_S) == 0


def test_a_full_queue_rejects_messages_until_a_report_is_delivered() -> None:
    for scene, sizes in ((Scene(most_messages=2), (1, 1, 1)), (Scene(most_bytes=10), (6, 4, 1))):
        first, second = scene.batch(), scene.batch()
        scene.send(first, 0, size=sizes[0])
        scene.send(second, 0, size=sizes[1])
        for _ in range(2):
            with pytest.raises(BufferError):
                scene.sent.admit(sizes[2])
        first.done.complete(BatchOutcome(0, -1))
        with pytest.raises(BufferError):  # the first message's report is undelivered
            scene.sent.admit(sizes[2])
        assert scene.queue.serve(0) == 1
        scene.send(second, 1, size=sizes[2])
        assert len(scene.sent) == 2


def test_reports_are_delivered_exactly_once_if_threads_send_and_poll() -> None:
    scene = Scene(most_messages=0, most_bytes=1 << 30)
    told: list[bytes] = []
    batches: list[ProducerBatch] = []
    done = threading.Event()

    def call(_: object, message: Any) -> None:
        told.append(message.value())

    def send(own: int) -> None:
        for n in range(300):
            batch = batches[-1]
            message = (n, 0.0, 5, None, b"%d %d" % (own, n), call)
            scene.sent.admit(1)
            scene.sent.expect(batch, message, 1)

    def end() -> None:
        while not done.is_set():
            batches.append(scene.batch())
            batches[-2].done.complete(BatchOutcome(0, -1))

    def poll() -> None:
        while not done.is_set():
            scene.queue.serve(0)

    batches.append(scene.batch())
    senders = [threading.Thread(target=send, args=(own,)) for own in range(3)]
    others = [threading.Thread(target=work) for work in (end, poll, poll)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in (*senders, *others):
            thread.start()
        for thread in senders:
            thread.join()
    finally:
        done.set()
        sys.setswitchinterval(interval)
    for thread in others:
        thread.join()
    batches[-1].done.complete(BatchOutcome(0, -1))
    while scene.queue.serve(0):
        pass
    assert len(told) == len(set(told)) == 900
    assert len(scene.sent) == 0


@pytest.mark.parametrize("value", [b"x", "x"])
def test_the_partition_true_means_partition_1(value: str | bytes) -> None:
    """Python's bools are ints; `True` once meant that the message was already sent."""
    told: list[tuple[object, ...]] = []
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for _ in range(2):  # with and without an open batch
                producer.produce(
                    "t", value, partition=True,
                    on_delivery=lambda _, m: told.append((m.value(), m.partition())),
                )  # fmt: skip
            assert producer.flush(10) == 0
    assert told == [(b"x", 1)] * 2


@pytest.mark.parametrize("polls", [True, False], ids=["poll", "flush"])
def test_failed_messages_without_a_callback_are_logged_in_one_line(
    polls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[object] = []
    with FakeCluster() as cluster:
        options = {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 500}
        with Producer(options) as producer:
            for _ in range(10):
                producer.produce("absent", b"x")
            for _ in range(5):
                producer.produce("absent", b"x", on_delivery=lambda error, _: told.append(error))
            while polls and len(producer):
                producer.poll(HANG_S)
            assert producer.flush(HANG_S) == 0
    (line,) = [r.getMessage() for r in caplog.records if "looked at no result" in r.getMessage()]
    assert "10 records were not delivered" in line
    assert len(told) == 5
