"""R-HO-1: one Ctrl-C at any place of a call where CPython looks for signals, in the simulation.

Only code that runs in the caller is interrupted: client classes, their calls, callbacks.
`test_interruptions` interrupts the other code too, and at each bytecode.
"""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.property.interrupting import OURS, At, Interruption
from tests.volume import PART, pairs, some

from odradek import Consumer, IllegalStateError, Producer, TopicPartition
from odradek.network.engine import Engine
from odradek.testing.simulated import KafkaSimulation

CALLERS = ("/api/", "/clients/calls/")
STEP = min(PART, 3)
"""In methods whose places hardly differ, only every n-th place is interrupted."""
AND = ("/caller.py", "/one_reader.py", "/pending_callbacks.py")


@cache
def looks(code: CodeType) -> frozenset[int]:
    """Return the bytecodes after calls and at jumps back, where CPython looks for signals."""
    found, before = set(), ""
    for instruction in dis.get_instructions(code):
        if before in ("CALL", "CALL_FUNCTION_EX") or instruction.opname == "JUMP_BACKWARD":
            found.add(instruction.offset)
        before = instruction.opname
    return frozenset(found)


def in_step(frame: FrameType | None) -> bool:
    """Return whether the frame is in an engine step: simulations run it in the caller's thread."""
    while frame is not None and frame.f_code is not Engine.step.__code__:
        frame = frame.f_back
    return frame is not None


class CtrlC(At):
    """A Ctrl-C at the n-th place where CPython looks for signals."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename.removeprefix(OURS)
        if event == "opcode" and frame.f_lasti not in looks(frame.f_code):
            return self
        if (name.startswith(CALLERS) or name.endswith(AND)) and not in_step(frame):
            return super().__call__(frame, event, argument)
        return self if name != frame.f_code.co_filename else None


def each(
    action: Callable[[Any], object], scene: Callable[[KafkaSimulation], Any], every: int = PART
) -> Iterator[tuple[Any, str]]:
    """Yield a client after a Ctrl-C at each n-th place of the action, until it ends first."""
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
        number += every


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
def test_an_interrupted_close_closes_the_client_or_can_be_repeated(
    scene: Callable[[KafkaSimulation], Any], most: int
) -> None:
    """Interrupt close(): it closes the client, or a second call does if it hadn't begun."""
    places, left_open = 0, []
    for client, where in each(lambda client: client.close(), scene):
        places += 1
        assert client._host.surfacing, where
        if not (client._closed and client._host.closed):
            left_open.append(where)
        client.close()
        assert client._closed, where
        assert client._host.closed, where
    assert places > 50 // PART
    assert len(left_open) <= most, left_open


def test_a_transaction_block_ends_its_transaction() -> None:
    """Interrupt a block: it aborts, or commits if its commit had begun; another block can begin."""
    notes: Counter[str] = Counter()
    simulations: list[KafkaSimulation] = []

    def scene(simulation: KafkaSimulation) -> Producer:
        simulations[:] = [simulation]
        producer = simulation.producer({"transactional.id": "x"})
        producer.init_transactions()
        return producer

    def block(producer: Producer) -> None:
        try:
            with producer.transaction():
                producer.send("t", b"1")
        except Interruption as error:
            notes.update(getattr(error, "__notes__", ["none"]))
            raise

    for producer, where in each(block, scene, STEP):
        with producer.transaction():
            producer.send("t", b"3")
        found = simulations[0].values("t")
        assert found in ([b"3"], [b"1", b"3"]), where
    assert notes["Its commit had begun, so the transaction is committed."] >= 1, notes
    assert notes["none"] > 50 // STEP, notes


class Interrupting:
    """A method of the producer that is interrupted at the place `places[n]` in its n-th call."""

    def __init__(self, method: Callable[..., object], places: list[int]) -> None:
        self.method, self.places = method, places
        self.interrupted = 0

    def __call__(self, *arguments: object, **named: object) -> object:
        if not self.places:
            return self.method(*arguments, **named)
        with CtrlC(self.places.pop(0)):
            try:
                return self.method(*arguments, **named)
            except Interruption:
                self.interrupted += 1
                raise


@pytest.mark.parametrize("second", some(range(0, 24, 6), 2))
def test_a_transaction_can_begin_after_the_end_of_another_was_interrupted_twice(
    second: int,
) -> None:
    """Interrupt the first call at each place, and the call that waits for its end at `second`."""
    twice = 0
    for first in range(0, 200, STEP):
        with KafkaSimulation(seed=3) as simulation:
            simulation.create_topic("t", partitions=1)
            producer = simulation.producer({"transactional.id": "x"})
            producer.init_transactions()
            commit = Interrupting(producer.commit_transaction, [first, second])
            setattr(producer, "commit_transaction", commit)  # noqa: B010 - as mocks do
            try:
                with producer.transaction():
                    producer.send("t", b"1")
            except Interruption:
                pass
            twice += commit.interrupted == 2
            commit.places.clear()
            with producer.transaction():
                producer.send("t", b"3")
            assert simulation.values("t") in ([b"3"], [b"1", b"3"]), (first, second)
            if not commit.interrupted:
                break
    assert twice > 0


def after_an_interrupted_block(places: dict[str, list[int]], end: bool) -> tuple[int, list[Any]]:
    """Interrupt calls of a block whose body fails; return their number and the next block's state.

    `end`: another Ctrl-C is raised before the block can end what it has begun.
    """
    with KafkaSimulation(seed=3) as simulation:
        simulation.create_topic("t", partitions=1)
        producer = simulation.producer({"transactional.id": "x"})
        producer.init_transactions()
        calls = [Interrupting(getattr(producer, name), given) for name, given in places.items()]
        for name, call in zip(places, calls, strict=True):
            setattr(producer, name, call)
        original = producer._calls.end_block

        def end_block(*arguments: Any) -> Any:
            producer._calls.end_block = original  # type: ignore[method-assign]
            if end:
                raise Interruption
            return original(*arguments)

        producer._calls.end_block = end_block  # type: ignore[method-assign,assignment]
        with suppress(Interruption, ValueError), producer.transaction():
            producer.send("t", b"1")
            raise ValueError
        for call in calls:
            call.places.clear()
        with producer.transaction():
            producer.send("t", b"3")
        simulation.advance(1.0)  # the markers are written a moment after the response
        rows = simulation.cluster.log("t", 0).decided_rows()
        return sum(c.interrupted for c in calls), [r[4] for r in rows if r[4] is not None]


@pytest.mark.parametrize("call", ["begin_transaction", "abort_transaction"])
@pytest.mark.parametrize("end", [False, True])
def test_a_transaction_can_begin_after_a_block_that_could_not_end_its_own(
    call: str, end: bool
) -> None:
    """Interrupt the call at each place; with `end` also the call that ends the transaction."""
    for place in range(0, 200, STEP):
        interrupted, found = after_an_interrupted_block({call: [place]}, end)
        assert found == [b"3"], place
        if not interrupted:
            break
    assert place > 20 or end


def test_a_block_rejected_by_an_open_transaction_does_not_end_that_transaction() -> None:
    """Try to enter a block while a transaction is open: that transaction can still commit."""
    with KafkaSimulation(seed=3) as simulation:
        simulation.create_topic("t", partitions=1)
        producer = simulation.producer({"transactional.id": "x"})
        producer.init_transactions()
        with pytest.raises(Interruption), producer.transaction():
            raise Interruption
        producer.begin_transaction()
        producer.send("t", b"1")
        for _ in range(2):
            refused = pytest.raises(IllegalStateError, match="a transaction is open")
            with refused, producer.transaction():
                raise AssertionError
        producer.commit_transaction()
        assert simulation.values("t") == [b"1"]


def reading(simulation: KafkaSimulation) -> Consumer:
    producer = simulation.producer()
    for number in range(20):
        producer.send("t", str(number).encode())
    producer.flush()
    consumer = simulation.consumer({"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0)])
    return consumer


def test_an_interrupted_poll_can_lose_records_at_one_place_only() -> None:
    """Check that records are lost only after `handed_over`, before the caller has the list."""
    lost = []
    for consumer, where in each(lambda consumer: consumer.poll(1.0, 7), reading, 1):
        offsets = [record.offset for record in consumer.poll(1.0)]
        if offsets != list(range(20)):
            assert offsets == list(range(7, 20)), where
            lost.append(where)
    assert [where.split(":")[0] for where in lost] == ["Consumer.poll"]


class Member:
    """A member that has read two of four records; callbacks update its partitions in `holds`."""

    def __init__(self, protocol: str) -> None:
        self.holds: list[str] = []
        self.config = {"group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        self.calls: dict[str, Any] = {
            "on_assigned": lambda _, partitions: self.holds.extend(map(str, partitions)),
            "on_revoked": lambda _, partitions: list(map(self.holds.remove, map(str, partitions))),
        }

    def scene(self, simulation: KafkaSimulation) -> Consumer:
        self.holds.clear()
        self.simulation = simulation
        simulation.produce("t", [b"0", b"1", b"2", b"3"])
        consumer = simulation.consumer(self.config)
        consumer.subscribe(["t"], **self.calls)
        self.read(consumer)
        return consumer

    def read(self, consumer: Consumer) -> list[int]:
        """Read two records."""
        found: list[int] = []
        for _ in range(60):
            found += [int(r.value or b"") for r in consumer.poll(1.0, 2 - len(found))]
            if len(found) == 2:
                break
        return found


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.mark.parametrize(
    ("protocol", "thinks_again"), pairs(["classic", "consumer"], [False, True])
)
def test_a_subscription_after_an_interrupted_unsubscribe_joins_and_calls_callbacks(
    protocol: str, thinks_again: bool
) -> None:
    member = Member(protocol)
    places = 0
    for consumer, where in each(lambda consumer: consumer.unsubscribe(), member.scene):
        places += 1
        consumer.subscribe(["t"], **member.calls)
        if thinks_again:
            consumer.unsubscribe()
            assert not consumer.subscription(), where
            assert not consumer.assignment(), where
            consumer.subscribe(["t"], **member.calls)
        assert consumer.subscription() == {"t"}, where
        assert member.read(consumer) in ([2, 3], [0, 1]), where
        amid_on_revoked = where.startswith("_with_consumer")
        assert member.holds == ["t-0"] or amid_on_revoked, where
        assert consumer.group_metadata().member_id, where
        assert [o.offset for o in consumer.commit().values()] in ([4], [2]), where
    assert places > 50 // PART


@PROTOCOLS
def test_an_assignment_after_an_interrupted_unsubscribe_is_kept(protocol: str) -> None:
    member = Member(protocol)
    refused = 0
    for consumer, where in each(lambda consumer: consumer.unsubscribe(), member.scene):
        try:
            consumer.assign([TopicPartition("t", 0)])
        except IllegalStateError:
            refused += 1
            consumer.unsubscribe()
            consumer.assign([TopicPartition("t", 0)])
        member.simulation.advance(10)
        assert member.read(consumer) in ([2, 3], [0, 1]), where
    assert refused > 50 // PART


@PROTOCOLS
def test_a_second_close_that_takes_longer_than_the_first_ends_the_subscription(
    protocol: str,
) -> None:
    """Silence the brokers during both calls; the second call also waits for a commit."""
    member, brokers, quiet = Member(protocol), (1, 2, 3), 0

    def leave(consumer: Consumer) -> None:
        for broker in brokers:
            member.simulation.pause(broker)
        consumer.unsubscribe(timeout=4)

    for consumer, where in each(leave, member.scene):
        consumer.subscribe(["t"], **member.calls)
        consumer.commit_async({TopicPartition("t", 0): 2})
        member.simulation.advance(1)
        consumer.unsubscribe(timeout=8)
        for broker in brokers:
            member.simulation.resume(broker)
        member.simulation.advance(15)
        quiet += 1
        assert not consumer.subscription(), where
        consumer.assign([TopicPartition("t", 0)])
        assert member.read(consumer) in ([2, 3], [0, 1]), where
    assert quiet > 50 // PART
