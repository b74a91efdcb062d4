"""The asyncio host that ships, in simulated worlds: it leaves the trace of the simulated host,
times included, whatever the brokers do; and where its kernel gives and takes bytes bit by bit, and
timers ring early, it keeps every rule.

What may differ, and nothing else: after a process was stopped (`freeze`), what came meanwhile is
read socket by socket, where the simulated host has it in the order in which it came. So traces are
compared up to the first time that one goes on. Times are compared to a nanosecond: a loop plans by
`call_later`, whose sum may be off in the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.test_async_same_trace import PROGRAMS, Program
from tests.simulation.test_explore import tell
from tests.volume import WHOLE, pairs, some

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World, assert_same
from odradek.simulation.runs.explore import explore, run_schedule
from odradek.simulation.runs.random_schedules import FAMILIES, Family, random_schedule
from odradek.simulation.runs.schedule import Schedule
from odradek.testing.virtual.world_host import MoodyAsyncioHost, WorldAsyncioHost

COSTLY = ("groups", "read-process-write")
SEEDS = int(os.environ.get("ODRADEK_ASYNCIO_SEEDS", 100 if WHOLE else 2))
"""Schedules of each family; more find more."""


def timed(lines: list[str]) -> list[str]:
    """Lines whose times are cut to nanoseconds."""
    found = []
    for line in lines:
        at, _, rest = line.partition(" ")
        found.append(f"{float(at):.9f} {rest}" if at.replace(".", "").isdecimal() else line)
    return found


def comparable(schedule: Schedule, trace: tuple[str, ...]) -> list[str]:
    """Up to the first time that a stopped process goes on."""
    ends = [f.at + f.arguments["seconds"] for f in schedule.faults if f.verb == "freeze"]
    lines = timed(list(trace))
    return [line for line in lines if float(line.split(" ")[0]) < min(ends, default=float("inf"))]


def compare(schedule: Schedule) -> int:
    """Run a schedule on both hosts; how many lines are the same."""
    simulated = run_schedule(schedule, mode="bytes", trace=True)
    real = run_schedule(schedule, hosts=WorldAsyncioHost, trace=True)
    assert real.violation == simulated.violation is None
    names = ("simulated", f"asyncio, seed {schedule.seed}")
    lines = comparable(schedule, real.trace)
    assert_same(comparable(schedule, simulated.trace), lines, names)
    return len(lines)


@pytest.mark.parametrize("family", FAMILIES)
def test_schedules_leave_the_trace_of_the_simulated_host(family: Family) -> None:
    seeds = max(1, SEEDS // 4) if family in COSTLY else SEEDS
    lines = [compare(random_schedule(seed, family=family)) for seed in range(seeds)]
    assert sum(lines) > 20 * seeds


@pytest.mark.long
def test_so_do_long_schedules() -> None:
    for seed in range(max(1, SEEDS // 10)):
        assert compare(random_schedule(seed, short=False)) > 50


@pytest.mark.parametrize(("program", "awaited"), pairs(PROGRAMS, [True, False]))
def test_programs_leave_it_over_both_facades(
    program: Callable[[Program], Coroutine[Any, Any, None]], awaited: bool
) -> None:
    for seed in some((1, 2), 1):
        simulated = Program(awaited=False, mode="bytes", seed=seed)
        real = Program(awaited=awaited, mode="bytes", seed=seed)
        real.world.make_host = WorldAsyncioHost
        lines = real.run(program)
        assert isinstance(next(iter(real.world.hosts.values())), WorldAsyncioHost)
        assert_same(timed(simulated.run(program)), timed(lines), ("simulated", "asyncio"))


@pytest.mark.parametrize("family", [None, *(f for f in FAMILIES if f in ("misled", *COSTLY))])
def test_a_moody_kernel_breaks_no_rule(family: Family | None) -> None:
    seeds = max(1, SEEDS // 4) if family in COSTLY else 2 * SEEDS
    for outcome in explore(range(seeds), family=family, hosts=MoodyAsyncioHost):
        assert outcome.ok, tell(outcome, short=True)


def producing(seed: int) -> tuple[World, SimulatedCluster, WorldAsyncioHost, Producer]:
    """A producer that has a connection to each of three brokers."""
    world = World(seed)
    world.make_host = WorldAsyncioHost
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", 3)
    host = world.host("producer")
    assert isinstance(host, WorldAsyncioHost)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    producer = on_host(host, Producer, {**config, "request.timeout.ms": 2000})
    for partition in range(3):
        producer.send("t", b"first", partition=partition).result(5)
    return world, cluster, host, producer


def test_answers_that_wait_in_sockets_are_not_overdue_where_the_loop_was_held_up() -> None:
    for seed in range(5):
        world, cluster, host, producer = producing(seed)
        futures = [producer.send("t", b"second", partition=p) for p in range(3)]
        world.advance(0.0001)
        host.freeze()
        world.advance(10.0)
        assert [len(cluster.records("t", p)) for p in range(3)] == [2, 2, 2]
        before = len(host.trace.events)
        host.freeze(False)
        world.advance(0.0001)
        assert [future.result(0).offset for future in futures] == [1, 1, 1]
        kinds = {event.kind for event in host.trace.events[before:]}
        assert not kinds & {"disconnected", "retry", "silent", "dial_failed"}
        producer.close()


def test_a_loop_that_counts_in_milliseconds_turns_in_no_circles() -> None:
    """uvloop takes less than half of one for none, and rings at once."""
    world = World(4, hosts=MoodyAsyncioHost)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", 1)
    host = world.host("producer")
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5}
    producer = on_host(host, Producer, config)
    for _ in range(100):
        producer.send("t", b"x").result(5)
    assert host.steps < 1_500  # 2,783 where it asked again and again
    producer.close()


def test_pieces_of_a_large_answer_cost_no_step_each() -> None:
    world = World(4, hosts=MoodyAsyncioHost)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", 1)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = on_host(world.host("producer"), Producer, {**config, "linger.ms": 0})
    for _ in range(10):
        producer.send("t", b"x" * 900_000).result(5)
    host = world.host("consumer")
    large = {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": 8 << 20}
    consumer = on_host(host, Consumer, {**config, **large})
    consumer.assign([TopicPartition("t", 0)])
    found = 0
    while found < 10:
        found += len(consumer.poll(5))
    assert host.steps < 40  # 75 where each piece was a reason
    consumer.close()
    producer.close()


def test_what_comes_in_while_a_client_writes_its_last_doesnt_end_that() -> None:
    """It was taken for a turn in which nothing could be written, and the rest was dropped."""
    world, cluster, host, producer = producing(1)
    for line in host.lines.values():
        line.socket.choke()
    futures = [producer.send("t", b"second", partition=p) for p in range(3)]
    world.advance(0.01)
    for broker in cluster.brokers.values():
        broker.disconnect_all()
    engine = producer._calls.engine
    engine.shut()
    steps, at = world.time.fired, world.now
    host.close(world.now + 5.0)
    assert world.now - at > 0.49  # nothing went on for so long
    assert world.time.fired - steps < 1_000
    assert len(futures) == 3
