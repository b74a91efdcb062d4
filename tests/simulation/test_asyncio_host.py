"""The asyncio I/O host produces the same trace as the simulated I/O host, for the same seed.

Clients also keep every rule if the kernel splits reads and writes and fires timers early. Traces
are compared until a stopped process (`freeze`) resumes: the asyncio host then reads its sockets one
after the other, whereas the simulated host keeps the order of arrival. Times are compared to a
nanosecond, as `call_later` adds floats.
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
"""Number of schedules per family."""


def timed(lines: list[str]) -> list[str]:
    """Return the lines with times that are truncated to nanoseconds."""
    found = []
    for line in lines:
        at, _, rest = line.partition(" ")
        found.append(f"{float(at):.9f} {rest}" if at.replace(".", "").isdecimal() else line)
    return found


def comparable(schedule: Schedule, trace: tuple[str, ...]) -> list[str]:
    """Return the lines up to the first time that a stopped process resumes."""
    ends = [f.at + f.arguments["seconds"] for f in schedule.faults if f.verb == "freeze"]
    lines = timed(list(trace))
    return [line for line in lines if float(line.split(" ")[0]) < min(ends, default=float("inf"))]


def compare(schedule: Schedule) -> int:
    """Run a schedule on both I/O hosts; return the number of equal lines."""
    simulated = run_schedule(schedule, mode="bytes", trace=True)
    real = run_schedule(schedule, hosts=WorldAsyncioHost, trace=True)
    assert real.violation == simulated.violation is None
    names = ("simulated", f"asyncio, seed {schedule.seed}")
    lines = comparable(schedule, real.trace)
    assert_same(comparable(schedule, simulated.trace), lines, names)
    return len(lines)


@pytest.mark.parametrize("family", FAMILIES)
def test_schedules_produce_the_same_trace_on_both_hosts(family: Family) -> None:
    seeds = max(1, SEEDS // 4) if family in COSTLY else SEEDS
    lines = [compare(random_schedule(seed, family=family)) for seed in range(seeds)]
    assert sum(lines) > 20 * seeds


@pytest.mark.long
def test_long_schedules_produce_the_same_trace_on_both_hosts() -> None:
    for seed in range(max(1, SEEDS // 10)):
        assert compare(random_schedule(seed, short=False)) > 50


@pytest.mark.parametrize(("program", "awaited"), pairs(PROGRAMS, [True, False]))
def test_sync_and_asyncio_programs_produce_the_same_trace_on_both_hosts(
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
def test_clients_keep_all_rules_if_reads_are_split_and_timers_fire_early(
    family: Family | None,
) -> None:
    seeds = max(1, SEEDS // 4) if family in COSTLY else 2 * SEEDS
    for outcome in explore(range(seeds), family=family, hosts=MoodyAsyncioHost):
        assert outcome.ok, tell(outcome, short=True)


def producing(seed: int) -> tuple[World, SimulatedCluster, WorldAsyncioHost, Producer]:
    """Create a producer with a connection to each of three brokers."""
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


def test_buffered_responses_are_not_overdue_after_the_loop_was_blocked() -> None:
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


def test_a_loop_with_a_millisecond_clock_does_not_spin() -> None:
    """uvloop rounds a timer below 0.5 ms down to 0 and fires it immediately."""
    world = World(4, hosts=MoodyAsyncioHost)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", 1)
    host = world.host("producer")
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5}
    producer = on_host(host, Producer, config)
    for _ in range(100):
        producer.send("t", b"x").result(5)
    assert host.steps < 1_500  # 2,783 if timers fire early
    producer.close()


def test_chunks_of_a_large_response_are_handled_in_few_steps() -> None:
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
    assert host.steps < 40  # 75 if each chunk had its own step
    consumer.close()
    producer.close()


def test_bytes_received_during_the_final_flush_do_not_end_it() -> None:
    """A step that reads was once counted as unable to write, and the unsent bytes were dropped."""
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
    assert world.now - at > 0.49  # the flush waits about 0.5 s without progress
    assert world.time.fired - steps < 1_000
    assert len(futures) == 3
