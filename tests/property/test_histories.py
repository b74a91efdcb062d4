"""Histories as a correct cluster leaves them have no anomaly; one wrong step in them is found."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import (
    History,
    Observation,
    Transaction,
    TransactionOutcome,
)
from odradek.simulation.checkers.history_check import Kind, check

IN = TopicPartition("in", 0)
OUT = [TopicPartition("out", n) for n in range(3)]
SEEDS = 25


class Model:
    """A cluster in a few lines: logs of visible records, and what was noted of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.history = History()
        self.logs: dict[TopicPartition, list[tuple[int, str]]] = {p: [] for p in (IN, *OUT)}
        self.ends = dict.fromkeys(self.logs, 0)
        self.hidden: list[tuple[TopicPartition, int, str]] = []
        self.at = self.committed = 0
        for n in range(30):
            made = self.history.sent("source", IN, f"i{n}")
            self.store(made, visible=True)
            made.outcome = self.rng.choice(
                [TransactionOutcome.COMMITTED, TransactionOutcome.UNKNOWN]
            )
        incarnation = {"p": 0, "q": 0}
        for n in range(40):
            producer = self.rng.choice("pq")
            self.process(n, producer, incarnation[producer])
            if self.rng.random() < 0.1:
                incarnation[producer] += 1
        self.history.group_ends("g", [(IN, self.committed)])
        for partition in self.logs:
            self.read(partition)

    def store(self, made: Transaction, *, visible: bool) -> None:
        for write in made.writes:
            offset = self.ends[write.partition]
            self.ends[write.partition] += self.rng.choice([1, 1, 1, 2, 5])
            if visible:
                self.logs[write.partition].append((offset, write.value))
                write.offset = self.rng.choice([offset, None])
            else:
                self.hidden.append((write.partition, offset, write.value))

    def process(self, n: int, producer: str, incarnation: int) -> None:
        """Read some inputs, write some outputs, commit or not."""
        taken = self.logs[IN][self.at : self.at + self.rng.randrange(3)]
        made = self.history.begin(producer, incarnation, group="g")
        for offset, _ in taken:
            made.consumed(IN, offset)
        for k in range(self.rng.randrange(1, 4)):
            made.wrote(self.rng.choice(OUT), f"{n}/{k}")
        visible = self.rng.random() < 0.7
        told = TransactionOutcome.COMMITTED if visible else TransactionOutcome.ABORTED
        made.outcome = self.rng.choice([told, told, TransactionOutcome.UNKNOWN])
        self.store(made, visible=visible)
        if visible:
            self.at += len(taken)
            self.committed = taken[-1][0] + 1 if taken else self.committed

    def read(self, partition: TopicPartition) -> None:
        log = self.logs[partition]
        whole = self.history.reading("auditor", partition)
        whole.seen, whole.complete = list(log), True
        start = self.rng.randrange(len(log) + 1)
        some = self.history.reading("some", partition)
        some.seen = log[start : start + self.rng.randrange(len(log) + 1)]

    def places(self) -> list[tuple[Observation, int]]:
        """Where an output was seen by the one who reads all."""
        return [(r, n) for r in self.whole() for n in range(len(r.seen))]

    def whole(self) -> list[Observation]:
        return [r for r in self.history.readings if r.complete and r.partition != IN]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_correct_cluster_leaves_no_anomaly(seed: int) -> None:
    model = Model(seed)
    assert check(model.history) == []


def _lose(model: Model) -> set[Kind]:
    reading, n = model.rng.choice(model.places())
    gone = reading.seen[n]
    for other in model.history.readings:
        other.seen = [entry for entry in other.seen if entry != gone]
    writer = next(t for t in model.history.transactions for w in t.writes if w.value == gone[1])
    # Alone and of an unknown outcome it may as well have been aborted, but for its inputs.
    found = {Kind.LOST_WRITE, Kind.PARTIAL, Kind.INPUT_LOST}
    sole = (
        writer.outcome is TransactionOutcome.UNKNOWN
        and len(writer.writes) == 1
        and not writer.inputs
    )
    return set() if sole else found


def _repeat(model: Model) -> set[Kind]:
    reading, n = model.rng.choice(model.places())
    reading.saw(10_000, reading.seen[n][1])
    return {Kind.DUPLICATE}


def _reveal(model: Model) -> set[Kind]:
    partition, offset, value = model.rng.choice(model.hidden)
    reading = next(r for r in model.whole() if r.partition == partition)
    reading.seen = sorted([*reading.seen, (offset, value)])
    return {Kind.ABORTED_READ, Kind.PARTIAL, Kind.INPUT_TWICE, Kind.READERS_DISAGREE}


def _swap(model: Model) -> set[Kind]:
    reading = model.rng.choice([r for r in model.whole() if len(r.seen) > 1])
    n = model.rng.randrange(len(reading.seen) - 1)
    (_, one), (_, other) = reading.seen[n : n + 2]
    for each in model.history.readings:
        if each.partition == reading.partition:
            each.seen = [
                (o, other) if v == one else (o, one) if v == other else (o, v) for o, v in each.seen
            ]
    writers = {w.value: t for t in model.history.transactions for w in t.writes}
    offsets = {w.value: w.offset for t in model.history.transactions for w in t.writes}
    if (offsets[one], offsets[other]) != (None, None):
        return {Kind.WRONG_PLACE}
    same = writers[one].producer == writers[other].producer
    return {Kind.ORDER, Kind.ZOMBIE_WRITE} if same else set()


@pytest.mark.parametrize("spoil", [_lose, _repeat, _reveal, _swap])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_wrong_step_is_found(seed: int, spoil: Callable[[Model], set[Kind]]) -> None:
    model = Model(seed)
    expected = spoil(model)
    found = {anomaly.kind for anomaly in check(model.history)}
    if expected:
        assert found & expected
    else:
        assert not found
