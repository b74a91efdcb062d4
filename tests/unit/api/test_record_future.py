"""Test futures of records whose batch is split by another thread while the future reads it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.clients.calls.producer_calls import Found
from odradek.clients.producer.batch import BatchOutcome, Part, ProducerBatch
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.runtime.hosts.record_future import RecordFuture

P0 = TopicPartition("t", 0)


def batch(*values: bytes) -> ProducerBatch:
    builder = BatchBuilder(1 << 16, None)
    for value in values:
        builder.append(None, value, (), 0)
    return ProducerBatch(P0, builder, 0.0, 120.0)


class SplitOnRead(ProducerBatch):
    """A batch that is split, as by another thread, right after field `at` was read."""

    __slots__ = ("at", "fields", "made")

    def __init__(self, at: str) -> None:
        self.at: str | None = None
        self.fields: dict[str, Any] = {}
        self.made = [Part(n, 1, batch(b"%d" % n), 0) for n in range(2)]
        super().__init__(P0, BatchBuilder(1 << 16, None), 0.0, 120.0)
        self.at = at

    def split(self) -> None:
        if self.at is not None:
            self.at = None
            self.fields["parts"] = self.made
            self.fields["done"].complete(BatchOutcome(-1, -1))


def splitting_field(name: str) -> property:
    def read(batch: SplitOnRead) -> Any:
        found = batch.fields[name]
        if batch.at != name:
            return found
        # A reader of `done` gets the value from before the split.
        seen = SimpleNamespace(done=False, when_done=found.when_done) if name == "done" else found
        batch.split()
        return seen

    def write(batch: SplitOnRead, value: Any) -> None:
        batch.fields[name] = value

    return property(read, write)


FIELDS = ("done", "parts")
for _name in FIELDS:
    setattr(SplitOnRead, _name, splitting_field(_name))


class Driver:
    """A producer that splits the batch and acknowledges its parts when a future waits."""

    def __init__(self, waiting: SplitOnRead) -> None:
        self._batch = waiting
        self.waited = 0

    def _await_outcome(self, find: Callable[[], Found], timeout: float | None) -> None:
        assert not find()[2]
        self.waited += 1
        self._batch.split()
        for part in self._batch.made:
            if not part.batch.done.done:
                part.batch.done.complete(BatchOutcome(10 + part.first, -1))


@pytest.mark.parametrize("at", FIELDS)
def test_a_future_whose_batch_is_split_meanwhile_waits_for_the_part_with_its_record(
    at: str,
) -> None:
    made = SplitOnRead(at)
    producer: Any = Driver(made)
    future = RecordFuture(producer, made, 1, 77)
    assert not future.done()
    assert future.result(1.0).offset == 11
    assert producer.waited
    assert future.done()
    assert future.exception(1.0) is None


@pytest.mark.parametrize("at", FIELDS)
def test_a_callback_runs_when_the_records_part_is_acknowledged(at: str) -> None:
    made = SplitOnRead(at)
    producer: Any = Driver(made)
    future = RecordFuture(producer, made, 0, 77)
    told: list[int] = []
    future.add_done_callback(lambda f: told.append(f.result(0).offset))
    made.split()
    assert told == []
    made.made[0].batch.done.complete(BatchOutcome(10, -1))
    assert told == [10]
