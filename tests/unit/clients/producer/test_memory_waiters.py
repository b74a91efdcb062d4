"""Test that callers waiting for `buffer.memory` are served in the order of arrival."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.clients.producer import memory_waiters
from odradek.clients.producer.memory_waiters import NO_RELEASE_S, MemoryWaiters
from odradek.clients.producer.record_accumulator import CANNOT_WAIT, RecordAccumulator
from odradek.common.config import PRODUCER, Config
from odradek.common.errors import ClientClosedError
from odradek.common.events import EventLog
from odradek.common.types import TopicPartition
from odradek.network.engine import Engine
from odradek.network.flow import Completion
from odradek.record import estimate_record_size
from odradek.record.batch import HEADER_SIZE
from odradek.runtime.locks import new_lock

P0 = TopicPartition("t", 0)
LIMIT, BATCH = 80_000, 4000
SIZE = estimate_record_size(None, bytes(500), ())


class Scene:
    """Callers that wait for memory, an accumulator and engine; `taken` bytes are in flight."""

    def __init__(self, taken: int) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": "h:1",
            "buffer.memory": LIMIT,
            "max.request.size": LIMIT,
            "batch.size": BATCH,
        }
        self.accumulator = RecordAccumulator(Config(PRODUCER, options), new_lock())
        self.line = MemoryWaiters(self.accumulator)
        self.engine = Engine(EventLog("c"))
        self.engine.components.append(self.line)
        self.in_flight = object()
        assert self.accumulator.grant(self.in_flight, taken)

    def wait(self, owner: object, size: int, deadline: float = 99.0) -> Completion[bool]:
        room = self.engine.start(self.line.room(owner, size, deadline))
        self.engine.step(0.0)
        return room

    def send(self, owner: object = None) -> int | None:
        place = self.accumulator.append(P0, (None, bytes(500), (), 77), SIZE, 0.0, owner)
        return None if place is None else place.index

    def comes_back(self, now: float = 0.0) -> None:
        self.accumulator.waive(self.in_flight)
        self.engine.step(now)

    def is_empty(self) -> bool:
        mine = self.accumulator
        return (mine.used, len(mine.waiters), mine.granted) == (0, 0, {})


def test_a_caller_that_cannot_wait_takes_free_memory_before_waiting_callers() -> None:
    scene = Scene(taken=LIMIT // 2)
    large = scene.wait("large", LIMIT - 1000)
    assert scene.send() is None
    assert scene.send(CANNOT_WAIT) == 0
    assert not large.done
    full = Scene(taken=LIMIT)
    assert full.send(CANNOT_WAIT) is None


def test_a_large_record_gets_memory_before_later_small_records() -> None:
    scene = Scene(taken=LIMIT // 2)
    large = scene.wait("large", LIMIT - 1000)
    assert not large.done
    assert scene.send() is None  # the record would fit, but another caller waits
    small = scene.wait("small", SIZE)
    assert not small.done
    scene.comes_back()
    assert (large.result(), small.done) == (True, False)
    assert scene.accumulator.granted == {"large": LIMIT - 1000}
    scene.accumulator.waive("large")
    scene.engine.step(1.0)
    assert small.result()
    assert scene.send("small") == 0


def test_a_waiting_caller_with_a_small_record_gets_memory_for_a_whole_batch() -> None:
    scene = Scene(taken=LIMIT - SIZE)
    room = scene.wait("small", SIZE)
    assert not room.done  # else each record would get a batch of its own
    scene.comes_back()
    assert room.result()
    assert scene.accumulator.granted == {"small": BATCH}
    scene.accumulator.grant("others", LIMIT - BATCH)
    assert [scene.send("small"), *(scene.send() for _ in range(5))] == [0, 1, 2, 3, 4, 5]
    assert scene.accumulator.granted == {"others": LIMIT - BATCH}
    (batch,) = scene.accumulator.live()
    assert batch.reserved == BATCH - HEADER_SIZE


def test_an_open_batch_reserves_no_more_memory_while_a_caller_waits() -> None:
    scene = Scene(taken=SIZE)
    assert scene.send() == 0
    large = scene.wait("large", LIMIT - 2 * SIZE)
    found = []
    while (index := scene.send()) is not None:  # until the reserved memory is full
        found.append(index)
    (batch,) = scene.accumulator.live()
    assert batch.builder.limit_bytes <= 4096
    assert not large.done


def test_a_caller_stops_waiting_for_memory_at_its_deadline() -> None:
    scene = Scene(taken=LIMIT)
    first, second = scene.wait("first", LIMIT, 5.0), scene.wait("second", SIZE, 9.0)
    scene.engine.step(5.0)
    assert (first.result(), second.done) == (False, False)
    scene.comes_back(6.0)
    assert second.result()
    scene.accumulator.waive("second")
    assert scene.is_empty()


def test_at_its_deadline_a_caller_accepts_less_memory_than_it_prefers() -> None:
    scene = Scene(taken=LIMIT - 2 * SIZE)
    room = scene.engine.start(scene.line.room("rows", SIZE, 5.0, LIMIT // 8))
    scene.engine.step(0.0)
    assert not room.done
    scene.engine.step(5.0)
    assert room.result()
    assert scene.accumulator.reserve(9999, "rows") == SIZE
    assert not scene.accumulator.waiters


def test_a_caller_that_stops_waiting_in_its_first_step_keeps_no_memory() -> None:
    """Simulate a caller that is interrupted as soon as it starts to wait."""
    scene = Scene(taken=LIMIT // 2)
    room = scene.engine.start(scene.line.room("gone", SIZE, 99.0))
    scene.engine.start(scene.line.leave("gone"))
    scene.engine.step(0.0)
    scene.comes_back(1.0)
    assert room.done
    assert scene.is_empty()


def test_if_no_memory_is_freed_the_first_caller_soon_gets_memory_for_its_record_alone() -> None:
    """A dead leader's batches may hold memory for minutes; others mustn't wait for that."""
    scene = Scene(taken=LIMIT - SIZE)
    room = scene.engine.start(scene.line.room("small", SIZE, 60.0))
    assert scene.engine.step(1.0) == 1.0 + NO_RELEASE_S
    assert not room.done
    scene.engine.step(1.0 + NO_RELEASE_S)
    assert room.result()
    assert scene.accumulator.granted["small"] == SIZE


def test_batches_stop_lingering_if_no_memory_is_freed_for_the_first_waiting_caller() -> None:
    """If a dead leader's batches hold most memory, only batches that linger can free some."""
    scene = Scene(taken=LIMIT - 5000)
    assert scene.send() == 0
    scene.wait("large", 5000)
    assert not scene.accumulator._hurry
    scene.engine.step(NO_RELEASE_S)
    assert scene.accumulator._hurry


def test_a_caller_waits_longer_if_a_slow_broker_frees_memory_meanwhile() -> None:
    """If callers got memory for one record, a slow broker would get many small batches."""
    scene = Scene(taken=LIMIT - SIZE)
    room = scene.wait("small", SIZE)
    for turn in range(1, 6):
        scene.accumulator.released += 1  # a small batch was acknowledged
        scene.engine.step(turn * 0.9 * NO_RELEASE_S)
        assert not room.done
    scene.engine.step(6.0 * NO_RELEASE_S)
    assert room.result()


def test_after_a_wait_in_which_no_memory_was_freed_the_next_caller_does_not_wait() -> None:
    scene = Scene(taken=LIMIT - 3 * SIZE)
    first = scene.wait("first", SIZE)
    scene.engine.step(NO_RELEASE_S)
    assert first.result()
    assert scene.accumulator.granted["first"] == 3 * SIZE  # all free memory, also for later records
    scene.accumulator.waive("first")
    assert scene.wait("second", SIZE).result()  # the second caller doesn't wait
    scene.accumulator.waive("second")
    scene.comes_back(2.0)
    assert scene.wait("third", SIZE).result()
    assert scene.accumulator.granted["third"] == BATCH  # memory was freed meanwhile
    scene.accumulator.waive("third")
    assert scene.is_empty()


def test_the_wait_of_a_caller_is_measured_from_when_it_is_first_in_the_queue() -> None:
    scene = Scene(taken=LIMIT - SIZE)
    large, small = scene.wait("large", LIMIT, 5.0), scene.wait("small", SIZE)
    scene.engine.step(5.0)
    assert (large.result(), small.done) == (False, False)
    scene.engine.step(5.0 + NO_RELEASE_S)
    assert small.result()


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "ended"])
def test_cancelled_callers_and_closed_clients_keep_no_memory(granted: bool, how: str) -> None:
    scene = Scene(taken=LIMIT)
    room, after = scene.wait("gone", SIZE), scene.wait("after", SIZE)
    if granted:  # the caller is interrupted before it uses its memory
        scene.accumulator.waive(scene.in_flight)
        scene.engine.step(1.0)
        assert room.result()
    if how == "cancelled":
        scene.engine.start(scene.line.leave("gone"))
        scene.comes_back(2.0)
        assert after.result()
    else:
        scene.engine.end(ClientClosedError("closed"), "closed")
        scene.accumulator.waive(scene.in_flight)
        scene.accumulator.waive("gone")
    scene.accumulator.waive("after")
    assert scene.is_empty()


def test_granted_memory_counts_as_used_after_the_used_memory_was_recalculated() -> None:
    scene = Scene(taken=1000)
    scene.accumulator.doubt()
    scene.accumulator.close_all()
    assert scene.accumulator.used == 1000


def test_giving_memory_to_many_waiting_callers_takes_linear_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An application may have any number of asyncio tasks that wait for memory."""
    compared = 0

    class Counted(memory_waiters._Waiting):
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

    monkeypatch.setattr(memory_waiters, "_Waiting", Counted)
    number, scene = 300, Scene(LIMIT)
    owners = [object() for _ in range(number)]
    rooms = [scene.wait(owner, LIMIT // number // 2) for owner in owners]
    for owner in owners[::3]:
        scene.engine.start(scene.line.leave(owner))
    scene.comes_back()
    for owner, room in zip(owners, rooms, strict=True):
        scene.engine.step(0.0)
        assert room.done
        if room.error is None:
            scene.accumulator.waive(owner)
    assert sum(room.error is None for room in rooms) == number - number // 3
    assert scene.is_empty()
    assert compared <= number
