"""Test results, contexts and signals of workers in threads."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from itertools import count
from types import FrameType
from typing import Any

import pytest

from odradek import (
    ClientClosedError,
    ConfigurationError,
    Consumer,
    ConsumerRecord,
    IllegalStateError,
    Producer,
    TopicPartition,
    Workers,
)
from odradek.clients.workers.work_queue import WorkItem
from odradek.clients.workers.work_run import WorkRun
from odradek.errors import WorkFailedError
from odradek.runtime.hosts.worker_threads import WorkerThreads
from odradek.testing import FakeCluster

USER: ContextVar[str] = ContextVar("user", default="nobody")
TOPICS = {"in": 2, "dead": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1, topics=TOPICS) as made:
        yield made


class Scene:
    """A topic with its own producer and consumer group."""

    def __init__(self, cluster: FakeCluster, topic: str) -> None:
        self.topic = topic
        self.servers = {"bootstrap.servers": cluster.bootstrap_servers}
        cluster.create_topic(topic, partitions=2)
        cluster.create_topic(f"{topic}-dead", partitions=1)
        self.producer = Producer(self.servers, linger_ms=0)
        self.consumer = Consumer(
            self.servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def send(self, count: int, keys: int = 10) -> None:
        for number in range(count):
            self.producer.send(self.topic, b"%d" % number, key=b"k%d" % (number % keys))
        self.producer.flush(10)

    def committed(self) -> int:
        partitions = [TopicPartition(self.topic, p) for p in range(2)]
        found = self.consumer.committed(partitions).values()
        return sum(at.offset for at in found if at is not None)


@pytest.fixture
def scene(cluster: FakeCluster, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = Scene(cluster, request.node.name.replace("[", ".").replace("]", ""))
    yield made
    made.consumer.close()
    made.producer.close()


def test_records_of_a_key_are_processed_in_order_and_in_the_callers_context(scene: Scene) -> None:
    scene.send(300)
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    users, threads = set[str](), set[str]()

    def work(record: ConsumerRecord) -> None:
        users.add(USER.get())
        threads.add(threading.current_thread().name)
        seen[record.key].append(int(record.value or b""))
        if sum(map(len, seen.values())) == 300:
            workers.stop()

    workers = Workers(scene.consumer, work, concurrency=4)
    USER.set("alice")
    workers.run(scene.topic)
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 300 == scene.committed()
    assert users == {"alice"}
    assert threads <= {f"odradek-worker-{n}" for n in range(1, 5)}


def test_repr_of_workers_names_the_consumer(cluster: FakeCluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "mine"}
    with Consumer(servers, group_id="shown", enable_auto_commit=False) as consumer:
        assert repr(Workers(consumer, print)) == f"<Workers of {consumer!r}>"
    assert repr(Workers.__new__(Workers)) == "<Workers of None>"


def test_a_failed_record_without_a_dead_letter_topic_ends_the_run(scene: Scene) -> None:
    scene.send(1)

    def work(record: ConsumerRecord) -> None:
        raise ValueError("no")

    workers = Workers(scene.consumer, work, max_attempts=1)
    with pytest.raises(WorkFailedError, match="tried once: ValueError: no") as caught:
        workers.run(scene.topic)
    assert isinstance(caught.value.__cause__, ValueError)
    assert scene.committed() == 0


def test_a_dead_letter_contains_the_record_and_the_error_message(scene: Scene) -> None:
    scene.send(3, keys=1)

    def work(record: ConsumerRecord) -> None:
        if record.value == b"1":
            raise ValueError("no")
        if record.value == b"2":  # same key, so the dead letter of b"1" is written
            workers.stop()

    workers = Workers(
        scene.consumer,
        work,
        max_attempts=1,
        producer=scene.producer,
        dead_letter_topic=f"{scene.topic}-dead",
    )
    workers.run(scene.topic)
    with Consumer(scene.servers, auto_offset_reset="earliest") as reading:
        reading.assign([TopicPartition(f"{scene.topic}-dead", 0)])
        [letter] = reading.poll(5.0)
    assert (letter.key, letter.value) == (b"k0", b"1")
    assert dict(letter.headers)["__connect.errors.exception.message"] == b"no"
    assert scene.committed() == 3


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_run_raises_keyboard_interrupt_and_system_exit_of_the_work_function(
    scene: Scene, raised: type[BaseException]
) -> None:
    scene.send(1)

    def work(record: ConsumerRecord) -> None:
        raise raised

    with pytest.raises(raised):
        Workers(scene.consumer, work).run(scene.topic)
    assert scene.committed() == 0


def test_the_log_contains_the_number_of_the_failed_attempt(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.send(1)

    def work(record: ConsumerRecord) -> None:
        workers.stop()
        raise ValueError("no")

    workers = Workers(scene.consumer, work)
    workers.run(scene.topic)
    assert "work on the record at offset 0 failed (attempt 1): ValueError: no" in caplog.text


def test_a_work_function_that_returns_an_awaitable_is_an_error(scene: Scene) -> None:
    scene.send(1)

    async def later() -> None: ...

    workers = Workers(scene.consumer, lambda _: later(), max_attempts=1)
    with pytest.raises(WorkFailedError, match="use AsyncWorkers"):
        workers.run(scene.topic)


def test_a_work_function_that_hangs_does_not_delay_the_end_of_run(scene: Scene) -> None:
    scene.send(1)
    go_on = threading.Event()

    def work(record: ConsumerRecord) -> None:
        workers.stop()
        go_on.wait()

    workers = Workers(scene.consumer, work, drain_timeout=0.0)
    workers.run(scene.topic)
    assert scene.committed() == 0
    go_on.set()


def test_run_raises_client_closed_error_if_the_consumer_is_closed_meanwhile(scene: Scene) -> None:
    """`run` notices this while `close` has left the group but not yet closed the client."""
    scene.send(1)
    fetcher = scene.consumer._engine.fetcher
    halt, left, over = fetcher.halt, threading.Event(), threading.Event()
    closing = threading.Thread(target=scene.consumer.close)

    def halt_late() -> Any:
        left.set()
        over.wait(10.0)
        return halt()

    def work(record: ConsumerRecord) -> None:
        closing.start()
        left.wait(10.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetcher, "halt", halt_late)
        # A pending commit may fail first; its error has the second text.
        said = "this Consumer is closed|the consumer is being closed"
        with pytest.raises(ClientClosedError, match=said):
            Workers(scene.consumer, work).run(scene.topic)
        over.set()
        closing.join()


def test_a_stop_before_run_ends_the_run_but_affects_no_other_call(scene: Scene) -> None:
    scene.send(1)
    workers = Workers(scene.consumer, print)
    workers.stop()
    workers.run(scene.topic)
    scene.consumer.subscribe([scene.topic])
    assert len(scene.consumer.poll(10.0)) == 1


def test_a_producer_with_serializers_is_rejected_for_dead_letters(scene: Scene) -> None:
    with Producer(
        scene.servers, value_serializer=bytes
    ) as producer:  # a serializer that accepts bytes
        letters: dict[str, Any] = {"producer": producer, "dead_letter_topic": "dead"}
        with pytest.raises(ConfigurationError, match="written as the bytes that were read"):
            Workers(scene.consumer, print, **letters)


def test_workers_can_run_again_after_an_interrupt_at_any_line_of_run(scene: Scene) -> None:
    """A Ctrl-C must not leave the workers marked as running, or the deserializers disabled."""
    consumer = Consumer(
        scene.servers, group_id=scene.topic, enable_auto_commit=False, value_deserializer=int
    )
    workers = Workers(consumer, print)
    for at in count():
        lines = 0

        def trace(frame: FrameType, event: str, _: Any, at: int = at) -> Any:
            nonlocal lines
            if frame.f_code is not WorkRun.run.__code__:
                return None
            lines += event == "line"
            if lines > at:
                sys.settrace(trace)
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        with suppress(KeyboardInterrupt):
            workers.stop()
            sys.settrace(trace)
            try:
                workers.run(scene.topic)
            finally:
                sys.settrace(before)
        workers.stop()
        workers.run(scene.topic)
        convert = consumer._calls.engine.delivery._converter
        assert convert is not None
        if lines <= at:
            break
    consumer.close()
    assert at > 10


def test_run_cannot_be_called_while_it_is_running(scene: Scene) -> None:
    scene.send(1)
    found: list[BaseException] = []

    def work(record: ConsumerRecord) -> None:
        try:
            workers.run(scene.topic)
        except IllegalStateError as error:
            found.append(error)
        workers.stop()

    workers = Workers(scene.consumer, work)
    workers.run(scene.topic)
    assert "already running" in str(found[0])


class LateFuture:
    """An acknowledgement that the test controls."""

    def __init__(self) -> None:
        self.given = threading.Event()

    def result(self) -> None:
        self.given.wait()


def test_an_item_is_done_only_when_its_dead_letter_is_acknowledged() -> None:
    future, told = LateFuture(), threading.Event()

    class Sending:
        def send(self, **letter: Any) -> LateFuture:
            sent.append(letter)
            return future

    sent: list[dict[str, Any]] = []
    hands = WorkerThreads(print, Sending(), time.monotonic, None, told.set)
    record = ConsumerRecord("t", 0, 5, 0, 0, None, b"v", (), 0)
    item = WorkItem(record, record.topic_partition, None)
    item.letter = {"topic": "dead"}
    hands.start(item)
    assert hands.done(0.05) == []
    assert list(hands.busy) == [item]
    future.given.set()
    told.wait(10.0)
    assert hands.taken() == [(item, None)]
    hands.close()
    assert sent == [{"topic": "dead"}]
