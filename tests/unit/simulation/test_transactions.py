"""Simulated transactions, asked by raw requests: fencing, markers, time-outs, fail-overs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.common import kafka_errors as errors
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages import add_partitions_to_txn as a
from odradek.protocol.messages import fetch as f
from odradek.protocol.messages import list_offsets as lo
from odradek.protocol.messages import produce as p
from odradek.protocol.messages import txn_offset_commit as o
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.record import BatchBuilder
from odradek.simulation import SimulatedBroker, SimulatedCluster, World
from odradek.simulation.broker_handlers import HANDLERS
from odradek.simulation.history import History, Outcome
from odradek.simulation.history_check import check
from odradek.simulation.transaction_states import EXHAUSTED, State

SEEDS = 40
OLD, NEW = 0, 2
"""transaction.version"""


def code(error: type[Any]) -> int:
    return int(error.code)


class Setting:
    """Three brokers, a topic of two partitions, and requests that reach handlers directly."""

    def __init__(self, seed: int = 5) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, 3)
        self.topic = self.cluster.create_topic("t", 2)
        self.cluster.transactions.create()
        self.cluster.groups.create()

    def ask(self, broker: SimulatedBroker | None, request: Message, version: int) -> Any:
        """The answer, or None when that takes over a second or the broker is gone."""
        answers: list[Message | None] = []
        if broker is None or not broker.reachable:
            return None
        found = HANDLERS[type(request)](broker, request, version, answers.append)
        if found is not None:
            answers.append(found)
        self.world.run_while(lambda: not answers, 1.0)
        return answers[0] if answers and broker.reachable else None

    def coordinator(self, name: str) -> SimulatedBroker | None:
        index = self.cluster.transactions.index(name)
        return self.cluster.leader("__transaction_state", index)

    def init(
        self, name: str, expected: tuple[int, int] = (-1, -1), *, timeout: int = 60_000
    ) -> Any:
        request = InitProducerIdRequest(name, timeout, *expected)
        return self.ask(self.coordinator(name), request, 5)

    def producer(self, name: str = "x", version: int = NEW) -> Producer:
        for _ in range(10):
            answer = self.init(name)
            if answer.error_code != code(errors.ConcurrentTransactionsError):
                break
            self.world.advance(0.05)
        assert answer.error_code == 0
        return Producer(self, name, answer.producer_id, answer.producer_epoch, version)

    def fetched(self, offset: int = 0, isolation: int = 1) -> f.PartitionData:
        part = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = f.FetchRequest(topics=[f.FetchTopic("t", partitions=[part])])
        request.isolation_level = isolation
        answer = self.ask(self.cluster.leader("t", 0), request, 11)
        found: f.PartitionData = answer.responses[0].partitions[0]
        return found

    def committed(self, group: str = "g") -> int | None:
        """The offset of t-0 that a group has committed."""
        leader = self.cluster.leader("__consumer_offsets", self.cluster.groups.index(group))
        assert leader is not None
        offsets = self.cluster.groups.shard(leader, group).offsets.get(group)
        found = offsets.stable.get(TopicPartition("t", 0)) if offsets is not None else None
        return found.offset if found is not None else None

    def visible(self, partition: int = 0) -> list[bytes | None]:
        return [row[4] for row in self.cluster.log("t", partition).visible_rows()]

    def state(self, name: str = "x") -> State:
        shard = next(s for s in self.cluster.transactions.shards() if name in s.known)
        return shard.known[name].state


class Producer:
    """What a transactional producer has to keep in mind."""

    def __init__(
        self, setting: Setting, name: str, producer_id: int, epoch: int, version: int
    ) -> None:
        self.setting, self.name, self.version = setting, name, version
        self.id, self.epoch = producer_id, epoch
        self.sequences: dict[int, int] = {}

    def add(self, *partitions: int, version: int = 3) -> int | None:
        request = a.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[a.AddPartitionsToTxnTopic("t", list(partitions))],
        )
        answer = self.setting.ask(self.setting.coordinator(self.name), request, version)
        if answer is None:
            return None
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return int(results[0].partition_error_code)

    def send(
        self, *values: bytes, partition: int = 0, version: int | None = None, again: bool = False
    ) -> int | None:
        """Produce, with the partition added before where that is how it is done."""
        if version is None:
            version = 12 if self.version == NEW else 11
            if version < 12 and (refusal := self.add(partition)) != 0:
                return refusal
        sequence = self.sequences.get(partition, 0)
        builder = BatchBuilder(1 << 16, None)
        for value in values:
            builder.append(None, value, (), 0)
        data = builder.build(
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence - len(values) if again else sequence,
            transactional=True,
        )
        parts = [p.PartitionProduceData(partition, data)]
        request = p.ProduceRequest(self.name, -1, 1000, [p.TopicProduceData("t", bytes(16), parts)])
        answer = self.setting.ask(self.setting.cluster.leader("t", partition), request, version)
        if answer is None:
            return None
        found = int(answer.responses[0].partition_responses[0].error_code)
        if not found and not again:
            self.sequences[partition] = sequence + len(values)
        return found

    def add_offsets(self, group: str = "g", version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(self.name, self.id, self.epoch, group)
        answer = self.setting.ask(self.setting.coordinator(self.name), request, version)
        return int(answer.error_code)

    def commit_offset(self, offset: int, version: int, group: str = "g", **member: Any) -> int:
        parts = [o.TxnOffsetCommitRequestPartition(0, offset)]
        topics = [o.TxnOffsetCommitRequestTopic("t", parts)]
        request = o.TxnOffsetCommitRequest(
            self.name, group, self.id, self.epoch, topics=topics, **member
        )
        index = self.setting.cluster.groups.index(group)
        leader = self.setting.cluster.leader("__consumer_offsets", index)
        answer = self.setting.ask(leader, request, version)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True) -> int | None:
        request = EndTxnRequest(self.name, self.id, self.epoch, commit)
        version = 5 if self.version == NEW else 4
        answer = self.setting.ask(self.setting.coordinator(self.name), request, version)
        if answer is None:
            return None
        if version == 5 and not answer.error_code:
            if (answer.producer_id, answer.producer_epoch) != (self.id, self.epoch):
                self.sequences.clear()
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)


@pytest.fixture
def setting() -> Setting:
    return Setting()


both = pytest.mark.parametrize("version", [OLD, NEW])


@both
def test_records_are_visible_once_the_markers_are_written(setting: Setting, version: int) -> None:
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
def test_aborted_records_are_named_in_the_answer(setting: Setting, version: int) -> None:
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


def test_others_wait_behind_an_open_transaction(setting: Setting) -> None:
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
def test_the_next_init_fences_and_aborts(setting: Setting, version: int) -> None:
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


def test_a_batch_of_no_transaction_is_refused(setting: Setting) -> None:
    producer = setting.producer(version=OLD)
    assert producer.send(b"a", version=9) == code(errors.InvalidTxnStateError)
    assert producer.send(b"a", version=11) == code(errors.TransactionAbortableError)
    stranger = Producer(setting, "x", 999, 0, NEW)
    assert stranger.send(b"a") == code(errors.InvalidProducerIdMappingError)
    assert producer.end() == code(errors.InvalidTxnStateError)
    assert setting.cluster.records("t", 0) == []


def test_a_missing_partition_is_told_and_nothing_added(setting: Setting) -> None:
    producer = setting.producer(version=OLD)
    assert producer.add(7, 0) == code(errors.UnknownTopicOrPartitionError)
    assert producer.add(0, 7) == code(errors.OperationNotAttemptedError)
    assert setting.state() is State.EMPTY


@both
def test_a_repeated_batch_is_there_once_even_after_the_end(setting: Setting, version: int) -> None:
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


def test_the_end_may_be_said_again(setting: Setting) -> None:
    for version in (OLD, NEW):
        producer = setting.producer(f"v{version}", version)
        producer.send(b"a")
        epoch = producer.epoch
        assert producer.end() == 0
        producer.epoch = epoch  # as if the answer had been lost
        assert producer.end() == code(errors.ConcurrentTransactionsError)
        setting.world.advance(0.1)
        assert producer.end() == 0
        assert producer.epoch == epoch + (version == NEW)
        producer.epoch = epoch
        assert producer.end(commit=False) == code(errors.InvalidTxnStateError)


@both
def test_while_markers_are_under_way_the_next_transaction_waits(
    setting: Setting, version: int
) -> None:
    producer = setting.producer(version=version)
    assert producer.send(b"a") == 0
    assert producer.end() == 0
    assert producer.send(b"b") == code(errors.ConcurrentTransactionsError)
    assert setting.init("x").error_code == code(errors.ConcurrentTransactionsError)
    setting.world.advance(0.1)
    assert producer.send(b"b") == 0


def test_an_abort_without_a_transaction_still_bumps_the_epoch(setting: Setting) -> None:
    producer = setting.producer()
    assert producer.end(commit=False) == 0
    setting.world.advance(0.1)
    assert producer.epoch == 1
    assert producer.end() == code(errors.InvalidTxnStateError)
    assert producer.send(b"a") == 0


@both
def test_offsets_count_with_the_transaction(setting: Setting, version: int) -> None:
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


def test_offsets_of_strangers_and_of_the_fenced_are_refused(setting: Setting) -> None:
    old = setting.producer()
    refused = old.commit_offset(3, 5, generation_id=4, member_id="m")
    assert refused == code(errors.IllegalGenerationError)
    assert old.end() == 0
    setting.world.advance(0.1)
    setting.producer()
    assert old.add_offsets() == code(errors.ProducerFencedError)
    assert old.add_offsets(version=1) == code(errors.InvalidProducerEpochError)
    assert old.commit_offset(3, 5) == code(errors.InvalidProducerEpochError)
    assert setting.committed() is None


def test_pending_offsets_survive_their_coordinator(setting: Setting) -> None:
    producer = setting.producer()
    assert producer.commit_offset(3, 5) == 0
    index = setting.cluster.groups.index("g")
    setting.cluster.move_leader("__consumer_offsets", index)
    assert producer.end() == 0
    setting.world.advance(1.0)
    assert setting.committed() == 3


def test_time_is_up(setting: Setting) -> None:
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


def test_the_same_init_again_gives_the_same_epoch(setting: Setting) -> None:
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
def test_used_up_epochs_lead_to_a_new_id(setting: Setting, version: int) -> None:
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


def test_the_next_coordinator_finishes_what_was_begun(setting: Setting) -> None:
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


def test_an_open_transaction_times_out_at_the_next_coordinator(setting: Setting) -> None:
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


def test_without_its_coordinator_a_new_batch_waits(setting: Setting) -> None:
    producer = setting.producer()
    assert producer.send(b"a") == 0
    coordinator = setting.coordinator("x")
    assert coordinator is not None
    where = next(n for n in (0, 1) if setting.cluster.leader("t", n) is not coordinator)
    setting.cluster.pause(coordinator.id)
    assert producer.send(b"b", partition=where) == (
        0 if where == 0 else code(errors.NotEnoughReplicasError)
    )


def _trouble(world: World, cluster: SimulatedCluster, rng: random.Random) -> None:
    """One random fault, over after some seconds."""

    def pause(i: int) -> None:
        cluster.pause(i)
        world.after(rng.uniform(0.1, 4.0), cluster.heal)

    i = rng.choice(list(cluster.brokers))
    verb: Callable[[], None] = rng.choice(
        [
            lambda: cluster.bounce(i, after=rng.uniform(0.1, 4.0)),
            lambda: pause(i),
            lambda: cluster.hand_over("t", rng.randrange(2)),
            lambda: cluster.hand_over("__transaction_state", rng.randrange(10)),
        ]
    )
    verb()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_breaks_transactions_are_whole(seed: int) -> None:
    """Producers that try once and give up in doubt: each transaction is visible whole or not."""
    setting = Setting(seed)
    rng = random.Random(seed)
    history, world, cluster = History(), setting.world, setting.cluster
    version = cluster.transactions.version = rng.choice([OLD, NEW])
    incarnations: dict[str, int] = {}
    for n in range(25):
        if rng.random() < 0.4:
            world.after(rng.uniform(0.0, 0.5), lambda: _trouble(world, cluster, rng))
        name = rng.choice("xy")
        answer = setting.init(name)
        if answer is None or answer.error_code:
            world.advance(rng.uniform(0.0, 1.0))
            continue
        incarnations[name] = incarnations.get(name, 0) + 1
        producer = Producer(setting, name, answer.producer_id, answer.producer_epoch, version)
        _transact(history, producer, rng, [incarnations[name], n])
    cluster.heal()
    world.advance(100.0)  # the rest is aborted by its time-out
    for partition in range(2):
        reading = history.reading("log", TopicPartition("t", partition))
        reading.complete = True
        for row in cluster.log("t", partition).visible_rows():
            reading.saw(row[0], bytes(row[4] or b"").decode())
        assert cluster.log("t", partition).transactions.open == {}
    assert check(history) == []
    assert any(t.outcome is Outcome.COMMITTED for t in history.transactions)


def _transact(
    history: History, producer: Producer, rng: random.Random, numbers: Sequence[int]
) -> None:
    incarnation, n = numbers
    for again in range(rng.choice([1, 2])):
        made = history.begin(producer.name, incarnation)
        sent: int | None = 0
        for k in range(rng.randrange(1, 4)):
            partition = rng.randrange(2)
            value = f"{producer.name}/{n}/{again}/{k}"
            made.wrote(TopicPartition("t", partition), value)
            sent = producer.send(value.encode(), partition=partition)
            if sent != 0:
                break
        if sent != 0:
            return
        commit = rng.random() < 0.7
        told = producer.end(commit=commit)
        if told != 0:
            return
        made.outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        producer.setting.world.advance(rng.uniform(0.0, 0.1))
