"""Errors of transactions, in virtual time: which ones are raised, and how to recover."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.produce_script import leader_of
from tests.simulation.transactional import P0, PROTOCOLS, Scene, send

from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.producer.batch import ProducerBatch
from odradek.common.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors import kafka as errors
from odradek.network.flow import START, Flow
from odradek.protocol.messages.produce import PartitionProduceResponse


def failing(error: KafkaError) -> Callable[..., Flow[Any]]:
    """Return a function that raises this error, to replace the function of a request."""

    def flow(*_: object, **__: object) -> Flow[None]:
        yield START
        raise error

    return flow


@PROTOCOLS
def test_a_replaced_member_cannot_commit_offsets(version: int) -> None:
    """KIP-447: the member's offsets are refused, the transaction fails; the next one succeeds."""
    scene = Scene(version)
    consumer = scene.consumer(group_id="g")
    consumer.subscribe(["t"])
    producer = scene.producer()
    with producer.transaction():
        send(producer, range(3))
    while not consumer.poll(1.0):
        assert scene.world.now < 60
    now = consumer.group_metadata()
    stale = ConsumerGroupMetadata("g", now.generation_id - 1, now.member_id)
    with pytest.raises(errors.IllegalGenerationError) as caught, producer.transaction():
        send(producer, range(3, 6))
        producer.send_offsets_to_transaction({P0: 1}, stale)
    assert isinstance(caught.value, AbortableTransactionError)
    assert caught.value.requires_abort
    assert not caught.value.fatal
    assert not caught.value.retriable
    with producer.transaction():
        send(producer, range(6, 9))
        producer.send_offsets_to_transaction({P0: 2}, now)
    assert scene.visible() == [0, 1, 2, 6, 7, 8]
    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(2)}


@PROTOCOLS
@pytest.mark.parametrize("point", ["send", "commit", "abort", "offsets"])
def test_a_second_producer_fences_the_first_one_permanently(version: int, point: str) -> None:
    scene = Scene(version)
    old = scene.producer()
    old.begin_transaction()
    old.send("t", b"1", partition=0).result(timeout=10)
    new = scene.producer()
    calls: dict[str, Callable[[], object]] = {
        "commit": old.commit_transaction,
        "abort": old.abort_transaction,
        "offsets": lambda: old.send_offsets_to_transaction({P0: 1}, "g"),
        "send": lambda: old.send("t", b"2", partition=1).result(timeout=10),
    }
    with pytest.raises(KafkaError):
        calls.pop(point)()
    with pytest.raises(KafkaError) as seen:
        old.abort_transaction()
    assert isinstance(seen.value, errors.ProducerFencedError)
    assert isinstance(seen.value, FatalTransactionError)
    assert seen.value.fatal
    assert not seen.value.requires_abort
    for call in calls.values():
        with pytest.raises(errors.ProducerFencedError, match="took over transactional.id 'x'"):
            call()
    old.close()
    with new.transaction():
        new.send("t", b"7", partition=0)
    assert scene.visible() == [7]


@PROTOCOLS
def test_a_transaction_that_takes_too_long_is_aborted_by_its_coordinator(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer(transaction_timeout_ms=5000)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0).result(timeout=10)
    scene.world.advance(20.0)
    assert not scene.cluster.log("t", 0).transactions.open
    with pytest.raises(FatalTransactionError, match=r"transaction\.timeout\.ms"):
        producer.commit_transaction()
    assert scene.visible() == []


@PROTOCOLS
def test_a_record_that_expires_makes_the_transaction_abortable_and_no_record_is_duplicated(
    version: int,
) -> None:
    scene = Scene(version)
    producer = scene.producer(delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=0)
    before = producer._engine.sender.identity.current
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=10)
    leader = leader_of(scene.cluster)
    scene.cluster.go_silent(leader.id)
    future = producer.send("t", b"1", partition=0)
    assert isinstance(future.exception(timeout=10), KafkaTimeoutError)
    for call in (producer.commit_transaction, producer.begin_transaction):
        with pytest.raises(AbortableTransactionError) as caught:
            call()
        assert not isinstance(caught.value, KafkaTimeoutError)
        assert isinstance(caught.value.__cause__, KafkaTimeoutError)
    with pytest.raises(AbortableTransactionError):
        producer.send("t", b"2", partition=0)
    scene.cluster.repair(leader.id)
    producer.abort_transaction()
    assert producer._engine.sender.identity.current > before  # late batches are fenced
    with producer.transaction():
        send(producer, range(6))
    assert scene.visible() == list(range(6))


@PROTOCOLS
@pytest.mark.parametrize("code", [45, 47, 59, 29, 120, 48])
def test_an_abort_recovers_the_producer_after_a_refused_batch(
    version: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID … (KIP-360)."""
    scene = Scene(version)
    producer = scene.producer(linger_ms=0)
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=5)
    sender = producer._engine.sender
    settle = sender.batch_completion.settle

    def refuse(batch: ProducerBatch, _: object, *others: Any, **more: Any) -> None:
        settle(batch, PartitionProduceResponse(index=0, error_code=code), *others, **more)

    with monkeypatch.context() as patch:
        patch.setattr(sender.batch_completion, "settle", refuse)
        future = producer.send("t", b"1", partition=0)
        assert isinstance(future.exception(timeout=5), errors.ERRORS[code])
    with pytest.raises(errors.ERRORS[code]) as caught:
        producer.commit_transaction()
    assert isinstance(caught.value, AbortableTransactionError)
    producer.abort_transaction()
    with producer.transaction():
        send(producer, range(2, 5))
    assert scene.visible() == [2, 3, 4]


REFUSED: list[tuple[str, int, type[KafkaError], type[KafkaError]]] = [
    ("end", 90, FatalTransactionError, errors.ProducerFencedError),
    ("end", 47, FatalTransactionError, errors.ProducerFencedError),
    ("end", 48, FatalTransactionError, errors.InvalidTxnStateError),
    ("end", 53, FatalTransactionError, errors.TransactionalIdAuthorizationError),
    ("end", 120, AbortableTransactionError, errors.TransactionAbortableError),
    ("commit_offsets", 90, FatalTransactionError, errors.ProducerFencedError),
    ("commit_offsets", 30, AbortableTransactionError, errors.GroupAuthorizationError),
    ("commit_offsets", 82, AbortableTransactionError, errors.FencedInstanceIdError),
    ("commit_offsets", 25, AbortableTransactionError, errors.UnknownMemberIdError),
    ("commit_offsets", 113, AbortableTransactionError, errors.StaleMemberEpochError),
    ("commit_offsets", -1, FatalTransactionError, errors.UnknownServerError),
]


@pytest.mark.parametrize(("request_", "code", "kind", "cls"), REFUSED)
def test_errors_of_transactions_contain_a_remedy(
    request_: str,
    code: int,
    kind: type[KafkaError],
    cls: type[KafkaError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    producer = scene.producer()
    manager = producer._engine.transactions
    assert manager is not None
    with monkeypatch.context() as patch:
        patch.setattr(manager.requests, request_, failing(errors.error_for(code)))
        producer.begin_transaction()
        send(producer, range(3))
        with pytest.raises(cls) as caught:
            producer.send_offsets_to_transaction({P0: 1}, "g")
            producer.commit_transaction()
    assert type(caught.value).__name__ == cls.__name__
    assert isinstance(caught.value, kind)
    assert caught.value.fatal is not caught.value.requires_abort
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    if caught.value.requires_abort:
        producer.abort_transaction()
        with producer.transaction():
            send(producer, range(3, 6))
        assert scene.visible() == [3, 4, 5]
    else:
        with pytest.raises(cls):
            producer.abort_transaction()


def test_a_transaction_call_that_times_out_reports_the_last_error() -> None:
    scene = Scene()
    crashed = scene.producer()
    crashed.begin_transaction()
    crashed.send("t", b"1", partition=0).result(timeout=10)
    crashed.close(timeout=0)
    scene.cluster.transactions.marker_delay = 3.0
    producer = scene.uninitialised()
    with pytest.raises(KafkaTimeoutError, match=r"(?s)init_transactions\(\).*CONCURRENT_TRANS"):
        producer.init_transactions(timeout=1.0)
    producer.init_transactions(timeout=10.0)


def test_init_may_be_called_again_after_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    producer = scene.uninitialised()
    manager = producer._engine.transactions
    assert manager is not None
    refusal = errors.error_for(53)
    with monkeypatch.context() as patch:
        patch.setattr(manager.requests, "init_producer_id", failing(refusal))
        with pytest.raises(errors.TransactionalIdAuthorizationError) as caught:
            producer.init_transactions()
    assert not caught.value.fatal
    producer.init_transactions()
    with producer.transaction():
        send(producer, range(3))
    assert scene.visible() == [0, 1, 2]
    with pytest.raises(errors.InvalidTransactionTimeoutError) as fatal:
        scene.producer(transactional_id="y", transaction_timeout_ms=10**6)
    assert fatal.value.fatal


@PROTOCOLS
def test_a_transactional_id_that_expired_is_initialized_again(version: int) -> None:
    """KIP-360: an id expires after transactional.id.expiration.ms without a transaction."""
    scene = Scene(version)
    producer = scene.producer()
    with producer.transaction():
        send(producer, range(3))
    scene.world.advance(1.0)
    for shard in scene.cluster.transactions.shards():
        shard.known.pop("x", None)
    with pytest.raises(errors.InvalidProducerIdMappingError) as caught, producer.transaction():
        send(producer, range(3, 6))
    assert isinstance(caught.value, AbortableTransactionError)
    with producer.transaction():
        send(producer, range(6, 9))
    assert scene.visible() == [0, 1, 2, 6, 7, 8]
