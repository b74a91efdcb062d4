"""The transactional producer that ships, in virtual time: each promise, in all protocols."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.producer.batch import ProducerBatch
from odradek.common import kafka_errors as errors
from odradek.common.errors import (
    AbortableTransactionError,
    ClientClosedError,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
)
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow
from odradek.protocol.messages.produce import PartitionProduceResponse
from odradek.simulation import SimulatedCluster, World

pytestmark = pytest.mark.simulation

PROTOCOLS = pytest.mark.parametrize("version", [0, 2])
"""Without and with KIP-890's second part; 1 changes nothing for clients."""
P0 = TopicPartition("t", 0)


class Scene:
    """A cluster with topic t, and producers with transactions."""

    def __init__(self, version: int = 2, seed: int = 1) -> None:
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.transactions.version = version
        self.cluster.create_topic("t", partitions=3)

    def producer(self, **config: Any) -> Producer:
        """A producer that has called init_transactions."""
        made = self.uninitialised(**config)
        made.init_transactions()
        return made

    def uninitialised(self, **config: Any) -> Producer:
        config = {"transactional_id": "x", **config}
        servers = self.cluster.bootstrap_servers
        return Producer(bootstrap_servers=servers, _host=self.world.host("producer"), **config)

    def coordinator(self) -> int:
        leader = self.cluster.leader("__transaction_state", self.cluster.transactions.index("x"))
        assert leader is not None
        return leader.id

    def visible(self) -> list[int]:
        """What read_committed shows, the markers written."""
        self.world.advance(0.1)
        rows = [row for p in range(3) for row in self.cluster.log("t", p).visible_rows()]
        return sorted(int(bytes(row[4] or b"")) for row in rows)

    def written(self) -> int:
        return sum(len(self.cluster.records("t", p)) for p in range(3))


def send(producer: Producer, numbers: range) -> None:
    for n in numbers:
        producer.send("t", b"%d" % n, partition=n % 3)


def failing(error: KafkaError) -> Callable[..., Flow[Any]]:
    """A request that is refused."""

    def flow(*_: object, **__: object) -> Flow[None]:
        yield START
        raise error

    return flow


@PROTOCOLS
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(version: int) -> None:
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
def test_an_abort_drops_what_was_not_sent_and_says_so(version: int) -> None:
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


def test_calls_at_the_wrong_time_are_refused_and_change_nothing() -> None:
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

    refused("init_transactions", "init_transactions() has to be called first")
    producer.init_transactions()
    refused("begin_transaction", "begin_transaction() begins one")
    producer.begin_transaction()
    refused("send_offsets commit_transaction abort_transaction sent now", "a transaction is open")
    calls["send_offsets"]()
    calls["sent"]()
    calls["sent now"]()
    producer.commit_transaction()
    assert scene.visible() == [0, 0]
    plain = scene.uninitialised(transactional_id=None)
    with pytest.raises(IllegalStateError, match=r"transactional\.id isn't set"):
        plain.init_transactions()


@PROTOCOLS
def test_a_transaction_without_records_asks_nobody(version: int) -> None:
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
    servers = scene.cluster.bootstrap_servers
    with Consumer(bootstrap_servers=servers, group_id="g", _host=scene.world.host("c")) as consumer:
        assert consumer.committed([P0]) == {P0: OffsetAndMetadata(5, "five", 3)}


@PROTOCOLS
def test_a_member_that_was_replaced_can_commit_nothing(version: int) -> None:
    """KIP-447: its offsets are refused, and the transaction with them; the next one goes well."""
    scene = Scene(version)
    servers = scene.cluster.bootstrap_servers
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        _host=scene.world.host("c"),
    )
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
def test_a_second_producer_fences_the_first_one_for_good(version: int, point: str) -> None:
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
def test_what_a_producer_left_open_is_ended_by_the_next_one(version: int) -> None:
    scene = Scene(version)
    crashed = scene.producer()
    crashed.begin_transaction()
    crashed.send("t", b"1", partition=0).result(timeout=10)
    crashed.close(timeout=0)
    assert scene.cluster.log("t", 0).transactions.open
    begin = scene.world.now
    producer = scene.producer()
    assert scene.world.now - begin < 1.0  # CONCURRENT_TRANSACTIONS is waited for impatiently
    assert not scene.cluster.log("t", 0).transactions.open
    with producer.transaction():
        send(producer, range(3))
    assert scene.visible() == [0, 1, 2]


@PROTOCOLS
def test_close_aborts_what_is_open(version: int) -> None:
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
def test_a_transaction_that_takes_too_long_is_aborted_by_its_coordinator(version: int) -> None:
    scene = Scene(version)
    producer = scene.producer(transaction_timeout_ms=5000)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0).result(timeout=10)
    scene.world.advance(20.0)
    assert not scene.cluster.log("t", 0).transactions.open
    with pytest.raises(FatalTransactionError):
        producer.commit_transaction()
    assert scene.visible() == []


@PROTOCOLS
@pytest.mark.parametrize("verb", ["pause", "crash", "go_silent", "blackhole"])
def test_a_commit_goes_on_after_its_call_ran_out_of_time(version: int, verb: str) -> None:
    scene = Scene(version)
    producer = scene.producer()
    producer.begin_transaction()
    send(producer, range(9))
    producer.flush()
    broker = scene.coordinator()
    getattr(scene.cluster, verb)(broker)
    with pytest.raises(KafkaTimeoutError, match=r"commit_transaction\(\)") as caught:
        producer.commit_transaction(timeout=0.5)
    assert any("call commit_transaction() again" in note for note in caught.value.__notes__)
    for call in (producer.abort_transaction, producer.begin_transaction):
        with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) ran out of time"):
            call()
    if verb == "go_silent":  # nobody notices: it answers the controller
        scene.world.after(2.0, lambda: scene.cluster.repair(broker))
    begin = scene.world.now
    producer.commit_transaction(timeout=60)
    assert scene.world.now - begin < scene.cluster.session_timeout + 5.0
    with producer.transaction():
        send(producer, range(9, 12))
    assert scene.visible() == list(range(12))


@PROTOCOLS
def test_transactions_go_on_when_the_whole_cluster_moves(version: int) -> None:
    scene = Scene(version, seed=5)
    producer = scene.producer()
    scene.world.after(1.0, lambda: scene.cluster.move(after=3.0))
    for n in range(40):
        with producer.transaction():
            producer.send("t", b"%d" % n, partition=n % 3)
            producer.send_offsets_to_transaction({P0: n}, "g")
        scene.world.advance(0.1)
    assert producer._engine.events.counts["rebootstrap"] == 1
    assert scene.visible() == list(range(40))


@PROTOCOLS
def test_a_record_that_expires_makes_the_transaction_abortable_and_nothing_is_doubled(
    version: int,
) -> None:
    scene = Scene(version)
    producer = scene.producer(delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=0)
    before = producer._engine.sender.identity.current
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=10)
    leader = scene.cluster.leader("t", 0)
    assert leader is not None
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
    assert producer._engine.sender.identity.current > before  # what may come late is fenced
    with producer.transaction():
        send(producer, range(6))
    assert scene.visible() == list(range(6))


def test_a_broker_that_is_gone_holds_up_no_abort() -> None:
    """KIP-890: what is under way is fenced by the abort, so its fate needn't be awaited."""
    scene = Scene(2)
    producer = scene.producer(linger_ms=0)
    broker = next(b for b in (1, 2, 3) if b != scene.coordinator())
    scene.cluster.move_leader("t", 0, to=broker)
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=10)
    scene.cluster.go_silent(broker)
    future = producer.send("t", b"1", partition=0)
    scene.world.advance(0.1)
    begin = scene.world.now
    producer.abort_transaction()
    assert scene.world.now - begin < 1.0
    assert isinstance(future.exception(timeout=0), TransactionAbortedError)
    scene.cluster.repair(broker)
    with producer.transaction():
        producer.send("t", b"2", partition=0)
    assert scene.visible() == [2]


@PROTOCOLS
@pytest.mark.parametrize("code", [45, 47, 59, 29, 120, 48])
def test_a_batch_that_a_leader_refuses_is_mended_by_an_abort(
    version: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID … (KIP-360)."""
    scene = Scene(version)
    producer = scene.producer(linger_ms=0)
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=5)
    sender = producer._engine.sender
    settle = sender._settle

    def refuse(batch: ProducerBatch, _: object, *others: Any, **more: Any) -> None:
        settle(batch, PartitionProduceResponse(index=0, error_code=code), *others, **more)

    with monkeypatch.context() as patch:
        patch.setattr(sender, "_settle", refuse)
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
    ("end", 53, FatalTransactionError, errors.TransactionalIdAuthorizationFailedError),
    ("end", 120, AbortableTransactionError, errors.TransactionAbortableError),
    ("commit_offsets", 90, FatalTransactionError, errors.ProducerFencedError),
    ("commit_offsets", 30, AbortableTransactionError, errors.GroupAuthorizationFailedError),
    ("commit_offsets", 82, AbortableTransactionError, errors.FencedInstanceIdError),
    ("commit_offsets", 25, AbortableTransactionError, errors.UnknownMemberIdError),
    ("commit_offsets", 113, AbortableTransactionError, errors.StaleMemberEpochError),
    ("commit_offsets", -1, FatalTransactionError, errors.UnknownServerError),
]


@pytest.mark.parametrize(("request_", "code", "kind", "cls"), REFUSED)
def test_errors_say_what_to_do(
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


def test_init_may_be_called_again_after_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    producer = scene.uninitialised()
    manager = producer._engine.transactions
    assert manager is not None
    refusal = errors.error_for(53)
    with monkeypatch.context() as patch:
        patch.setattr(manager.requests, "init_producer_id", failing(refusal))
        with pytest.raises(errors.TransactionalIdAuthorizationFailedError) as caught:
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
def test_an_id_that_its_coordinator_has_forgotten_is_given_anew(version: int) -> None:
    """KIP-360: after transactional.id.expiration.ms without a transaction."""
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
def test_the_protocol_changes_between_transactions(before: int, after: int) -> None:
    scene = Scene(before)
    producer = scene.producer()
    for turn in range(4):
        if turn == 2:
            scene.cluster.transactions.version = after
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
def test_the_next_transaction_waits_no_longer_than_it_has_to(version: int) -> None:
    """While the markers of the last one are written, 20 ms are waited, then 40 (KIP-580)."""
    scene = Scene(version)
    scene.cluster.transactions.marker_delay = 0.05
    producer = scene.producer(linger_ms=0)
    begin = scene.world.now
    for n in range(20):
        with producer.transaction():
            producer.send("t", b"%d" % n, partition=0)
    assert (scene.world.now - begin) / 20 < 0.2
    assert scene.visible() == list(range(20))
