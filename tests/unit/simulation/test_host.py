"""The simulated I/O host: how it carries out an engine's effects, and when it runs the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.common.types import Address
from odradek.network.effects import (
    Call,
    Close,
    Effect,
    IncomingResponse,
    Open,
    OutgoingRequest,
    Resolve,
    Send,
)
from odradek.network.flow import Completion
from odradek.network.frame import FrameReader
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.simulation import SimulatedCluster, SimulatedHost, StuckError, World
from odradek.simulation.world import step_count

BROKER = Address("10.0.0.2", 9092)


class ScriptedEngine:
    """An engine that records its inputs and steps; tests set its effects and deadlines."""

    def __init__(self) -> None:
        self.effects: deque[Effect] = deque()
        self.seen: list[tuple[Any, ...]] = []
        self.steps: list[float] = []
        self.deadline: Callable[[float], float | None] = lambda now: None
        self.on_step: Callable[[float], None] = lambda now: None
        self.inputs: list[object] = []
        self.reader = FrameReader()

    def hosted(self, from_outside: object) -> None:
        raise AssertionError("nothing interrupts a simulated host")

    def _note(self, *what: Any) -> None:
        self.seen.append(what)
        self.inputs.append(what)

    def step(self, now: float) -> float | None:
        self.inputs.clear()
        self.steps.append(now)
        self.on_step(now)
        return self.deadline(now)

    def connected(self, connection: int) -> None:
        self._note("connected", connection)

    def disconnected(self, connection: int, error: BaseException | str | None) -> None:
        self._note("disconnected", connection, error)

    def get_buffer(self, connection: int) -> memoryview:
        return self.reader.get_buffer()

    def buffer_updated(self, connection: int, count: int) -> None:
        for frame in self.reader.buffer_updated(count):
            self._note("frame", connection, bytes(frame[:4]))

    def received(self, connection: int, response: IncomingResponse) -> None:
        self._note("received", connection, response.correlation_id)

    def sent(self, connection: int, correlation_id: int) -> None:
        self._note("sent", connection, correlation_id)

    def not_sent(self, connection: int, correlation_id: int, error: BaseException) -> None:
        self._note("not_sent", connection, correlation_id)

    def writable(self, connection: int, ready: bool) -> None:
        self._note("writable", connection, ready)

    def resolved(self, token: int, result: Sequence[str] | BaseException) -> None:
        self._note("resolved", token, result)

    def called(self, token: int, result: Any, error: BaseException | None) -> None:
        self._note("called", token, result, error)


@pytest.fixture
def world() -> World:
    return World(3)


def attached(world: World, **how: Any) -> tuple[SimulatedHost, ScriptedEngine]:
    made = world.host("client", **how)
    assert isinstance(made, SimulatedHost)
    engine = ScriptedEngine()
    made.attach(engine)
    return made, engine


def do(world: World, made: SimulatedHost, engine: ScriptedEngine, *effects: Effect) -> None:
    engine.effects.extend(effects)
    made.wake()
    world.advance(0.1)


def request(number: int) -> Send:
    return Send(1, OutgoingRequest(DescribeClusterRequest(), 2, number, "me"))


@pytest.mark.parametrize(
    ("mode", "answer"), [("bytes", ("frame", 1, b"\0\0\0\7")), ("messages", ("received", 1, 7))]
)
def test_a_connection_is_opened_used_and_closed(world: World, mode: Any, answer: Any) -> None:
    cluster = SimulatedCluster(world, 1)
    made, engine = attached(world, mode=mode)
    do(world, made, engine, Open(1, BROKER, BROKER.host))
    do(world, made, engine, request(7))
    assert engine.seen == [("connected", 1), answer]
    do(world, made, engine, request(8), Close(1, "enough"))
    assert engine.seen == [("connected", 1), answer]
    assert not made.links
    assert not cluster.brokers[1].sessions


def test_refused_and_lost_connections_are_reported(world: World) -> None:
    cluster = SimulatedCluster(world, 1)
    made, engine = attached(world)
    do(world, made, engine, Open(1, BROKER, BROKER.host), Open(2, BROKER, "10.1.1.1"))
    cluster.crash(1)
    world.advance(0.1)
    assert sorted(engine.seen, key=str) == [
        ("connected", 1),
        ("disconnected", 1, None),
        ("disconnected", 2, "refused"),
    ]


def test_names_are_resolved_when_the_answer_arrives(world: World) -> None:
    made, engine = attached(world)
    world.dns["b"] = ["10.0.0.1"]
    world.dns_silent.add("c")
    world.at(0.001, lambda: world.dns.update(b=["10.0.0.9"]))
    do(world, made, engine, *(Resolve(n, name, 9092, 1.0) for n, name in enumerate("abc")))
    assert isinstance(engine.seen[0][2], OSError)
    assert engine.seen[1:] == [("resolved", 1, ["10.0.0.9"])]
    assert world.lookups == {"a": 1, "b": 1, "c": 1}
    world.advance(1)  # a lookup without an answer ends at its deadline
    assert [(seen[1], type(seen[2])) for seen in engine.seen[2:]] == [(2, TimeoutError)]


def test_functions_called_for_the_engine_end_at_once_or_after_the_given_duration(
    world: World,
) -> None:
    made, engine = attached(world)
    made.worker_delay = 0.05

    def divide(a: int, b: int) -> float:
        return a / b

    do(world, made, engine, Call(1, divide, (4, 2), "worker", 9.0))
    do(world, made, engine, Call(2, divide, (1, 0), "caller", 9.0))
    assert engine.seen[0] == ("called", 1, 2.0, None)
    assert engine.seen[1][:3] == ("called", 2, None)
    assert isinstance(engine.seen[1][3], ZeroDivisionError)
    assert 0.05 in engine.steps


def test_the_host_runs_the_engine_exactly_at_the_engines_deadlines(world: World) -> None:
    made, engine = attached(world)
    due = [0.3, 1.7, 1.7000001, 40.0]
    engine.deadline = lambda now: next((d for d in due if d > now), None)
    made.wake()
    world.advance(100)
    assert engine.steps == [0.0, *due]
    assert made.timed_steps == len(due)  # `wake` requested the first step


def test_the_engine_is_not_run_at_a_deadline_that_was_postponed(world: World) -> None:
    made, engine = attached(world)
    deadlines = iter([1.0, 5.0, None])
    engine.deadline = lambda now: next(deadlines)
    made.wake()
    world.advance(0.5)
    made.wake()
    world.advance(10)
    assert engine.steps == [0.0, 0.5, 5.0]


def test_run_returns_when_its_result_is_complete_or_at_the_deadline(world: World) -> None:
    made, _ = attached(world)
    completion: Completion[int] = Completion()
    assert not made.run(completion, 2.5)
    assert world.now == 2.5
    world.after(1.0, lambda: completion.complete(4))
    assert made.run(completion, None)
    assert world.now == 3.5
    with pytest.raises(StuckError, match="can no longer happen"):
        made.run(Completion(), None)


def test_a_host_without_a_background_thread_runs_the_engine_only_inside_calls(world: World) -> None:
    made, engine = attached(world, background=False)
    engine.deadline = lambda now: 1.0 if now < 1.0 else None
    engine._note("anything")
    made.wake()
    world.advance(10)
    assert engine.steps == []
    made.drive()
    assert engine.steps == [10.0]
    engine.deadline = lambda now: 11.0 if now < 11.0 else None
    engine._note("anything")
    made.run(Completion(), 12.0)
    assert engine.steps == [10.0, 10.0, 11.0]


def test_deferred_actions_run_between_two_steps_of_the_engine(world: World) -> None:
    made, engine = attached(world)
    order: list[str] = []

    def on_step(now: float) -> None:
        if not order:
            made.defer(lambda: order.append("deferred"))
        order.append("step")

    engine.on_step = on_step
    made.wake()
    world.advance(0.1)
    assert order == ["step", "deferred", "step"]


def test_an_engine_that_requests_endless_steps_at_one_time_is_detected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_count, "STEPS_AT_ONCE", 50)
    made, engine = attached(world)
    engine.deadline = lambda now: now
    made.wake()
    with pytest.raises(StuckError, match="more than 50 steps"):
        world.advance(1)


def test_a_client_that_steps_too_often_is_reported_once_a_second(world: World) -> None:
    made, engine = attached(world)
    engine.deadline = lambda now: now + 0.0005 if now < 2.0 else None
    made.wake()
    world.advance(10)
    assert len(world.hot_loops) == 2
    assert world.hot_loops[0].startswith("client: 1002 steps in second 0")


def test_a_closed_host_opens_no_connection_and_runs_no_step(world: World) -> None:
    SimulatedCluster(world, 1)
    made, engine = attached(world)
    do(world, made, engine, Open(1, BROKER, BROKER.host))
    steps = len(engine.steps)
    engine.effects.append(Close(1, "closing"))
    made.close(world.now + 1)
    made.close(world.now + 1)
    engine._note("anything")
    made.wake()
    world.advance(10)
    assert len(engine.steps) == steps
    assert not made.links


def test_each_host_has_its_own_random_numbers_and_name() -> None:
    alone, crowded = World(9), World(9)
    crowded.host("other")
    assert alone.host("client").rng().random() == crowded.host("client").rng().random()
    assert crowded.host("client").name == "client-2"
    assert crowded.hosts["client-2"].wall_clock() == crowded.wall_clock()
