"""The transactional producer in virtual time: each guarantee, in all protocol versions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.transactional import P0, PROTOCOLS, Scene, send

from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.common.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaTimeoutError,
    TransactionAbortedError,
)
from odradek.common.errors.topics import TopicRecreatedError
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.simulation.brokers import broker_faults
from odradek.simulation.world.environment import ReceivedRequest


@PROTOCOLS
def test_only_committed_records_are_visible(version: int) -> None:
    scene = Scene(version)
    with scene.producer() as producer:
        for begin in (0, 10):
            with producer.transaction():
                send(producer, range(begin, begin + 10))
        producer.begin_transaction()
        send(producer, range(20, 30))
        producer.flush()
        producer.abort_transaction()
        with producer.transaction() as same:
            assert same is producer
            send(producer, range(30, 40))
    assert scene.visible() == [*range(20), *range(30, 40)]
    assert scene.written() == 40
    assert not any(log.transactions.open for log in map(scene.cluster.log, "ttt", range(3)))


@PROTOCOLS
def test_an_abort_drops_unsent_records_and_reports_it(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer(linger_ms=60_000)
    with pytest.raises(ZeroDivisionError), producer.transaction():
        written = producer.send("t", b"1", partition=0)
        producer.flush()
        dropped = producer.send("t", b"2", partition=0)
        raise ZeroDivisionError
    assert written.result(timeout=0).offset == 0
    assert isinstance(dropped.exception(timeout=0), TransactionAbortedError)
    assert scene.visible() == []
    producer.begin_transaction()
    send(producer, range(3))
    producer.commit_transaction()
    assert scene.visible() == [0, 1, 2]


def test_calls_in_the_wrong_state_are_refused_without_effect() -> None:
    scene = Scene()
    producer = scene.uninitialised()
    calls: dict[str, Callable[[], object]] = {
        "init_transactions": producer.init_transactions,
        "begin_transaction": producer.begin_transaction,
        "send_offsets": lambda: producer.send_offsets_to_transaction({P0: 1}, "g"),
        "commit_transaction": producer.commit_transaction,
        "abort_transaction": producer.abort_transaction,
        "sent": lambda: producer.send("t", b"0"),
        "sent now": lambda: producer.send_arrow("t", pa.table({"value": [b"0"]})),
    }

    def refused(allowed: str, why: str) -> None:
        for name, call in calls.items():
            if name not in allowed:
                with pytest.raises(IllegalStateError, match=name) as caught:
                    call()
                assert why in str(caught.value) or name == "init_transactions"

    refused("init_transactions", "call init_transactions() first")
    producer.init_transactions()
    refused("begin_transaction", "call begin_transaction() first")
    producer.begin_transaction()
    refused("send_offsets commit_transaction abort_transaction sent now", "a transaction is open")
    calls["send_offsets"]()
    calls["sent"]()
    calls["sent now"]()
    producer.commit_transaction()
    assert scene.visible() == [0, 0]
    plain = scene.uninitialised(transactional_id=None)
    with pytest.raises(IllegalStateError, match=r"set transactional\.id"):
        plain.init_transactions()


@PROTOCOLS
def test_a_transaction_without_records_sends_no_request(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer()
    for broker in range(3):
        scene.cluster.pause(broker + 1)
    begin = scene.world.now
    for _ in range(10):
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.abort_transaction()
    assert scene.world.now - begin < 0.1


@pytest.mark.parametrize("known", [False, True])
def test_offsets_of_topics_with_known_ids_are_sent_by_id(known: bool) -> None:
    """KIP-1319: an offset is meaningless in another topic of the same name."""
    scene = Scene(2)
    producer = scene.producer()
    if known:
        producer.partitions_for("t")
    versions: list[int] = []

    def observe(_: object, __: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, TxnOffsetCommitRequest):
            versions.append(request.version)

    scene.cluster.observers.append(observe)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 5}, "g")
    assert scene.committed(P0) == [OffsetAndMetadata(5)]
    assert versions == [6 if known else 5]
    if known:
        broker_faults.recreate_topic(scene.cluster, "t", 3)
        producer.begin_transaction()
        with pytest.raises(TopicRecreatedError):
            producer.send_offsets_to_transaction({P0: 6}, "g", timeout=2.0)
        producer.abort_transaction()


@PROTOCOLS
def test_offsets_are_committed_with_the_transaction_or_not_at_all(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer()
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: OffsetAndMetadata(5, "five", 3)}, "g")
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send_offsets_to_transaction({P0: 99}, ConsumerGroupMetadata("g"))
        raise ZeroDivisionError
    producer.close()
    assert scene.committed(P0) == [OffsetAndMetadata(5, "five", 3)]


@PROTOCOLS
def test_an_open_transaction_of_a_producer_is_aborted_by_the_next_one(version: int) -> None:
    scene = Scene(version)
    crashed = scene.producer()
    crashed.begin_transaction()
    crashed.send("t", b"1", partition=0).result(timeout=10)
    crashed.close(timeout=0)
    assert scene.cluster.log("t", 0).transactions.open
    begin = scene.world.now
    producer = scene.producer()
    assert scene.world.now - begin < 1.0  # CONCURRENT_TRANSACTIONS is retried quickly
    assert not scene.cluster.log("t", 0).transactions.open
    with producer.transaction():
        send(producer, range(3))
    assert scene.visible() == [0, 1, 2]


@PROTOCOLS
def test_close_aborts_an_open_transaction(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer(linger_ms=60_000)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.flush()
    left = producer.send("t", b"2", partition=0)
    producer.close()
    assert isinstance(left.exception(timeout=0), TransactionAbortedError)
    scene.world.advance(0.1)
    assert not scene.cluster.log("t", 0).transactions.open
    with pytest.raises(ClientClosedError):
        producer.begin_transaction()


@PROTOCOLS
@pytest.mark.parametrize("verb", ["pause", "crash", "go_silent", "blackhole"])
def test_a_commit_continues_after_its_call_timed_out(version: int, verb: str) -> None:
    scene = Scene(version)
    producer = scene.producer()
    producer.begin_transaction()
    send(producer, range(9))
    producer.flush()
    broker = scene.coordinator()
    getattr(scene.cluster, verb)(broker)
    with pytest.raises(KafkaTimeoutError, match=r"commit_transaction\(\)") as caught:
        producer.commit_transaction(timeout=0.5)
    assert any("commit_transaction() continues" in note for note in caught.value.__notes__)
    for call in (producer.abort_transaction, producer.begin_transaction):
        with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) timed out"):
            call()
    if verb == "go_silent":  # the controller doesn't notice, as it gets responses
        scene.world.after(2.0, lambda: scene.cluster.repair(broker))
    begin = scene.world.now
    producer.commit_transaction(timeout=60)
    assert scene.world.now - begin < scene.cluster.session_timeout + 5.0
    with producer.transaction():
        send(producer, range(9, 12))
    assert scene.visible() == list(range(12))


@PROTOCOLS
def test_a_commit_continues_after_its_caller_was_interrupted(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer()
    producer.begin_transaction()
    send(producer, range(3))
    producer.flush()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for seconds, what in ((0.0, "is still running: call it"), (5.0, "has finished since")):
        scene.world.after(0.0005, interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
        scene.world.advance(seconds)
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match="was cancelled or interrupted") as caught:
                call()
            assert what in str(caught.value)
    producer.commit_transaction()
    with producer.transaction():
        send(producer, range(3, 6))
    assert scene.visible() == list(range(6))


@PROTOCOLS
def test_send_arrow_belongs_to_the_transaction(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer()
    table = pa.table({"value": [b"%d" % n for n in range(1000)], "partition": [0] * 1000})
    with producer.transaction():
        future = producer.send_arrow("t", table)
    assert future.result(timeout=0)[0].records == 1000
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send_arrow("t", table)
        raise ZeroDivisionError
    assert scene.visible() == list(range(1000))


@pytest.mark.parametrize(("before", "after"), [(0, 2), (1, 2), (2, 1), (2, 0)])
def test_the_transaction_version_may_change_between_transactions(before: int, after: int) -> None:
    scene = Scene(before)
    producer = scene.producer()
    for turn in range(4):
        if turn == 2:
            scene.cluster.transactions.finalize(after)
            scene.cluster.bounce(1)
            scene.world.advance(1.0)
            scene.cluster.bounce(2)
            scene.world.advance(1.0)
            scene.cluster.bounce(3)
            scene.world.advance(1.0)
        with producer.transaction():
            send(producer, range(turn * 3, turn * 3 + 3))
            producer.send_offsets_to_transaction({P0: turn}, "g")
    with producer.transaction():
        send(producer, range(12, 15))
    manager = producer._engine.transactions
    assert manager is not None
    assert manager.version_2 is (after == 2)
    assert scene.visible() == list(range(15))


@PROTOCOLS
def test_the_next_transaction_waits_no_longer_than_necessary(version: int) -> None:
    """While the previous markers are being written, the backoff is 20, then 40 ms (KIP-580)."""
    scene = Scene(version)
    scene.cluster.transactions.marker_delay = 0.05
    producer = scene.producer(linger_ms=0)
    begin = scene.world.now
    for n in range(20):
        with producer.transaction():
            producer.send("t", b"%d" % n, partition=0)
    assert (scene.world.now - begin) / 20 < 0.2
    assert scene.visible() == list(range(20))


@PROTOCOLS
@pytest.mark.parametrize("after", [0.0002, 0.0005, 0.001, 0.002])
def test_an_abort_soon_after_a_commit_succeeds(version: int, after: float) -> None:
    """The commit's markers are still being written, and a first batch is in flight."""
    scene = Scene(version)
    with scene.producer(linger_ms=0) as producer:
        for begin in (0, 100, 200):
            with producer.transaction():
                send(producer, range(begin, begin + 3))
            with pytest.raises(ZeroDivisionError), producer.transaction():
                producer.send("t", b"%d" % (begin + 50), partition=0)
                scene.world.advance(after)
                raise ZeroDivisionError
    assert scene.visible() == [0, 1, 2, 100, 101, 102, 200, 201, 202]


@PROTOCOLS
def test_offsets_must_be_sent_again_if_the_call_that_sent_them_timed_out(version: int) -> None:
    scene = Scene(version)
    with scene.producer() as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 1}, "g")
        producer.begin_transaction()
        send(producer, range(3))
        producer.flush()
        every_broker(scene.cluster, "pause")
        with pytest.raises(KafkaTimeoutError):
            producer.send_offsets_to_transaction({P0: 7}, "g", timeout=1.0)
        with pytest.raises(IllegalStateError, match="call it again"):
            producer.commit_transaction(timeout=1.0)
        every_broker(scene.cluster, "resume")
        producer.send_offsets_to_transaction({P0: 7}, "g")
        producer.commit_transaction()
    assert scene.visible() == [0, 1, 2]
