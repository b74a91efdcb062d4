"""Admin calls about producers and transactions (KIP-664), in virtual time."""

from __future__ import annotations

import pytest
from tests.simulation.spoilt_answers import spoil_answers
from tests.simulation.transactional import Scene

from odradek import Admin, KafkaError, TopicPartition
from odradek.admin import AbortTransactionSpec, TransactionListing
from odradek.errors import NotLeaderOrFollowerError, TransactionalIdNotFoundError
from odradek.protocol.messages import list_transactions as lt

T0, T1 = (TopicPartition("t", p) for p in range(2))


def admin_of(scene: Scene) -> Admin:
    return scene.client(Admin, background=False)


def test_producers_and_their_transactions_are_described() -> None:
    scene = Scene()
    producer = scene.producer()
    admin = admin_of(scene)
    assert admin.describe_transactions("x")["x"].state == "Empty"
    producer.begin_transaction()
    producer.send("t", b"1", partition=0).result(timeout=5)
    producer.send("t", b"2", partition=0).result(timeout=5)
    found = admin.describe_transactions("x")["x"]
    assert (found.state, found.partitions) == ("Ongoing", frozenset({T0}))
    assert found.start_ms is not None
    (state,) = admin.describe_producers([T0, T1])[T0]
    assert admin.describe_producers([T1]) == {T1: ()}
    assert (state.producer_id, state.producer_epoch) == (found.producer_id, found.producer_epoch)
    assert (state.transaction_start_offset, state.last_sequence) == (0, 1)
    producer.commit_transaction()
    scene.world.advance(1.0)
    assert admin.describe_transactions("x")["x"].state == "CompleteCommit"
    (ended,) = admin.describe_producers([T0])[T0]
    assert ended.transaction_start_offset is None
    with pytest.raises(TransactionalIdNotFoundError, match="transactional id gone") as refused:
        admin.describe_transactions(["gone", "x"])
    assert list(refused.value.results) == ["x"]
    leader = scene.cluster.leader("t", 0)
    assert leader is not None
    assert admin.describe_producers([T0], broker=leader.id) == {T0: (ended,)}
    begin = scene.world.now
    with pytest.raises(NotLeaderOrFollowerError, match="partition t-0"):
        admin.describe_producers([T0], broker=leader.id % 3 + 1)
    assert scene.world.now - begin < 1


def test_a_transactional_id_listed_by_two_brokers_is_returned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the coordinator moves, the former coordinator may still list the id."""
    scene = Scene()
    scene.producer()

    def both(answer: lt.ListTransactionsResponse) -> None:
        answer.transaction_states[:] = [lt.TransactionState("x", 1000, "Empty")]

    spoil_answers(monkeypatch, lt.ListTransactionsRequest.API_KEY, both)
    assert [t.transactional_id for t in admin_of(scene).list_transactions()] == ["x"]


def test_transactional_ids_are_listed_from_all_brokers() -> None:
    scene = Scene()
    admin = admin_of(scene)
    assert admin.list_transactions() == []
    producers = {i: scene.producer(transactional_id=i) for i in ("a", "b", "c1", "c2")}
    producers["b"].begin_transaction()
    producers["b"].send("t", b"", partition=0).result(timeout=5)
    found = admin.list_transactions()
    assert [t.transactional_id for t in found] == ["a", "b", "c1", "c2"]
    ongoing = admin.list_transactions(states=["Ongoing"])
    assert ongoing == [TransactionListing("b", found[1].producer_id, "Ongoing")]
    assert admin.list_transactions(producer_ids=[found[1].producer_id]) == ongoing
    assert admin.list_transactions(running_longer_than=60) == []
    scene.world.advance(10)
    assert admin.list_transactions(running_longer_than=5) == ongoing
    matching = admin.list_transactions(pattern="c.")
    assert [t.transactional_id for t in matching] == ["c1", "c2"]


def test_fence_producers_aborts_an_open_transaction_and_fences_its_producer() -> None:
    scene = Scene()
    producer = scene.producer()
    producer.begin_transaction()
    producer.send("t", b"1", partition=0).result(timeout=5)
    admin = admin_of(scene)
    before = admin.describe_transactions("x")["x"]
    found = admin.fence_producers(["x", "new"])
    assert found["x"].producer_id == before.producer_id
    assert found["x"].producer_epoch > before.producer_epoch
    assert found["new"].producer_id != before.producer_id
    with pytest.raises(KafkaError, match="another producer took over"):
        producer.commit_transaction()
    assert (
        scene.cluster.log("t", 0).last_stable_offset == 2
    )  # one record and one transaction marker


def test_a_hanging_transaction_is_found_and_aborted() -> None:
    scene = Scene()
    producer = scene.producer(transaction_timeout_ms=900_000)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0).result(timeout=5)
    producer.send("t", b"2", partition=1).result(timeout=5)
    admin = admin_of(scene)
    assert admin.find_hanging_transactions() == []
    scene.world.advance(800)
    assert (
        admin.find_hanging_transactions(older_than=700) == []
    )  # the coordinator still knows the transaction
    shard = scene.cluster.transactions.shard(scene.cluster.brokers[scene.coordinator()], "x")
    known = shard.known.pop("x")
    assert admin.find_hanging_transactions() == []  # too recent to count as hanging
    hanging = admin.find_hanging_transactions(older_than=700)
    assert [h.spec.partition for h in hanging] == [T0, T1]
    assert admin.find_hanging_transactions("t", older_than=700) == hanging
    assert scene.cluster.log("t", 0).last_stable_offset == 0
    for one in hanging:
        assert one.spec == AbortTransactionSpec(
            one.spec.partition, known.producer_id, known.epoch, one.spec.coordinator_epoch
        )
        admin.abort_transaction(one.spec)
    assert admin.find_hanging_transactions(older_than=700) == []
    assert scene.cluster.log("t", 0).last_stable_offset == 2
