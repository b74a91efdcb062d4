"""A partition's log of transactions against a model: what is visible, and what waits."""

from __future__ import annotations

import random

import pytest

from odradek.record import BatchBuilder, decode
from odradek.simulation.partition_log import PartitionLog, check_batch

PRODUCERS = 4


class Model:
    """Open transactions and their records, in the order of the log."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = PartitionLog()
        self.sequences = [0] * PRODUCERS
        self.open: dict[int, list[bytes]] = {}
        self.first: dict[int, int] = {}
        self.values: list[tuple[int, bytes, int]] = []
        """Offset, value, transaction."""
        self.fate: dict[int, bool] = {}
        self.number = dict.fromkeys(range(PRODUCERS), 0)

    def append(self, producer: int, *, transactional: bool) -> None:
        builder = BatchBuilder(1 << 16, None)
        number = producer + PRODUCERS * self.number[producer] if transactional else -1
        for n in range(self.rng.randrange(1, 4)):
            value = b"%d/%d" % (len(self.values), n)
            builder.append(None, value, (), 0)
            self.values.append((self.log.end_offset + n, value, number))
        ids = (producer, 0, self.sequences[producer]) if transactional else (-1, -1, -1)
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
        batch = self.log.append(data, header, 0)
        if transactional:
            self.sequences[producer] += header.count
            self.first.setdefault(number, batch.base_offset)

    def end(self, producer: int) -> None:
        number = producer + PRODUCERS * self.number[producer]
        commit = self.rng.random() < 0.6
        self.log.append_marker(producer, 0, 0, 0, commit=commit)
        self.fate[number] = commit
        self.number[producer] += 1

    def step(self) -> None:
        producer = self.rng.randrange(PRODUCERS)
        what = self.rng.random()
        if what < 0.5:
            self.append(producer, transactional=True)
        elif what < 0.6:
            self.append(producer, transactional=False)
        elif what < 0.85:
            self.end(producer)
        elif self.log.uncommitted():
            self.log.commit(self.rng.choice(self.log.uncommitted()))

    def visible(self) -> list[bytes]:
        """What is below the first open transaction and wasn't aborted."""
        end = self.log.high_watermark
        stable = min(
            [end, *(first for number, first in self.first.items() if number not in self.fate)]
        )
        return [
            value
            for offset, value, number in self.values
            if offset < min(stable, self.log.last_stable_offset)
            and (number < 0 or self.fate[number])
        ]


@pytest.mark.parametrize("seed", range(30))
def test_visible_is_what_was_committed_and_nothing_waits_behind_what_ended(seed: int) -> None:
    model = Model(seed)
    stable = 0
    for _ in range(60):
        model.step()
        log = model.log
        assert stable <= log.last_stable_offset <= log.high_watermark
        stable = log.last_stable_offset
        assert [row[4] for row in log.visible_rows()] == model.visible()
        start = model.rng.randrange(stable + 1)
        data = log.read(start, 1 << 20, whole_first=True, until=stable)
        aborted = log.transactions.aborted(start, stable)
        rows = decode(memoryview(data), start_offset=start, aborted=aborted).columns.rows()
        offsets = [offset for offset, *_ in log.visible_rows() if offset >= start]
        assert [row[0] for row in rows] == offsets
    for producer in range(PRODUCERS):
        model.end(producer)
    model.log.commit(model.log.batches[-1])
    assert model.log.last_stable_offset == model.log.high_watermark == model.log.end_offset
