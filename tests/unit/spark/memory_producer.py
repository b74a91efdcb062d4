"""Producers over a cluster in memory: transactions, fencing, outages and rows that are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError
from odradek.common.errors.kafka import ProducerFencedError
from odradek.common.types import TopicPartition

Row = tuple[str, Any]


@dataclass
class MemoryLog:
    """What is committed, who may write, and what goes wrong."""

    clock: Any
    topics: tuple[str, ...] = ("t",)
    rows: list[Row] = field(default_factory=list)
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    down_until: float = 0.0
    before: Callable[[str, MemoryProducer], None] = lambda *_: None
    """Called before each step."""
    refuse: str | None = None
    """The value of a row that is too large."""
    made: int = 0
    closed: list[float] = field(default_factory=list)

    def make(self, config: Mapping[str, Any]) -> Any:
        self.made += 1
        return MemoryProducer(self, config.get("transactional.id"))

    def values(self) -> list[Any]:
        return [value for _, value in self.rows]


class Sent:
    def __init__(self, rows: int, error: BaseException | None = None) -> None:
        self.rows, self._error = rows, error

    def done(self) -> bool:
        return True

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error

    def errors(self, timeout: float | None = None) -> Any:
        marks = [None] * (self.rows - 1) + ["refused"]
        return pa.array(marks) if self._error is not None else None


class MemoryProducer:
    ended: KafkaError | None = None

    def __init__(self, log: MemoryLog, name: str | None) -> None:
        self._log, self._name = log, name
        self.epoch = 0
        self._open: list[Row] | None = None
        self._markers: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}

    def _step(self, what: str, timeout: float | None = None, *, fenced: bool = False) -> None:
        self._log.steps.append(what)
        self._log.before(what, self)
        clock = self._log.clock
        if clock.now() < self._log.down_until:
            clock.at += timeout or 0.0
            raise KafkaTimeoutError(f"{what}: nobody answers")
        if fenced and self._name is not None and self._log.epochs[self._name] != self.epoch:
            raise ProducerFencedError("INVALID_PRODUCER_EPOCH")

    def cluster_id(self, timeout: float | None = None) -> str:
        self._step("cluster", timeout)
        return "cluster-A"

    def partitions_for(self, topic: str, timeout: float | None = None) -> Sequence[object]:
        self._step("topic", timeout)
        if topic not in self._log.topics:
            self._log.clock.at += timeout or 0.0
            raise KafkaTimeoutError(f"metadata of topic {topic} (UNKNOWN_TOPIC_OR_PARTITION)")
        return (0,)

    def send_arrow(self, topic: str, data: Any) -> Sent:
        self._step("send", fenced=True)
        values = data.column("value").to_pylist()
        if self._log.refuse in values:
            raise RecordTooLargeError(f"row {values.index(self._log.refuse)}: too large")
        into = self._log.rows if self._name is None else self._open
        assert into is not None, "rows outside of a transaction"
        into += [(topic, value) for value in values]
        return Sent(len(values))

    def flush(self, timeout: float | None = None) -> None:
        self._step("flush", timeout, fenced=True)

    def init_transactions(self, timeout: float | None = None) -> None:
        assert self._name is not None
        self._step("init", timeout)
        self.epoch = self._log.epochs[self._name] = self._log.epochs.get(self._name, 0) + 1

    def committed_offsets(
        self, group: str, timeout: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._step("marker", timeout)
        return dict(self._log.offsets.get(group, {}))

    def begin_transaction(self) -> None:
        assert self._open is None
        self._open = []

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group: str, timeout: float | None = None
    ) -> None:
        self._step("offsets", timeout, fenced=True)
        self._markers[group] = dict(offsets)

    def commit_transaction(self, timeout: float | None = None) -> None:
        self._step("commit", timeout, fenced=True)
        assert self._open is not None
        self._log.rows += self._open
        for group, offsets in self._markers.items():
            self._log.offsets.setdefault(group, {}).update(offsets)
        self._open, self._markers = None, {}
        self._step("committed", timeout)

    def explain(self) -> str:
        return "the explanation of the client"

    def close(self, timeout: float = 30.0) -> None:
        self._log.closed.append(timeout)
