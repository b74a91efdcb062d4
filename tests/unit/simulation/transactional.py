"""A simple transactional producer that calls a simulated cluster's request handlers directly."""

from __future__ import annotations

from typing import Any

from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages import add_partitions_to_txn as a
from odradek.protocol.messages import fetch as f
from odradek.protocol.messages import produce as p
from odradek.protocol.messages import txn_offset_commit as o
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.record import BatchBuilder
from odradek.simulation import SimulatedBroker, SimulatedCluster, World
from odradek.simulation.brokers.broker_handlers import HANDLERS
from odradek.simulation.coordinators.transaction_states import State

OLD, NEW = 0, 2
"""Values of the cluster's feature level transaction.version."""


def code(error: type[Any]) -> int:
    return int(error.code)


class Setting:
    """Three brokers and a topic of two partitions; requests are passed to brokers' handlers."""

    def __init__(self, seed: int = 5) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, 3)
        self.topic = self.cluster.create_topic("t", 2)
        self.cluster.transactions.create()
        self.cluster.groups.create()

    def ask(self, broker: SimulatedBroker | None, request: Message, version: int) -> Any:
        """Return the response; None if the broker is down or doesn't answer within a second."""
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
        """Return a group's committed offset of t-0, or None."""
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
    """A transactional producer: its id, epoch and sequence numbers, and its requests."""

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
        """Produce records in the transaction; return an error code, or None without a response."""
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
        topics = [o.TxnOffsetCommitRequestTopic("t", partitions=parts)]
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
