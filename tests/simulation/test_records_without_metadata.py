"""`send()` doesn't wait for metadata: records without metadata keep their order and limits."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.clients.producer.records_without_metadata import (
    WAITING_RECORD_OVERHEAD,
    RecordsWithoutMetadata,
    RecordWithoutMetadata,
)
from odradek.common.errors import (
    BufferExhaustedError,
    ClientClosedError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
)
from odradek.common.errors.kafka import InvalidTopicExceptionError, TopicAuthorizationError
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.runtime.hosts.record_future import RecordFuture

PATIENCE = 12.0


class Scene(Stage):
    """A producer and, unless `away` is False, a cluster that can't be reached until `back()`."""

    def __init__(self, *, away: bool = True, **config: Any) -> None:
        super().__init__(7, brokers=1)
        if away:
            self.cluster.kill(1)
        usual = {"linger_ms": 0, "max_block_ms": int(PATIENCE * 1000)}
        self.writer = self.producer(**{**usual, **config})

    def back(self) -> None:
        self.cluster.start(1)


def test_send_and_result_take_no_longer_than_the_timeout() -> None:
    """`send(…).result(5)` takes 5 s at most, for each max.block.ms."""
    scene = Scene(max_block_ms=60_000)
    began = scene.world.now
    future = scene.writer.send("t", b"x")
    assert scene.world.now == began
    with pytest.raises(KafkaTimeoutError, match=r"(?s)records for topic t.*connect: ") as caught:
        future.result(5)
    assert scene.world.now == pytest.approx(began + 5, abs=0.1)
    assert "still sends the records" in str(caught.value.__notes__)
    scene.back()
    assert future.result(20).offset == 0


def test_records_keep_their_order_when_metadata_arrives() -> None:
    scene = Scene()
    futures = []
    for n in range(350):
        if n == 50:
            scene.back()
        if n >= 50:  # sent while partitions are assigned to the first records, and afterwards
            scene.world.advance(0.01)
        one = scene.writer.send("t", b"%d" % n, partition=(None, 1)[n % 2], key=b"k")
        futures.append(one)
    places = [future.result(20) for future in futures]
    (keyed,) = {place.partition for place in places[::2]}
    for partition in {keyed, 1}:
        mine = [place.offset for place in places if place.partition == partition]
        assert mine == list(range(len(mine)))
    assert len(scene.values(keyed)) + (0 if keyed == 1 else len(scene.values(1))) == 350


def test_records_sent_while_others_get_their_partitions_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may send between the arrival of metadata and the step that uses it."""
    scene = Scene(away=False)
    engine = scene.writer._engine
    later: list[Any] = []

    def held(early: RecordsWithoutMetadata, name: str, waiting: Any, oldest: Any) -> None:
        waiting.placing = Completion()
        later.append(waiting)

    with monkeypatch.context() as patch:
        patch.setattr(RecordsWithoutMetadata, "_begin", held)
        first = scene.writer.send("t", b"first", partition=0)
        known = engine.start(engine.topic("t", scene.world.now + 5))
        scene.writer.cluster_id(5)
        scene.world.advance(1.0)
        assert known.result().partitions
        second = scene.writer.send("t", b"second", partition=0)
        assert engine.accumulator.live() == []
        later[0].placing = None
        engine.early._due.append("t")
    assert [future.result(5).offset for future in (first, second)] == [0, 1]


def test_arrow_rows_are_written_after_records_that_were_sent_before() -> None:
    scene = Scene()
    for n in range(20):
        scene.writer.send("t", b"%d" % n, partition=0)
    scene.world.after(2.0, scene.back)
    rows = pa.table({"value": [b"20", b"21"], "partition": [0, 0]})
    scene.writer.send_arrow("t", rows).result(20)
    assert scene.values(0) == [b"%d" % n for n in range(22)]


def test_a_record_waits_for_max_block_ms_and_its_error_names_the_missing_metadata() -> None:
    scene = Scene(away=False)
    told: list[object] = []
    first = scene.writer.send("tt", b"x", on_delivery=lambda error, place: told.append(error))
    scene.world.advance(5.0)
    second = scene.writer.send("tt", b"y")
    scene.world.advance(PATIENCE - 5.0 + 0.1)
    assert first.done()
    assert not second.done()
    with pytest.raises(KafkaTimeoutError, match="metadata of topic tt.*did you mean t\\?"):
        first.result(0)
    assert told == [first.exception(0)]
    scene.cluster.create_topic("tt")
    assert second.result(10).offset == 0


@pytest.mark.parametrize(
    ("code", "error"), [(29, TopicAuthorizationError), (17, InvalidTopicExceptionError)]
)
def test_a_permanent_error_fails_the_record_immediately(
    code: int, error: type[KafkaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            topic.error_code, topic.partitions = code, []

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, refuse)
    scene = Scene(away=False)
    began = scene.world.now
    with pytest.raises(error):
        scene.writer.send("t", b"x").result(5)
    assert scene.world.now < began + 1


def test_a_record_for_a_missing_partition_does_not_delay_other_records() -> None:
    scene = Scene(away=False)
    send = scene.writer.send
    assert send("t", b"0", partition=0).result(5).offset == 0
    far, near = send("t", b"far", partition=5), send("t", b"near", partition=4)
    again = send("t", b"far again", partition=5)
    assert scene.writer._engine.early.topic("t") is not None  # other records are sent immediately
    assert send("t", b"1", partition=0).result(5).offset == 1
    explained = scene.writer.explain()
    assert (
        "waits for its partition: partition 5 of topic 't' doesn't exist, it has 3 partitions"
        in str(explained.records)
    )
    assert "(max.block.ms)" in str(explained.records)
    scene.cluster.add_partitions("t", 2)
    assert near.result(5).partition == 4
    assert not far.done()
    scene.cluster.add_partitions("t", 1)
    assert [f.result(5).offset for f in (far, again)] == [0, 1]


def test_flush_and_close_wait_for_records_without_metadata() -> None:
    scene = Scene(linger_ms=60_000)
    futures = [scene.writer.send("t", b"%d" % n) for n in range(10)]
    with pytest.raises(KafkaTimeoutError, match="10 records"):
        scene.writer.flush(timeout=2)
    scene.back()
    scene.writer.flush(timeout=20)  # flush() ends the linger time of a minute
    assert all(future.done() for future in futures)
    scene.cluster.kill(1)
    scene.world.advance(1.0)
    left = scene.writer.send("u", b"x")
    with pytest.raises(KafkaTimeoutError):
        scene.writer.close(timeout=1)
    assert isinstance(left.exception(0), ClientClosedError)


def test_records_without_metadata_count_in_buffer_memory_until_completed() -> None:
    scene = Scene(buffer_memory=100_000, max_block_ms=2000, max_request_size=50_000)
    futures: list[RecordFuture] = []
    began = scene.world.now
    with pytest.raises(BufferExhaustedError):
        futures.extend(scene.writer.send("t", bytes(100)) for _ in range(1000))
    assert scene.world.now >= began + 2
    assert len(futures) <= 100_000 // WAITING_RECORD_OVERHEAD
    assert all(isinstance(future.exception(1), KafkaTimeoutError) for future in futures)
    assert scene.writer._engine.accumulator.used == 0
    scene.back()
    assert scene.writer.send("t", bytes(40_000)).result(20)
    assert scene.writer._engine.accumulator.used == 0


def test_a_flush_does_not_wait_for_a_record_whose_send_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(away=False)
    scene.writer.partitions_for("t", timeout=5)
    engine, host = scene.writer._engine, scene.writer._host
    flushes: list[Completion[None]] = []

    def interrupted() -> None:
        patch.undo()
        flushes.append(engine.start(engine.flush(scene.world.now + 60)))
        scene.world.advance(1.0)
        assert len(engine.incomplete()) == 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(host, "wake", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scene.writer.send("nix", b"x")
    scene.world.advance(1.0)
    assert flushes[0].done
    assert (engine.accumulator.used, engine.early.incomplete()) == (0, [])


def test_an_interrupted_send_releases_its_record_and_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier, only the memory was released."""
    scene = Scene(away=False)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scene.writer, "_future", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scene.writer.send("t", b"x")
    engine = scene.writer._engine
    assert (engine.early.incomplete(), engine.accumulator.granted) == ([], {})
    assert engine.accumulator.used == 0
    assert scene.writer.send("t", b"y", partition=0).result(5).offset == 0


@pytest.mark.parametrize("topic", ["t", "nix"])
def test_values_are_copied_by_send_and_released_after_delivery(topic: str) -> None:
    """A caller may reuse its buffers after send(), and keep the future as long as it likes."""
    scene = Scene()
    value, key, header = bytearray(b"value"), bytearray(b"key"), bytearray(b"header")
    send: Any = scene.writer.send
    future = send(topic, value, key, [("h", header)])
    for data in (value, key, header):
        data[:] = b"another"
    scene.back()
    scene.world.advance(PATIENCE + 1)
    if topic == "t":
        (row,) = scene.cluster.records("t", future.result(5).partition)
        assert row[3:] == (b"key", b"value", (("h", b"header"),))
    else:
        assert isinstance(future.exception(0), KafkaTimeoutError)
    record = cast("RecordWithoutMetadata", future._batch)
    assert record.record == (None, None, (), 0)


@pytest.mark.parametrize("patience", [0, 5])
def test_callbacks_that_send_again_do_not_starve_other_records(patience: int) -> None:
    scene = Scene(away=False, max_block_ms=patience)
    scene.writer.send("t", b"x", partition=0)
    told: list[object] = []

    def again(*outcome: object) -> None:
        told.append(outcome)
        scene.writer.send("nix", b"x", on_delivery=again)

    again()
    scene.world.advance(0.5)
    assert 10 < len(told) <= 600
    scene.writer.send("t", b"x", partition=0)
    scene.world.advance(0.5)
    scene.writer.send("t", b"x", partition=0)
    scene.world.advance(0.5)
    assert len(scene.values(0)) >= 1
    with pytest.raises(KafkaTimeoutError):
        scene.writer.close(timeout=0)


def test_many_missing_topics_do_not_slow_down_other_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(away=False)
    for n in range(300):
        scene.writer.send(f"nix-{n}", b"x")
    scene.world.advance(1.0)
    looked: list[object] = []
    real = RecordsWithoutMetadata._oldest

    def look(early: RecordsWithoutMetadata, waiting: Any) -> RecordWithoutMetadata | None:
        looked.append(waiting)
        return real(early, waiting)

    monkeypatch.setattr(RecordsWithoutMetadata, "_oldest", look)
    for _ in range(50):
        scene.writer.send("t", b"x", partition=0).result(5)
    assert len(looked) < 300
    with pytest.raises(KafkaTimeoutError) as caught:
        scene.writer.close(timeout=0)
    assert len(str(caught.value)) < 2000


def test_a_commit_waits_for_records_without_metadata_and_an_abort_fails_them() -> None:
    scene = Scene(away=False, transactional_id="x")
    producer = scene.writer
    producer.init_transactions(10)
    with producer.transaction():
        kept = producer.send("t", b"kept", partition=0)
    assert kept.result(0).offset == 0
    producer.begin_transaction()
    dropped = producer.send("nix", b"dropped")
    producer.abort_transaction(10)
    assert isinstance(dropped.exception(1), TransactionAbortedError)
    with pytest.raises(KafkaError), producer.transaction():
        producer.send("nix", b"never")
        scene.world.advance(0.1)
    with producer.transaction():
        again = producer.send("t", b"again", partition=0)
    assert again.done()


def test_a_callback_may_send_to_a_topic_without_metadata() -> None:
    scene = Scene(away=False)
    scene.cluster.create_topic("u")
    sent: list[Any] = []
    scene.writer.send("t", b"x", on_delivery=lambda *_: sent.append(scene.writer.send("u", b"y")))
    scene.world.advance(5.0)
    assert sent[0].result(5).topic == "u"


def test_a_custom_partitioner_is_called_in_the_callers_thread() -> None:
    calls: list[int] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        calls.append(count)
        return 2

    scene = Scene(partitioner=choose)
    scene.world.after(3.0, scene.back)
    future = scene.writer.send("t", b"x")
    assert calls == [3]
    assert future.result(10).partition == 2


def test_a_first_record_lingers_from_its_send_while_the_leader_is_connected() -> None:
    stage = Stage(partitions=1)
    producer = stage.producer(linger_ms=300)
    begin = stage.world.now
    futures = [producer.send("t", b"x") for _ in range(3)]
    stage.world.advance(0.2)
    assert len(stage.world.dials) == 2, "the front door, and the leader"
    assert not futures[0].done()
    answered = [futures[0].result(timeout=10.0).offset, futures[2].result(timeout=10.0).offset]
    assert answered == [0, 2], "one batch"
    assert 0.3 <= stage.world.now - begin < 0.305
    producer.close()


def test_a_record_that_waited_longer_than_linger_ms_is_sent_immediately() -> None:
    stage = Stage(partitions=1)
    for broker in stage.cluster.brokers.values():
        broker.delays[MetadataRequest.API_KEY] = 0.5
    producer = stage.producer(linger_ms=300)
    begin = stage.world.now
    futures = [producer.send("t", b"x") for _ in range(3)]
    assert [future.result(timeout=10.0).offset for future in futures] == [0, 1, 2]
    assert 0.5 <= stage.world.now - begin < 0.52
    producer.close()


def test_another_topic_does_not_extend_the_linger_time_of_a_first_record() -> None:
    stage = Stage(partitions=1)
    stage.cluster.create_topic("known", partitions=1)
    producer = stage.producer(linger_ms=1_000)
    producer.warm(["known"])
    for broker in stage.cluster.brokers.values():
        broker.delays[MetadataRequest.API_KEY] = 0.9
    begin = stage.world.now
    first = producer.send("t", b"x")
    stage.world.advance(0.8)
    second = producer.send("known", b"y")
    first.result(timeout=10.0)
    assert 1.0 <= stage.world.now - begin < 1.02
    second.result(timeout=10.0)
    assert 1.8 <= stage.world.now - begin < 1.82
    producer.close()


def test_leaders_are_looked_up_once_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup for each of thousands of waiting records would be slow."""
    scene = Scene(linger_ms=50)
    sender, asked = scene.writer._engine.sender, list[TopicPartition]()
    expect = sender.expect

    def noted(partition: TopicPartition, now: float) -> None:
        asked.append(partition)
        expect(partition, now)

    monkeypatch.setattr(sender, "expect", noted)
    futures = [scene.writer.send("t", b"x", partition=0) for _ in range(500)]
    scene.back()
    assert futures[-1].result(30).offset == 499
    assert len(asked) == 1
