"""Test the accumulator: lingering and full batches, wake-ups of the I/O loop, memory use."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from tests.property.interrupting import OURS, At, Interruption

from odradek.clients.producer.batch import BatchOutcome, ProducerBatch
from odradek.clients.producer.record_accumulator import (
    COLUMN_BATCH,
    FIRST_ROOM,
    Appended,
    RecordAccumulator,
)
from odradek.common.config import PRODUCER, Config
from odradek.common.errors import ClientClosedError, IllegalStateError
from odradek.common.types import NullLock, TopicPartition
from odradek.record import decode, estimate_record_size
from odradek.record.batch import HEADER_SIZE

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LINGER = 0.5


def accumulator(**more: Any) -> RecordAccumulator:
    options = {"linger.ms": 500, "batch.size": 1000, **more}
    return RecordAccumulator(Config(PRODUCER, {"bootstrap.servers": "a:1", **options}), NullLock())


def add(
    to: RecordAccumulator, value: bytes = b"v", *, at: float = 0.0, partition: TopicPartition = P0
) -> Appended:
    size = estimate_record_size(None, value, ())
    place = to.append(partition, (None, value, (), 77), size, at)
    assert place is not None
    return place


def test_a_batch_is_ready_when_its_linger_time_is_over() -> None:
    mine = accumulator()
    assert mine.next_ready_at() == math.inf
    first = add(mine, at=10.0)
    assert mine.next_ready_at() == 10.0 + LINGER
    second = add(mine, at=10.3)
    assert (second.batch, first.index, second.index) == (first.batch, 0, 1)
    assert mine.take(10.0 + LINGER - 0.001) == []
    assert mine.take(10.0 + LINGER) == [first.batch]
    assert first.batch.taken
    assert first.batch.builder.closed
    assert mine.next_ready_at() == math.inf
    assert mine.take(99.0) == []


def test_the_io_loop_is_woken_for_the_first_record_and_for_a_full_batch() -> None:
    mine = accumulator()
    assert add(mine).wake
    assert not add(mine).wake
    assert not add(mine, partition=P1).wake  # the I/O loop will wake up earlier anyway
    full = [add(mine, bytes(100)) for _ in range(10)]
    assert [f.wake for f in full].count(True) == 1


def test_a_full_batch_is_ready_at_once_and_the_next_record_opens_a_new_batch() -> None:
    mine = accumulator()
    places = [add(mine, bytes(300)) for _ in range(4)]
    assert len({p.batch.serial for p in places}) == 2
    assert mine.next_ready_at() == -math.inf
    assert mine.take(0.0) == [places[0].batch]
    assert mine.untaken() == [places[-1].batch]
    assert mine.take(LINGER) == [places[-1].batch]


def test_a_record_larger_than_a_batch_is_sent_alone() -> None:
    mine = accumulator()
    small = add(mine)
    large = add(mine, bytes(5000))
    assert large.batch is not small.batch
    assert large.wake
    assert mine.take(0.0) == [small.batch, large.batch]  # batches are in the order of their records
    assert large.batch.count == 1


def test_batches_of_all_partitions_are_taken_in_the_order_they_become_ready() -> None:
    mine = accumulator()
    first = add(mine, partition=P1, at=1.0)
    second = add(mine, partition=P0, at=1.2)
    assert mine.take(1.0 + LINGER) == [first.batch]
    assert mine.next_ready_at() == 1.2 + LINGER
    assert mine.take(1.2 + LINGER) == [second.batch]


def test_a_batchs_memory_is_freed_once_when_its_outcome_is_known() -> None:
    mine = accumulator(**{"buffer.memory": 2048, "max.request.size": 2048})
    size = estimate_record_size(None, bytes(900), ())
    one, two = add(mine, bytes(900)), add(mine, bytes(900))
    closed = one.batch.builder.estimated_size - HEADER_SIZE
    assert 900 < closed < size
    assert mine.used == closed + 1000 - HEADER_SIZE  # an open batch reserves up to its limit
    assert mine.append(P0, (None, bytes(900), (), 0), size, 0.0) is None
    mine.take(LINGER)
    assert mine.used == 2 * closed  # batches in flight are still in memory
    mine.release(one.batch)
    mine.release(one.batch)
    assert mine.used == closed
    add(mine, bytes(900))
    mine.release(two.batch)
    assert mine.used == 1000 - HEADER_SIZE


def test_an_open_batch_reserves_more_memory_as_it_grows() -> None:
    mine = accumulator(**{"batch.size": 100_000})
    batch = add(mine).batch
    assert mine.used == FIRST_ROOM
    used = {mine.used}
    for _ in range(200):
        assert add(mine, bytes(400)).batch is batch
        assert batch.builder.estimated_size - HEADER_SIZE <= mine.used
        used.add(mine.used)
    assert 2 < len(used) < 6
    mine.take(LINGER)
    assert mine.used == batch.builder.estimated_size - HEADER_SIZE


def test_an_open_batch_reserves_all_free_memory_if_its_next_increase_does_not_fit() -> None:
    mine = accumulator(**{"buffer.memory": 5000, "max.request.size": 5000, "batch.size": 100_000})
    size = estimate_record_size(None, bytes(400), ())
    batch = add(mine, bytes(400)).batch
    while mine.append(P0, (None, bytes(400), (), 77), size, 0.0) is not None:
        assert mine.used <= mine.limit
    assert batch.count == 12
    assert not batch.builder.closed


def test_a_lingering_batch_is_sent_at_once_if_a_waiting_caller_needs_its_memory() -> None:
    mine = accumulator()
    place = add(mine)
    mine.waiters["somebody"] = None
    mine.used += 10 * FIRST_ROOM  # memory in flight is freed soon enough
    assert mine.take(0.0) == []
    mine.used -= 10 * FIRST_ROOM
    assert mine.take(0.0) == [place.batch]


def test_the_records_of_a_batch_are_freed_when_its_outcome_is_known() -> None:
    mine = accumulator()
    place = add(mine, bytes(500))
    mine.take(LINGER)
    view = place.batch.sealed()
    kept = bytes(view)
    mine.release(place.batch)
    assert (place.batch.count, bytes(view)) == (1, kept)
    with pytest.raises(IllegalStateError):
        place.batch.sealed()


def test_records_are_rejected_after_the_client_has_ended() -> None:
    mine = accumulator()
    mine.ended = ClientClosedError("closed")
    for use in (lambda: add(mine), lambda: mine.claim(P0, 10, 0.0)):
        with pytest.raises(ClientClosedError):
            use()


def test_other_callers_do_not_append_to_a_batch_that_a_caller_has_claimed() -> None:
    mine = accumulator()
    first = add(mine).batch
    batch = mine.claim(P0, 100, 0.0)
    assert batch is first
    assert batch.builder.limit_bytes == mine.column_batch_size
    other = add(mine).batch
    assert other is not batch
    elsewhere = add(mine, partition=P1).batch
    assert mine.take(99.0) == [elsewhere]  # `linger.ms` is over for all three
    assert mine.untaken() == [batch, other]  # in the rows' order: `other` follows the claimed batch
    assert mine.next_ready_at() == math.inf
    mine.yield_claims([batch], 0, 99.0, hurry=False)
    assert mine.take(99.0) == [batch, other]
    assert mine.untaken() == []


def test_a_batch_whose_claim_ends_lingers_and_accepts_more_records() -> None:
    mine = accumulator()
    batch = mine.claim(P0, 100, 1.0)
    room = mine.reserve(500)
    assert (room, mine.used) == (500, 500)
    assert batch.append(None, b"v", (), 77) == 0
    size = batch.builder.estimated_size - HEADER_SIZE
    assert mine.yield_claims(
        [batch], room - size, 1.1, hurry=False
    )  # True: the caller has to wake the I/O loop
    assert mine.used == size
    assert (add(mine).batch, batch.count) == (batch, 2)
    assert mine.take(1.0 + LINGER) == [batch]
    assert mine.used == batch.builder.estimated_size - HEADER_SIZE


def test_ending_a_claim_can_be_repeated_after_an_interrupt() -> None:
    """Interrupt the call at each bytecode; a second call must do all that the first one lacks."""
    for number in itertools.count():
        mine = accumulator()
        batch = mine.claim(P0, 100, 0.0)
        batch.append(None, b"v", (), 77)
        try:
            with At(number, f"{OURS}/clients/producer/record_accumulator"):
                mine.yield_claims([batch], 0, 0.1, hurry=False)
        except Interruption:
            assert mine.yield_claims([batch], 0, 0.1, hurry=False), number
            assert mine.take(LINGER) == [batch], number
        else:
            break
    assert number > 100


def test_a_batch_whose_claim_ends_is_ready_if_another_batch_follows_or_a_flush_waits() -> None:
    mine = accumulator()
    for hurry in (False, True):
        batch = mine.claim(P0, 100, 0.0)
        mine.reserve(100)
        batch.append(None, b"v", (), 77)
        if not hurry:
            add(mine)
        assert mine.yield_claims([batch], 90, 0.0, hurry=hurry)
        assert mine.take(0.0) == [batch]
        mine.close_all()
        mine.take(0.0)
    empty = mine.claim(P0, 100, 0.0)
    assert mine.yield_claims([empty], 0, 0.0, hurry=False)
    assert mine.untaken() == mine.take(0.0) == [empty]


def test_a_batch_claimed_by_a_caller_is_sent_before_later_batches_even_if_it_closes_later() -> None:
    mine = accumulator()
    claimed = mine.claim(P0, 100, 0.0)
    claimed.append(None, b"v", (), 77)
    later = add(mine).batch
    mine.close_all()
    assert mine.take(0.0) == []
    mine.make_claim_ready(claimed)
    assert mine.take(0.0) == [claimed, later]
    assert claimed.serial < later.serial


def test_an_empty_batch_that_a_caller_has_claimed_does_not_delay_later_batches() -> None:
    """The sender also gets the empty batch, because a flush may wait for it."""
    mine = accumulator()
    empty = mine.claim(P0, 100, 0.0)
    later = add(mine).batch
    mine.close_all()
    assert mine.take(0.0) == []
    assert mine.yield_claims([empty], 0, 0.0, hurry=False)
    assert mine.take(0.0) == [empty, later]


@pytest.mark.parametrize("seed", range(40))
def test_the_records_of_each_caller_remain_in_order_in_random_schedules(seed: int) -> None:
    """Some callers send records, some columns; batches fill up, linger and are flushed."""
    rng, mine, now = random.Random(seed), accumulator(), 0.0
    written: dict[ProducerBatch, list[tuple[int, int]]] = {}
    claims: dict[int, ProducerBatch] = {}
    taken: list[ProducerBatch] = []
    numbers = [0, 0, 0, 0]

    def note(writer: int, batch: ProducerBatch) -> None:
        written.setdefault(batch, []).append((writer, numbers[writer]))
        numbers[writer] += 1

    for _ in range(400):
        writer, now = rng.randrange(4), now + rng.random() * LINGER / 20
        what = rng.random()
        if what < 0.1:
            taken += mine.take(now)
        elif what < 0.12:
            mine.close_all()
        elif writer < 2:
            note(writer, add(mine, bytes(rng.choice((10, 300))), at=now).batch)
        elif writer not in claims:
            claims[writer] = mine.claim(P0, 100, now)
        elif what < 0.6:
            claims[writer].append(None, b"v", (), 77)
            note(writer, claims[writer])
        elif claims[writer].count and what < 0.7:
            mine.make_claim_ready(claims.pop(writer))
        else:
            mine.yield_claims([claims.pop(writer)], 0, now, hurry=what > 0.95)
    mine.yield_claims(claims.values(), 0, now, hurry=False)
    mine.close_all()
    taken += mine.take(now)
    assert not mine.untaken()
    for writer in range(4):
        rows = [n for batch in taken for who, n in written.get(batch, ()) if who == writer]
        assert rows == list(range(numbers[writer]))
    counts = [b.count for b in taken]
    assert [b.serial for b in taken] == [sum(counts[:n]) for n in range(len(counts))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, COLUMN_BATCH), ({"batch.size": 5000}, 5000), ({"max.request.size": 300_000}, 300_000)],
)
def test_batches_of_columns_are_large_unless_an_option_limits_their_size(
    options: dict[str, int], expected: int
) -> None:
    config = Config(PRODUCER, {"bootstrap.servers": "a:1", **options})
    assert RecordAccumulator(config, NullLock()).column_batch_size == expected


def test_a_batch_contains_its_records_and_returns_their_offsets() -> None:
    mine = accumulator(**{"compression.type": "gzip"})
    places = [add(mine, b"%d" % n) for n in range(3)]
    (batch,) = mine.take(LINGER)
    batch.sequence, batch.producer = 7, (5, 2)
    rows = list(decode(batch.sealed(), start_offset=0).columns)
    assert [row[4] for row in rows] == [b"0", b"1", b"2"]
    batch.done.complete(BatchOutcome(40, -1))
    assert [p.batch.metadata(p.index, 77).offset for p in places] == [40, 41, 42]
    assert batch.metadata(0, 77).timestamp_ms == 77


@pytest.mark.parametrize(("said", "expected"), [(-1, 77), (123, 123)])
def test_a_log_append_timestamp_of_the_broker_is_returned(said: int, expected: int) -> None:
    """Brokers send it if `message.timestamp.type=LogAppendTime`; duplicates have no offset."""
    place = add(accumulator())
    place.batch.done.complete(BatchOutcome(-1, said))
    found = place.batch.metadata(0, 77)
    assert (found.offset, found.timestamp_ms) == (-1, expected)


class InterruptedDict(dict[Any, Any]):
    """A dict whose first `get` raises KeyboardInterrupt, as a signal handler may."""

    def get(self, *arguments: Any) -> Any:
        if not self:
            raise KeyboardInterrupt
        return super().get(*arguments)


@pytest.mark.parametrize("claims", [False, True])
def test_a_flush_does_not_wait_for_a_batch_whose_creation_was_interrupted(claims: bool) -> None:
    mine = accumulator()
    begun, mine._begun = mine._begun, InterruptedDict()
    with pytest.raises(KeyboardInterrupt):
        mine.claim(P0, 100, 0.0) if claims else add(mine)
    mine._begun = begun
    mine.close_all()  # the first step of flush() and commit
    assert mine.live() == []
    assert mine.used == 0
    batch = add(mine).batch
    assert mine.live() == [batch]
