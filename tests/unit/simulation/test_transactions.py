"""Transactions of simulated brokers, tested with single requests: fencing, markers, timeouts."""

from __future__ import annotations

import pytest
from tests.unit.simulation.transactional import NEW, OLD, Producer, Setting, code

from odradek.common.errors import kafka as errors
from odradek.protocol.messages import list_offsets as lo
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.simulation.coordinators.transaction_states import EXHAUSTED, State


@pytest.fixture
def setting() -> Setting:
    return Setting()


both = pytest.mark.parametrize("version", [OLD, NEW])


@both
def test_records_are_visible_after_the_markers_are_written(setting: Setting, version: int) -> None:
    producer = setting.producer(version=version)
    assert producer.send(b"a", b"b") == 0
    assert producer.send(b"c", partition=1) == 0
    assert setting.visible() == []
    assert setting.fetched().last_stable_offset == 0
    assert setting.fetched().high_watermark == 2
    assert not setting.fetched().records
    assert setting.fetched(isolation=0).records
    assert producer.end() == 0
    setting.world.advance(0.1)
    assert setting.visible() == [b"a", b"b"]
    assert setting.visible(1) == [b"c"]
    assert setting.fetched().last_stable_offset == setting.fetched().high_watermark == 3
    assert setting.fetched().aborted_transactions == []
    assert setting.state() is State.COMPLETE_COMMIT


@both
def test_a_fetch_response_lists_aborted_transactions(setting: Setting, version: int) -> None:
    producer = setting.producer(version=version)
    for n in range(3):
        assert producer.send(b"%d" % n) == 0
        assert producer.end(commit=n != 1) == 0
        setting.world.advance(0.1)
    assert setting.visible() == [b"0", b"2"]
    aborted = setting.fetched().aborted_transactions
    assert [(t.producer_id, t.first_offset) for t in aborted or ()] == [(producer.id, 2)]
    assert setting.fetched(offset=4).aborted_transactions == []
    assert len(setting.cluster.records("t", 0)) == 3


def test_later_records_are_invisible_until_an_open_transaction_ends(setting: Setting) -> None:
    first, second = setting.producer("x"), setting.producer("y")
    assert (first.send(b"x"), second.send(b"y")) == (0, 0)
    assert second.end() == 0
    setting.world.advance(0.1)
    assert setting.visible() == []
    part = lo.ListOffsetsPartition(0, -1, -1)
    for isolation, expected in ((0, 3), (1, 0)):
        request = lo.ListOffsetsRequest(-1, isolation, [lo.ListOffsetsTopic("t", [part])])
        answer = setting.ask(setting.cluster.leader("t", 0), request, 5)
        assert answer.topics[0].partitions[0].offset == expected
    assert first.end() == 0
    setting.world.advance(0.1)
    assert setting.visible() == [b"x", b"y"]


@both
def test_a_second_init_producer_id_fences_the_producer_and_aborts_its_transaction(
    setting: Setting, version: int
) -> None:
    old = setting.producer(version=version)
    assert old.send(b"old") == 0
    assert setting.init("x").error_code == code(errors.ConcurrentTransactionsError)
    new = setting.producer(version=version)
    assert (new.id, new.epoch > old.epoch) == (old.id, True)
    setting.world.advance(0.1)
    assert old.send(b"zombie", version=11) == code(errors.InvalidProducerEpochError)
    assert old.send(b"zombie", version=12) == code(errors.InvalidProducerEpochError)
    assert old.add(1) == code(errors.ProducerFencedError)
    assert old.add(1, version=1) == code(errors.InvalidProducerEpochError)
    assert old.end() == code(errors.ProducerFencedError)
    assert new.send(b"new") == 0
    assert new.end() == 0
    setting.world.advance(0.1)
    assert setting.visible() == [b"new"]


def test_a_batch_outside_a_transaction_is_refused(setting: Setting) -> None:
    producer = setting.producer(version=OLD)
    assert producer.send(b"a", version=9) == code(errors.InvalidTxnStateError)
    assert producer.send(b"a", version=11) == code(errors.TransactionAbortableError)
    stranger = Producer(setting, "x", 999, 0, NEW)
    assert stranger.send(b"a") == code(errors.InvalidProducerIdMappingError)
    assert producer.end() == code(errors.InvalidTxnStateError)
    assert setting.cluster.records("t", 0) == []


def test_if_a_partition_does_not_exist_no_partition_of_the_call_is_added(setting: Setting) -> None:
    producer = setting.producer(version=OLD)
    assert producer.add(7, 0) == code(errors.UnknownTopicOrPartitionError)
    assert producer.add(0, 7) == code(errors.OperationNotAttemptedError)
    assert setting.state() is State.EMPTY


@both
def test_a_batch_repeated_after_the_end_of_its_transaction_is_stored_once(
    setting: Setting, version: int
) -> None:
    producer = setting.producer(version=version)
    before = (producer.id, producer.epoch)
    assert (producer.send(b"a"), producer.send(b"a", again=True)) == (0, 0)
    assert producer.end() == 0
    setting.world.advance(0.1)
    assert ((producer.id, producer.epoch) == before) == (version == OLD)
    late = Producer(setting, "x", *before, version)
    late.sequences[0] = 1
    known = 0 if version == OLD else code(errors.InvalidProducerEpochError)
    assert late.send(b"a", again=True, version=11) == known
    assert setting.visible() == [b"a"]


def test_an_end_txn_request_may_be_repeated(setting: Setting) -> None:
    for version in (OLD, NEW):
        producer = setting.producer(f"v{version}", version)
        producer.send(b"a")
        epoch = producer.epoch
        assert producer.end() == 0
        producer.epoch = epoch  # as if the response had been lost
        assert producer.end() == code(errors.ConcurrentTransactionsError)
        setting.world.advance(0.1)
        assert producer.end() == 0
        assert producer.epoch == epoch + (version == NEW)
        producer.epoch = epoch
        assert producer.end(commit=False) == code(errors.InvalidTxnStateError)


@both
def test_the_next_transaction_waits_for_the_previous_ones_markers(
    setting: Setting, version: int
) -> None:
    producer = setting.producer(version=version)
    assert producer.send(b"a") == 0
    assert producer.end() == 0
    assert producer.send(b"b") == code(errors.ConcurrentTransactionsError)
    assert setting.init("x").error_code == code(errors.ConcurrentTransactionsError)
    setting.world.advance(0.1)
    assert producer.send(b"b") == 0


def test_an_abort_without_a_transaction_increments_the_epoch(setting: Setting) -> None:
    producer = setting.producer()
    assert producer.end(commit=False) == 0
    setting.world.advance(0.1)
    assert producer.epoch == 1
    assert producer.end() == code(errors.InvalidTxnStateError)
    assert producer.send(b"a") == 0


@both
def test_offsets_are_committed_with_the_transaction(setting: Setting, version: int) -> None:
    producer = setting.producer(version=version)
    for offset, commit, expected in ((3, True, 3), (5, False, 3), (7, True, 7)):
        if version == OLD:
            assert producer.commit_offset(offset, 3) == code(errors.InvalidTxnStateError)
            assert producer.commit_offset(offset, 4) == code(errors.TransactionAbortableError)
            assert producer.add_offsets() == 0
        assert producer.commit_offset(offset, 5 if version == NEW else 4) == 0
        assert setting.committed() != offset
        assert producer.end(commit=commit) == 0
        setting.world.advance(0.1)
        assert setting.committed() == expected


def test_offsets_of_unknown_members_and_fenced_producers_are_refused(setting: Setting) -> None:
    old = setting.producer()
    refused = old.commit_offset(3, 5, generation_id_or_member_epoch=4, member_id="m")
    assert refused == code(errors.IllegalGenerationError)
    assert old.end() == 0
    setting.world.advance(0.1)
    setting.producer()
    assert old.add_offsets() == code(errors.ProducerFencedError)
    assert old.add_offsets(version=1) == code(errors.InvalidProducerEpochError)
    assert old.commit_offset(3, 5) == code(errors.InvalidProducerEpochError)
    assert setting.committed() is None


def test_pending_offsets_survive_a_crash_of_their_coordinator(setting: Setting) -> None:
    producer = setting.producer()
    assert producer.commit_offset(3, 5) == 0
    index = setting.cluster.groups.index("g")
    setting.cluster.move_leader("__consumer_offsets", index)
    assert producer.end() == 0
    setting.world.advance(1.0)
    assert setting.committed() == 3


def test_a_transaction_times_out(setting: Setting) -> None:
    assert setting.init("x", timeout=901_000).error_code == code(
        errors.InvalidTransactionTimeoutError
    )
    answer = setting.init("x", timeout=2000)
    producer = Producer(setting, "x", answer.producer_id, answer.producer_epoch, OLD)
    assert producer.send(b"a") == 0
    setting.world.advance(1.9)
    assert setting.state() is State.ONGOING
    setting.world.advance(0.2)
    assert setting.state() is State.COMPLETE_ABORT
    assert producer.end() == code(errors.ProducerFencedError)
    assert setting.fetched().last_stable_offset == 2
    assert setting.visible() == []


def test_a_repeated_init_producer_id_request_returns_the_same_epoch(setting: Setting) -> None:
    producer = setting.producer()
    first = setting.init("x", (producer.id, producer.epoch))
    again = setting.init("x", (producer.id, producer.epoch))
    assert first.producer_epoch == again.producer_epoch == producer.epoch + 1
    other = setting.producer()
    assert other.epoch == producer.epoch + 2
    late = setting.init("x", (producer.id, producer.epoch))
    assert late.error_code == code(errors.ProducerFencedError)
    assert setting.init("x", (4711, 0)).error_code == code(errors.ProducerFencedError)


@both
def test_after_the_highest_epoch_a_producer_gets_a_new_producer_id(
    setting: Setting, version: int
) -> None:
    producer = setting.producer(version=version)
    shard = next(s for s in setting.cluster.transactions.shards() if "x" in s.known)
    found = shard.known["x"]
    shard.known["x"] = type(found)("x", found.producer_id, epoch=EXHAUSTED)
    old = producer.id
    producer.epoch = EXHAUSTED
    if version == OLD:
        new = setting.producer(version=version)
        assert (new.id != old, new.epoch) == (True, 0)
        assert producer.send(b"zombie") == code(errors.InvalidProducerIdMappingError)
        return
    assert producer.send(b"a") == 0
    assert producer.end() == 0
    assert (producer.id != old, producer.epoch) == (True, 0)
    setting.world.advance(0.1)
    assert producer.send(b"b") == 0
    assert producer.end() == 0
    setting.world.advance(0.1)
    assert setting.visible() == [b"a", b"b"]


def test_after_a_coordinators_crash_the_next_one_completes_its_transaction(
    setting: Setting,
) -> None:
    setting.cluster.transactions.marker_delay = 1.0
    producer = setting.producer()
    assert (producer.send(b"a"), producer.send(b"b", partition=1)) == (0, 0)
    assert producer.end() == 0
    coordinator = setting.coordinator("x")
    assert coordinator is not None
    setting.cluster.crash(coordinator.id)
    setting.world.advance(0.5)
    assert (setting.visible(), setting.visible(1)) == ([], [])
    setting.world.advance(8.0)
    assert (setting.visible(), setting.visible(1)) == ([b"a"], [b"b"])
    assert producer.send(b"c") == 0
    assert producer.end() == 0
    setting.world.advance(3.0)
    assert setting.visible() == [b"a", b"c"]


def test_after_a_coordinators_crash_an_open_transaction_times_out_at_the_next_one(
    setting: Setting,
) -> None:
    answer = setting.init("x", timeout=5000)
    producer = Producer(setting, "x", answer.producer_id, answer.producer_epoch, OLD)
    assert producer.send(b"a") == 0
    index = setting.cluster.transactions.index("x")
    setting.cluster.move_leader("__transaction_state", index)
    request = InitProducerIdRequest("x", 1000)
    for broker in setting.cluster.brokers.values():
        answer = setting.ask(broker, request, 5)
        leads = broker is setting.coordinator("x")
        expected = errors.CoordinatorLoadInProgressError if leads else errors.NotCoordinatorError
        assert answer.error_code == code(expected)
    setting.world.advance(4.5)
    assert setting.state() is State.ONGOING
    setting.world.advance(1.0)
    assert setting.state() is State.COMPLETE_ABORT


def test_a_batch_for_a_new_partition_is_refused_while_the_coordinator_is_paused(
    setting: Setting,
) -> None:
    producer = setting.producer()
    assert producer.send(b"a") == 0
    coordinator = setting.coordinator("x")
    assert coordinator is not None
    where = next(n for n in (0, 1) if setting.cluster.leader("t", n) is not coordinator)
    setting.cluster.pause(coordinator.id)
    assert producer.send(b"b", partition=where) == (
        0 if where == 0 else code(errors.NotEnoughReplicasError)
    )
