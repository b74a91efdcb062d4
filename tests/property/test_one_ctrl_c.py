"""R-HO-1: one Ctrl-C at any place of a call where CPython looks for signals, in the simulation.

Only what callers carry out is interrupted: the facades, their calls, callbacks. Elsewhere, and at
each bytecode: `test_interruptions`.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.property.interrupting import OURS, At, Interruption

from odradek import Consumer, Producer, TopicPartition
from odradek.network.engine import Engine
from odradek.testing.simulated import KafkaSimulation

CALLERS = ("/api/", "/clients/calls/")
AND = ("/caller.py", "/one_reader.py", "/pending_callbacks.py")


@cache
def looks(code: CodeType) -> frozenset[int]:
    """After a call, and at a jump back."""
    found, before = set(), ""
    for instruction in dis.get_instructions(code):
        if before in ("CALL", "CALL_FUNCTION_EX") or instruction.opname == "JUMP_BACKWARD":
            found.add(instruction.offset)
        before = instruction.opname
    return frozenset(found)


def in_step(frame: FrameType | None) -> bool:
    """What the engine calls: in a simulation it shares the caller's thread."""
    while frame is not None and frame.f_code is not Engine.step.__code__:
        frame = frame.f_back
    return frame is not None


class CtrlC(At):
    """Comes at the n-th of these places."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename.removeprefix(OURS)
        if event == "opcode" and frame.f_lasti not in looks(frame.f_code):
            return self
        if (name.startswith(CALLERS) or name.endswith(AND)) and not in_step(frame):
            return super().__call__(frame, event, argument)
        return self if name != frame.f_code.co_filename else None


def each(
    action: Callable[[Any], object], scene: Callable[[KafkaSimulation], Any]
) -> Iterator[tuple[Any, str]]:
    """The client after a Ctrl-C at each place in turn; ends where the action came to its end."""
    number = 0
    while True:
        with KafkaSimulation(seed=3) as simulation:
            simulation.create_topic("t", partitions=1)
            client = scene(simulation)
            with CtrlC(number) as ctrl_c:
                try:
                    action(client)
                except Interruption:
                    pass
                else:
                    return
            yield client, ctrl_c.where
        number += 1


def sending(simulation: KafkaSimulation) -> Producer:
    producer = simulation.producer()
    producer.send("t", b"0").result()
    producer.send("t", b"1")
    return producer


def in_transaction(simulation: KafkaSimulation) -> Producer:
    producer = simulation.producer({"transactional.id": "x"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    return producer


def in_group(simulation: KafkaSimulation) -> Consumer:
    consumer = simulation.consumer({"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"], on_revoked=lambda *_: None)
    while not consumer._engine.subscription.partitions:
        consumer.poll(0.5)
    return consumer


@pytest.mark.parametrize(("scene", "most"), [(sending, 9), (in_transaction, 9), (in_group, 7)])
def test_close_closes(scene: Callable[[KafkaSimulation], Any], most: int) -> None:
    """But where it comes before anything was begun; and again it closes in any case."""
    places, left_open = 0, []
    for client, where in each(lambda client: client.close(), scene):
        places += 1
        assert client._host.surfacing, where
        if not (client._closed and client._host.closed):
            left_open.append(where)
        client.close()
        assert client._closed, where
        assert client._host.closed, where
    assert places > 50
    assert len(left_open) <= most, left_open


def reading(simulation: KafkaSimulation) -> Consumer:
    producer = simulation.producer()
    for number in range(20):
        producer.send("t", str(number).encode())
    producer.flush()
    consumer = simulation.consumer({"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0)])
    return consumer


def test_poll_loses_a_list_at_one_place_alone() -> None:
    """Where `handed_over` has ended, and the list isn't the caller's yet."""
    lost = []
    for consumer, where in each(lambda consumer: consumer.poll(1.0, 7), reading):
        offsets = [record.offset for record in consumer.poll(1.0)]
        if offsets != list(range(20)):
            assert offsets == list(range(7, 20)), where
            lost.append(where)
    assert [where.split(":")[0] for where in lost] == ["Consumer.poll"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("thinks_again", [False, True])
def test_who_subscribes_after_an_interrupted_unsubscribe_is_told_and_is_a_member(
    protocol: str, thinks_again: bool
) -> None:
    holds: list[str] = []
    calls: dict[str, Any] = {
        "on_assigned": lambda _, partitions: holds.extend(map(str, partitions)),
        "on_revoked": lambda _, partitions: list(map(holds.remove, map(str, partitions))),
    }

    def reads(simulation: KafkaSimulation) -> Consumer:
        holds.clear()
        producer = simulation.producer()
        for number in range(4):
            producer.send("t", str(number).encode())
        producer.flush()
        config = {"group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = simulation.consumer(config)
        consumer.subscribe(["t"], **calls)
        read(consumer, 2)
        return consumer

    def read(consumer: Consumer, number: int) -> list[int]:
        found: list[int] = []
        for _ in range(60):
            found += [int(r.value or b"") for r in consumer.poll(1.0, number - len(found))]
            if len(found) == number:
                break
        return found

    places = 0
    for consumer, where in each(lambda consumer: consumer.unsubscribe(), reads):
        places += 1
        consumer.subscribe(["t"], **calls)
        if thinks_again:
            consumer.unsubscribe()
            assert not consumer.subscription(), where
            assert not consumer.assignment(), where
            consumer.subscribe(["t"], **calls)
        assert consumer.subscription() == {"t"}, where
        assert read(consumer, 2) in ([2, 3], [0, 1]), where
        assert holds == ["t-0"] or where.startswith("_with_consumer"), where  # amid on_revoked
        assert consumer.group_metadata().member_id, where
        assert [o.offset for o in consumer.commit().values()] in ([4], [2]), where
    assert places > 50
