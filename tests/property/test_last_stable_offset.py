"""A partition's log of transactions against a model: which records are visible or held back.

The model computes offsets and the high watermark without asking the log.
"""

from __future__ import annotations

import random

import pytest

from odradek.record import BatchBuilder, decode
from odradek.simulation.logs.partition_log import PartitionLog, check_batch

PRODUCERS = 4
NONE = -1


class Model:
    """A model of transactions and records, which it also appends to `log`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = PartitionLog()
        self.sequences = [0] * PRODUCERS
        self.end_offset = self.high_watermark = 0
        self.ends: list[int] = []
        """Offset after each batch, markers included."""
        self.values: list[tuple[int, bytes, int]] = []
        """Offset, value and transaction number of each record."""
        self.first: dict[int, int] = {}
        """First offset of each transaction that has written records."""
        self.marker: dict[int, tuple[int, bool]] = {}
        """By transaction number: the marker's offset, and whether it is a commit."""
        self.number = list(range(PRODUCERS))
        """Number of each producer's current transaction."""

    def append(self, producer: int, *, transactional: bool) -> None:
        builder = BatchBuilder(1 << 16, None)
        number, base = self.number[producer] if transactional else NONE, self.end_offset
        for n in range(self.rng.randrange(1, 4)):
            value = b"%d/%d" % (base, n)
            builder.append(None, value, (), 0)
            self.values.append((self.end_offset, value, number))
            self.end_offset += 1
        ids = (producer, 0, self.sequences[producer]) if transactional else (NONE, NONE, NONE)
        data = bytes(
            builder.build(
                producer_id=ids[0],
                producer_epoch=ids[1],
                base_sequence=ids[2],
                transactional=transactional,
            )
        )
        header = check_batch(data)
        assert self.log.find_duplicate(header) is None
        assert self.log.append(data, header, 0).base_offset == base
        self.ends.append(self.end_offset)
        if transactional:
            self.sequences[producer] += self.end_offset - base
            self.first.setdefault(number, base)

    def end(self, producer: int) -> None:
        commit = self.rng.random() < 0.6
        self.log.append_marker(producer, 0, 0, 0, commit=commit)
        self.marker[self.number[producer]] = (self.end_offset, commit)
        self.end_offset += 1
        self.ends.append(self.end_offset)
        self.number[producer] += PRODUCERS

    def replicate(self) -> None:
        """Replicate some more batches."""
        left = [i for i, end in enumerate(self.ends) if end > self.high_watermark]
        if left:
            upto = self.rng.choice(left)
            self.log.commit(self.log.batches[upto])
            self.high_watermark = self.ends[upto]

    def step(self) -> None:
        producer = self.rng.randrange(PRODUCERS)
        what = self.rng.random()
        if what < 0.5:
            self.append(producer, transactional=True)
        elif what < 0.6:
            self.append(producer, transactional=False)
        elif what < 0.85:
            self.end(producer)
        else:
            self.replicate()

    def stable(self) -> int:
        """Return the offset of the first transaction whose end isn't replicated yet."""
        nowhere = (self.end_offset, False)
        waiting = [
            first
            for number, first in self.first.items()
            if self.marker.get(number, nowhere)[0] >= self.high_watermark
        ]
        return min([self.high_watermark, *waiting])

    def visible(self) -> list[tuple[int, bytes]]:
        """Return the records below the last stable offset that weren't aborted."""
        stable = self.stable()
        return [
            (offset, value)
            for offset, value, number in self.values
            if offset < stable and (number == NONE or self.marker[number][1])
        ]


@pytest.mark.parametrize("seed", range(30))
def test_committed_records_are_visible_and_no_ended_transaction_holds_others_back(
    seed: int,
) -> None:
    model = Model(seed)
    log, before = model.log, 0
    for _ in range(60):
        model.step()
        stable, visible = model.stable(), model.visible()
        assert (log.high_watermark, log.end_offset) == (model.high_watermark, model.end_offset)
        assert log.last_stable_offset == stable >= before
        before = stable
        assert [(row[0], row[4]) for row in log.visible_rows()] == visible
        start = model.rng.randrange(stable + 1)
        data = log.read(start, 1 << 20, whole_first=True, until=stable)
        aborted = log.transactions.aborted(start, stable)
        rows = decode(memoryview(data), start_offset=start, aborted=aborted).columns.rows()
        read = [(row[0], row[4]) for row in rows]
        assert read == [(offset, value) for offset, value in visible if offset >= start]
    for producer in range(PRODUCERS):
        model.end(producer)
    log.commit(log.batches[-1])
    assert log.last_stable_offset == log.high_watermark == log.end_offset == model.end_offset
