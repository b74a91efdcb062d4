"""Who waits for room in `buffer.memory` has a turn: first come, first served."""

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
    """A line and its accumulator in an engine of their own; `taken` is in flight."""

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

    def stand(self, owner: object, size: int, deadline: float = 99.0) -> Completion[bool]:
        room = self.engine.start(self.line.room(owner, size, deadline))
        self.engine.step(0.0)
        return room

    def send(self, owner: object = None) -> int | None:
        place = self.accumulator.append(P0, (None, bytes(500), (), 77), SIZE, 0.0, owner)
        return None if place is None else place.index

    def comes_back(self, now: float = 0.0) -> None:
        self.accumulator.waive(self.in_flight)
        self.engine.step(now)

    def nothing_is_left(self) -> bool:
        mine = self.accumulator
        return (mine.used, len(mine.waiters), mine.granted) == (0, 0, {})


def test_who_cannot_wait_stands_in_no_line() -> None:
    scene = Scene(taken=LIMIT // 2)
    large = scene.stand("large", LIMIT - 1000)
    assert scene.send() is None
    assert scene.send(CANNOT_WAIT) == 0
    assert not large.done
    full = Scene(taken=LIMIT)
    assert full.send(CANNOT_WAIT) is None


def test_a_large_record_has_its_turn_before_small_ones_that_came_later() -> None:
    scene = Scene(taken=LIMIT // 2)
    large = scene.stand("large", LIMIT - 1000)
    assert not large.done
    assert scene.send() is None  # though it would fit: somebody waits
    small = scene.stand("small", SIZE)
    assert not small.done
    scene.comes_back()
    assert (large.result(), small.done) == (True, False)
    assert scene.accumulator.granted == {"large": LIMIT - 1000}
    scene.accumulator.waive("large")
    scene.engine.step(1.0)
    assert small.result()
    assert scene.send("small") == 0


def test_what_a_small_record_gets_holds_those_after_it() -> None:
    scene = Scene(taken=LIMIT - SIZE)
    room = scene.stand("small", SIZE)
    assert not room.done  # so much would be free, but each record would be a batch of its own
    scene.comes_back()
    assert room.result()
    assert scene.accumulator.granted == {"small": BATCH}
    scene.accumulator.grant("others", LIMIT - BATCH)
    assert [scene.send("small"), *(scene.send() for _ in range(5))] == [0, 1, 2, 3, 4, 5]
    assert scene.accumulator.granted == {"others": LIMIT - BATCH}
    (batch,) = scene.accumulator.live()
    assert batch.reserved == BATCH - HEADER_SIZE


def test_an_open_batch_grows_for_nobody_while_others_wait() -> None:
    scene = Scene(taken=SIZE)
    assert scene.send() == 0
    large = scene.stand("large", LIMIT - 2 * SIZE)
    found = []
    while (index := scene.send()) is not None:  # what it has reserved is its own
        found.append(index)
    (batch,) = scene.accumulator.live()
    assert batch.builder.limit_bytes <= 4096
    assert not large.done


def test_whoever_comes_too_late_leaves_the_line() -> None:
    scene = Scene(taken=LIMIT)
    first, second = scene.stand("first", LIMIT, 5.0), scene.stand("second", SIZE, 9.0)
    scene.engine.step(5.0)
    assert (first.result(), second.done) == (False, False)
    scene.comes_back(6.0)
    assert second.result()
    scene.accumulator.waive("second")
    assert scene.nothing_is_left()


def test_at_its_deadline_one_that_rather_had_more_takes_what_there_is() -> None:
    scene = Scene(taken=LIMIT - 2 * SIZE)
    room = scene.engine.start(scene.line.room("rows", SIZE, 5.0, LIMIT // 8))
    scene.engine.step(0.0)
    assert not room.done
    scene.engine.step(5.0)
    assert room.result()
    assert scene.accumulator.reserve(9999, "rows") == SIZE
    assert not scene.accumulator.waiters


def test_whoever_leaves_in_the_step_in_which_it_came_gets_nothing() -> None:
    """Its caller was interrupted right after the start, perhaps before that had a name."""
    scene = Scene(taken=LIMIT // 2)
    room = scene.engine.start(scene.line.room("gone", SIZE, 99.0))
    scene.engine.start(scene.line.leave("gone"))
    scene.engine.step(0.0)
    scene.comes_back(1.0)
    assert room.done
    assert scene.nothing_is_left()


def test_what_is_free_for_long_is_enough_if_it_is_all_that_is_needed() -> None:
    """The rest may be a dead leader's for minutes: healthy partitions don't wait for it."""
    scene = Scene(taken=LIMIT - SIZE)
    room = scene.engine.start(scene.line.room("small", SIZE, 60.0))
    assert scene.engine.step(1.0) == 1.0 + NO_RELEASE_S
    assert not room.done
    scene.engine.step(1.0 + NO_RELEASE_S)
    assert room.result()
    assert scene.accumulator.granted["small"] == SIZE


def test_nothing_lingers_once_the_first_has_waited_for_a_while() -> None:
    """Most of the memory may be a dead leader's, and then only what lingers can free any."""
    scene = Scene(taken=LIMIT - 5000)
    assert scene.send() == 0
    scene.stand("large", 5000)
    assert not scene.accumulator._hurry
    scene.engine.step(NO_RELEASE_S)
    assert scene.accumulator._hurry


def test_a_slow_broker_that_frees_memory_is_waited_for() -> None:
    """Slow is not dead: or each record beside it would be a batch of its own."""
    scene = Scene(taken=LIMIT - SIZE)
    room = scene.stand("small", SIZE)
    for turn in range(1, 6):
        scene.accumulator.released += 1  # a batch came back, and held little
        scene.engine.step(turn * 0.9 * NO_RELEASE_S)
        assert not room.done
    scene.engine.step(6.0 * NO_RELEASE_S)
    assert room.result()


def test_what_was_waited_for_in_vain_is_not_hoped_for_again() -> None:
    scene = Scene(taken=LIMIT - 3 * SIZE)
    first = scene.stand("first", SIZE)
    scene.engine.step(NO_RELEASE_S)
    assert first.result()
    assert scene.accumulator.granted["first"] == 3 * SIZE  # what is free, for those after it, too
    scene.accumulator.waive("first")
    assert scene.stand("second", SIZE).result()  # at once
    scene.accumulator.waive("second")
    scene.comes_back(2.0)
    assert scene.stand("third", SIZE).result()
    assert scene.accumulator.granted["third"] == BATCH  # and hope is back
    scene.accumulator.waive("third")
    assert scene.nothing_is_left()


def test_the_patience_of_the_next_begins_when_it_is_first() -> None:
    scene = Scene(taken=LIMIT - SIZE)
    large, small = scene.stand("large", LIMIT, 5.0), scene.stand("small", SIZE)
    scene.engine.step(5.0)
    assert (large.result(), small.done) == (False, False)
    scene.engine.step(5.0 + NO_RELEASE_S)
    assert small.result()


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "ended"])
def test_whoever_goes_away_leaves_nothing(granted: bool, how: str) -> None:
    scene = Scene(taken=LIMIT)
    room, after = scene.stand("gone", SIZE), scene.stand("after", SIZE)
    if granted:  # the caller is interrupted before it takes that note
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
    assert scene.nothing_is_left()


def test_what_is_granted_stands_in_the_books_when_they_are_mended() -> None:
    scene = Scene(taken=1000)
    scene.accumulator.doubt()
    scene.accumulator.close_all()
    assert scene.accumulator.used == 1000


def test_a_long_line_costs_in_proportion_to_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tasks of an event loop wait for memory as the program likes."""
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
    rooms = [scene.stand(owner, LIMIT // number // 2) for owner in owners]
    for owner in owners[::3]:
        scene.engine.start(scene.line.leave(owner))
    scene.comes_back()
    for owner, room in zip(owners, rooms, strict=True):
        scene.engine.step(0.0)
        assert room.done
        if room.error is None:
            scene.accumulator.waive(owner)
    assert sum(room.error is None for room in rooms) == number - number // 3
    assert scene.nothing_is_left()
    assert compared <= number
