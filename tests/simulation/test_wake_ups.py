"""R-HO-6: each call that makes records available wakes the waiting reader.

Each waiting call is combined with each call that makes records available, on three I/O hosts: one
in the caller's thread ("sync"), one with its own thread ("background"), and one in an event loop.
Brokers hold fetches for twenty seconds, so a reader that isn't woken gets no records by chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from tests.simulation.scene import Stage
from tests.volume import pairs

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.common.errors import IllegalStateError
from odradek.common.types import TopicPartition
from odradek.simulation.world.virtual_time import VirtualTime
from odradek.testing import VirtualLoop
from odradek.testing.virtual.world_host import WorldAsyncioHost

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 10
"""Initial records in each of the two partitions."""
HELD = 20.0
"""Seconds for which brokers hold a fetch without records (`fetch.max.wait.ms`)."""
TIMEOUT = 8.0
"""Timeout of a waiting call in seconds."""
SOON, JOINED = 0.3, 4.0
"""Seconds from an enabling call to the records; with a join of a group."""
HOSTS = ("sync", "background", "asyncio")

Program = Coroutine[Any, Any, Any]
Call = Callable[["Bench"], Program]


class Bench:
    """A consumer on one of the I/O hosts; its program is a coroutine, even with sync calls."""

    def __init__(self, host: str, *, grouped: bool = False, seed: int = 1) -> None:
        self.stage = Stage(seed, brokers=1, partitions=2)
        self.world = self.stage.world
        self.stage.write(range(2 * RECORDS))
        self.producer = self.stage.producer(name="later", linger_ms=0)
        self.awaited = host == "asyncio"
        if self.awaited:
            self.world.make_host = WorldAsyncioHost
        config: dict[str, Any] = {"fetch_max_wait_ms": int(1000 * HELD)}
        if grouped:
            config |= {"group_id": "g", "enable_auto_commit": False}
        made = self.world.host("reader", background=host == "background" or grouped)
        facade: Any = AsyncConsumer if self.awaited else Consumer
        self.consumer: Any = on_host(
            made, facade, self.stage.settings(auto_offset_reset="earliest", **config)
        )
        self._tasks: list[asyncio.Task[Any]] = []

    async def of(self, given: Any) -> Any:
        """Return the result of a call of a sync or an asyncio client."""
        return await given if self.awaited else given

    def run(self, main: Program) -> Any:
        """Run a program to its end."""
        if not self.awaited:
            return _at_once(main)
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.world)) as runner:
            return runner.run(main)

    async def drained(self) -> None:
        """Read to the end of the assignment: brokers hold the next fetch."""
        while await self.of(self.consumer.poll(0.5)):
            pass

    def meanwhile(self, seconds: float, act: Call) -> None:
        """Call a function in another thread or task after a delay."""
        if self.awaited:
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, lambda: self._tasks.append(loop.create_task(act(self))))
        else:
            self.world.after(seconds, lambda: _at_once(act(self)))

    async def took(self, waiting: Call, act: Call) -> tuple[Any, float]:
        """Return the result of `waiting`, and the seconds from `act` to it."""
        at = self.world.now + 1.0
        self.meanwhile(1.0, act)
        found = await waiting(self)
        for task in self._tasks:
            await task
        return found, self.world.now - at


def _at_once(program: Program) -> Any:
    """Run a coroutine whose calls complete synchronously."""
    with pytest.raises(StopIteration) as end:
        program.send(None)
    return end.value.value


# Calls that wait for records: each returns the first record's partition and offset, or None


async def poll(bench: Bench) -> Any:
    found = await bench.of(bench.consumer.poll(TIMEOUT))
    return (found[0].partition, found[0].offset) if found else None


async def iteration(bench: Bench) -> Any:
    if not bench.awaited:
        record = next(bench.consumer.records(TIMEOUT), None)
    else:
        record = await anext(bench.consumer.records(TIMEOUT), None)
    return record and (record.partition, record.offset)


def _first(batch: Any) -> Any:
    return batch and (batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py())


async def poll_arrow(bench: Bench) -> Any:
    return _first(await bench.of(bench.consumer.poll_arrow(TIMEOUT)))


async def batches(bench: Bench) -> Any:
    if not bench.awaited:
        return _first(next(bench.consumer.batches(TIMEOUT), None))
    return _first(await anext(bench.consumer.batches(TIMEOUT), None))


WAITING = (poll, iteration, poll_arrow, batches)


# Calls that make records available


class Enabling(NamedTuple):
    """A call that makes records available."""

    name: str
    begin: Call
    """Calls that precede the enabling call."""
    call: Call
    first: tuple[int, int]
    """Partition and offset of the first record that the call makes available."""
    grouped: bool = False
    within: float = SOON


async def at_the_end(bench: Bench) -> None:
    bench.consumer.assign([P0])
    await bench.drained()


async def paused(bench: Bench) -> None:
    bench.consumer.assign([P0])
    bench.consumer.pause(P0)


async def paused_amid(bench: Bench) -> None:
    bench.consumer.assign([P0])
    assert len(await bench.of(bench.consumer.poll(5.0, max_records=4))) == 4
    bench.consumer.pause(P0)


async def committed(bench: Bench) -> None:
    await at_the_end(bench)
    await bench.of(bench.consumer.commit({P0: 6}))


async def subscribed_paused(bench: Bench) -> None:
    """Subscribe; the callback pauses all assignments except the second."""
    assigned: list[Any] = []

    def on_assigned(consumer: Any, partitions: list[TopicPartition]) -> None:
        assigned.append(partitions)
        if len(assigned) == 2:
            consumer.resume(consumer.assignment())
        else:
            consumer.pause(partitions)

    await bench.of(bench.consumer.subscribe(["t"], on_assigned=on_assigned))
    while not assigned:
        assert not await bench.of(bench.consumer.poll(1.0))


async def resume(bench: Bench) -> None:
    bench.consumer.resume(bench.consumer.assignment())


async def seek(bench: Bench) -> None:
    bench.consumer.seek(P0, 3)


async def seek_to_beginning(bench: Bench) -> None:
    bench.consumer.seek_to_beginning([P0])


async def seek_to_end(bench: Bench) -> None:
    """Seek to the end; a record is written a moment later."""
    bench.consumer.seek_to_end([P0])
    bench.world.after(0.05, lambda: bench.producer.send("t", b"new", partition=0))


async def seek_to_committed(bench: Bench) -> None:
    await bench.of(bench.consumer.seek_to_committed([P0]))


async def assign_more(bench: Bench) -> None:
    bench.consumer.assign([P0, P1])


async def assign_at_an_offset(bench: Bench) -> None:
    bench.consumer.assign({P0: 5})


async def assign_nothing_and_then_more(bench: Bench) -> None:
    bench.consumer.assign([])
    await bench.of(bench.consumer.list_topics()) if bench.awaited else None
    bench.consumer.assign([P1])


async def subscribe(bench: Bench) -> None:
    bench.consumer.assign([])
    await bench.of(bench.consumer.subscribe(["t"]))


async def commit_async(bench: Bench) -> None:
    """Commit with a callback, called in the waiting call, that resumes the partition."""
    callback = lambda *_: bench.consumer.resume(P0)  # noqa: E731
    await bench.of(bench.consumer.commit_async({P0: 1}, callback))


async def enforce_rebalance(bench: Bench) -> None:
    bench.consumer.enforce_rebalance()


ENABLING = (
    Enabling("resume", paused, resume, (0, 0)),
    Enabling("resume of what was fetched", paused_amid, resume, (0, 4)),
    Enabling("seek", at_the_end, seek, (0, 3)),
    Enabling("seek_to_beginning", at_the_end, seek_to_beginning, (0, 0)),
    Enabling("seek_to_end", at_the_end, seek_to_end, (0, RECORDS)),
    Enabling("assign", at_the_end, assign_more, (1, 0)),
    Enabling("assign while all is paused", paused, assign_more, (1, 0)),
    Enabling("assign at an offset", at_the_end, assign_at_an_offset, (0, 5)),
    Enabling("assign nothing, then more", at_the_end, assign_nothing_and_then_more, (1, 0)),
    Enabling("seek_to_committed", committed, seek_to_committed, (0, 6), grouped=True),
    Enabling("subscribe", paused, subscribe, (0, 0), grouped=True, within=JOINED),
    Enabling("resume of a member", subscribed_paused, resume, (0, 0), grouped=True),
    Enabling("a commit's callback", paused, commit_async, (0, 0), grouped=True),
    Enabling(
        "on_assigned", subscribed_paused, enforce_rebalance, (0, 0), grouped=True, within=JOINED
    ),
)


@pytest.mark.parametrize("enabling", ENABLING, ids=lambda e: e.name.replace(" ", "-"))
@pytest.mark.parametrize(
    ("waiting", "host"), pairs(WAITING, HOSTS), ids=lambda x: getattr(x, "__name__", x)
)
def test_a_call_that_makes_records_available_wakes_the_reader(
    host: str, waiting: Call, enabling: Enabling
) -> None:
    bench = Bench(host, grouped=enabling.grouped)

    async def program() -> None:
        await enabling.begin(bench)
        found, took = await bench.took(waiting, enabling.call)
        assert found == enabling.first, took
        assert took < enabling.within
        await bench.of(bench.consumer.close())

    bench.run(program())


# Calls that wait for a position


async def position(bench: Bench) -> Any:
    try:
        return await bench.of(bench.consumer.position(P1, timeout=TIMEOUT))
    except IllegalStateError as error:
        return type(error)


async def positions(bench: Bench) -> Any:
    """Wait for positions in `seek_to_committed`."""
    await bench.of(bench.consumer.seek_to_committed([P1], timeout=TIMEOUT))
    return await position(bench)


async def seek_it(bench: Bench) -> None:
    bench.consumer.seek(P1, 3)


async def assign_it_at_an_offset(bench: Bench) -> None:
    bench.consumer.assign({P1: 3})


async def take_it_away(bench: Bench) -> None:
    bench.consumer.assign([P0])


@pytest.mark.parametrize(
    ("enabling", "outcome"),
    [(seek_it, 3), (assign_it_at_an_offset, 3), (take_it_away, IllegalStateError)],
)
@pytest.mark.parametrize("waiting", [position, positions], ids=lambda w: w.__name__)
@pytest.mark.parametrize("host", HOSTS)
def test_a_call_that_sets_a_position_ends_the_wait_for_it(
    host: str, waiting: Call, enabling: Call, outcome: Any
) -> None:
    """The only broker is frozen, so no response can set a position."""
    bench = Bench(host, grouped=waiting is positions)

    async def program() -> None:
        bench.consumer.assign([P0])
        await bench.drained()
        bench.stage.cluster.pause(1)
        bench.consumer.assign([P0, P1])
        found, took = await bench.took(waiting, enabling)
        assert found == outcome
        assert took < SOON
        bench.stage.cluster.go_on(1)
        await bench.of(bench.consumer.close())

    bench.run(program())


@pytest.mark.parametrize("enabling", ENABLING[:8], ids=lambda e: e.name.replace(" ", "-"))
@pytest.mark.parametrize("host", HOSTS)
def test_no_wake_up_is_lost_at_any_event(
    host: str, enabling: Enabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each n, the call that makes records available follows the simulation's n-th event."""
    for n in range(100):
        with monkeypatch.context() as patch:
            if not _called_after_event(Bench(host), enabling, n, patch):
                break
    assert 0 < n < 99


def _called_after_event(
    bench: Bench, enabling: Enabling, n: int, patch: pytest.MonkeyPatch
) -> bool:
    """Make the call after the n-th event; return whether there were n events during the wait."""
    left, at, fire = n, list[float](), VirtualTime.fire_next

    def fire_next(time: VirtualTime) -> None:
        nonlocal left
        fire(time)
        if left == 0:
            at.append(time.now)
            _at_once(enabling.call(bench))
        left -= 1

    async def program() -> bool:
        await enabling.begin(bench)
        bench.world.after(0.5, lambda: None)  # so that an event occurs while the loop waits
        patch.setattr(VirtualTime, "fire_next", fire_next)
        deadline = bench.world.now + TIMEOUT
        found = await poll(bench)
        patch.undo()
        waited = bool(at) and at[0] < deadline  # otherwise the call was made at the timeout
        if waited:
            assert found == enabling.first
            assert bench.world.now - at[0] < SOON, f"event {n}"
        await bench.of(bench.consumer.close())
        return waited

    return bool(bench.run(program()))
