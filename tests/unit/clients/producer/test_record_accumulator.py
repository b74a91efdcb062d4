"""The accumulator: what lingers, what is full, who has to be woken, and whose memory it is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from odradek.clients.producer.batch import Outcome
from odradek.clients.producer.record_accumulator import Appended, RecordAccumulator
from odradek.common.config import PRODUCER, Config
from odradek.common.types import NullLock, TopicPartition
from odradek.record import decode, estimate_record_size

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LINGER = 0.5


def accumulator(**more: Any) -> RecordAccumulator:
    options = {"linger.ms": 500, "batch.size": 1000, **more}
    return RecordAccumulator(Config(PRODUCER, {"bootstrap.servers": "a:1", **options}), NullLock())


def add(
    to: RecordAccumulator, value: bytes = b"v", *, at: float = 0.0, partition: TopicPartition = P0
) -> Appended:
    size = estimate_record_size(None, value, ())
    place = to.append(partition, None, value, (), 77, size, at)
    assert place is not None
    return place


def test_a_batch_ripens_when_its_linger_is_over() -> None:
    mine = accumulator()
    assert mine.next_ripe() == math.inf
    first = add(mine, at=10.0)
    assert mine.next_ripe() == 10.0 + LINGER
    second = add(mine, at=10.3)
    assert (second.batch, first.index, second.index) == (first.batch, 0, 1)
    assert mine.take(10.0 + LINGER - 0.001) == []
    assert mine.take(10.0 + LINGER) == [first.batch]
    assert first.batch.taken
    assert first.batch.builder.closed
    assert mine.next_ripe() == math.inf
    assert mine.take(99.0) == []


def test_the_host_is_woken_for_the_first_that_lingers_and_for_a_full_one_only() -> None:
    mine = accumulator()
    assert add(mine).wake
    assert not add(mine).wake
    assert not add(mine, partition=P1).wake  # the host's alarm is set already, and it is earlier
    full = [add(mine, bytes(100)) for _ in range(10)]
    assert [f.wake for f in full].count(True) == 1


def test_a_full_batch_goes_at_once_and_the_next_record_opens_another() -> None:
    mine = accumulator()
    places = [add(mine, bytes(300)) for _ in range(4)]
    assert len({p.batch.serial for p in places}) == 2
    assert mine.next_ripe() == -math.inf
    assert mine.take(0.0) == [places[0].batch]
    assert mine.untaken() == [places[-1].batch]
    assert mine.take(LINGER) == [places[-1].batch]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    mine = accumulator()
    small = add(mine)
    large = add(mine, bytes(5000))
    assert large.batch is not small.batch
    assert large.wake
    assert mine.take(0.0) == [small.batch, large.batch]  # in order
    assert large.batch.count == 1


def test_batches_of_all_partitions_come_in_the_order_they_ripen() -> None:
    mine = accumulator()
    first = add(mine, partition=P1, at=1.0)
    second = add(mine, partition=P0, at=1.2)
    assert mine.take(1.0 + LINGER) == [first.batch]
    assert mine.next_ripe() == 1.2 + LINGER
    assert mine.take(1.2 + LINGER) == [second.batch]


def test_memory_is_reserved_until_the_outcome_and_given_back_once() -> None:
    mine = accumulator(**{"buffer.memory": 2048, "max.request.size": 2048})
    size = estimate_record_size(None, bytes(900), ())
    one, two = add(mine, bytes(900)), add(mine, bytes(900))
    assert mine.used == 2 * size
    assert mine.append(P0, None, bytes(900), (), 0, size, 0.0) is None
    mine.take(LINGER)
    assert mine.used == 2 * size  # in flight is still in memory
    mine.release(one.batch)
    mine.release(one.batch)
    assert mine.used == size
    add(mine, bytes(900))
    mine.release(two.batch)
    assert mine.used == size


def test_nothing_lingers_while_someone_waits_for_room() -> None:
    mine = accumulator()
    place = add(mine)
    mine.waiters = 1
    assert mine.take(0.0) == [place.batch]


def test_flush_lets_nothing_linger() -> None:
    mine = accumulator()
    places = [add(mine, partition=p) for p in (P0, P1)]
    mine.close_all()
    assert mine.next_ripe() == -math.inf
    assert mine.take(0.0) == [p.batch for p in places]
    assert add(mine).wake


def test_a_batch_holds_what_was_put_in_and_says_where_it_went() -> None:
    mine = accumulator(**{"compression.type": "gzip"})
    places = [add(mine, b"%d" % n) for n in range(3)]
    (batch,) = mine.take(LINGER)
    batch.sequence, batch.producer = 7, (5, 2)
    rows = list(decode(batch.sealed(), start_offset=0).columns)
    assert [row[4] for row in rows] == [b"0", b"1", b"2"]
    batch.done.complete(Outcome(40, -1))
    assert [p.batch.metadata(p.index, 77).offset for p in places] == [40, 41, 42]
    assert batch.metadata(0, 77).timestamp_ms == 77


@pytest.mark.parametrize(("said", "expected"), [(-1, 77), (123, 123)])
def test_the_brokers_own_time_wins(said: int, expected: int) -> None:
    """`message.timestamp.type=LogAppendTime`; and a duplicate has no offset any more."""
    place = add(accumulator())
    place.batch.done.complete(Outcome(-1, said))
    found = place.batch.metadata(0, 77)
    assert (found.offset, found.timestamp_ms) == (-1, expected)
