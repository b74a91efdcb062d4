"""Calls of the asyncio clients are cancelled at each possible point.

The points are before and after each event, and between a result and the task that waits for it.
Afterwards the client is usable, no record that wasn't returned is lost, and `close()` ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import iscoroutinefunction, unwrap
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.test_admin_async import CALLS
from tests.volume import PART, some

from odradek import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncWorkers,
    IllegalStateError,
    KafkaError,
    NewTopic,
    TopicPartition,
)
from odradek.simulation import World
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver
from odradek.testing import KafkaSimulation, VirtualLoop

RECORDS = 60
PARTITIONS = [TopicPartition("in", 0), TopicPartition("in", 1)]
PATIENCE = 60.0
MOST_POINTS = 2_000
EACH, TWICE_EACH = PART, 4 * min(PART, 18)
"""Only each n-th point of a call is tried, to save time."""


class CancellingLoop(VirtualLoop):
    """An event loop that counts the points where a task can be cancelled, and cancels it."""

    victim: asyncio.Task[Any] | None = None
    at: tuple[int, ...] = ()
    points = 0
    took_effect = False
    ends: asyncio.Future[None] | None = None
    """A future that is completed at the point, instead of cancelling the task."""

    def __init__(self, world: World) -> None:
        super().__init__(world, limit=1000.0)
        self.complaints: list[dict[str, Any]] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.complaints.append(context)

    def aim(self, victim: asyncio.Task[Any], at: tuple[int, ...]) -> None:
        self.victim, self.at, self.points = victim, at, 0

    def _point(self) -> None:
        if self.victim is not None and not self.victim.done():
            self.points += 1
            if self.points in self.at:
                if self.ends is None:
                    self.took_effect |= self.victim.cancel()
                elif not self.ends.done():
                    self.took_effect = True
                    self.ends.set_result(None)

    def _next_timer(self) -> float:  # before each simulated event
        self._point()
        return super()._next_timer()

    def _process_events(self, event_list: object) -> None:  # after events, before tasks continue
        self._point()


@dataclass
class Scene:
    """Clients, and the records they have returned."""

    simulation: KafkaSimulation
    options: dict[str, Any]
    read: list[tuple[int, int]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = {"bootstrap.servers": self.simulation.bootstrap_servers}
        group: dict[str, Any] = {
            "group_id": "g",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }
        reading = {k: v for k, v in self.options.items() if k == "group_protocol"}
        writing = {k: v for k, v in self.options.items() if k not in reading}
        self.consumer = AsyncConsumer(config, max_poll_records=25, **group | reading)
        self.admin = AsyncAdmin(config)
        self.producer = AsyncProducer(config, linger_ms=2, **writing)

    def keep(self, records: list[Any]) -> None:
        self.read += [(record.partition, record.offset) for record in records]

    async def send(self, count: int = 3) -> list[Any]:
        deliveries = []
        for _ in range(count):
            self.sent.append(b"%d" % len(self.sent))
            deliveries.append(await self.producer.send("out", self.sent[-1], partition=0))
        return deliveries

    @property
    def written(self) -> list[bytes | None]:
        return self.simulation.values("out")

    # Checks after the call

    async def read_on(self, *, doubled: bool = False) -> None:
        """Read the remaining records: each once, or at least once if positions were lost."""
        if not self.consumer.assignment() and not self.consumer.subscription():
            await self.consumer.subscribe(["in"])
        end = self.simulation.now + PATIENCE
        while len(set(self.read)) < RECORDS and self.simulation.now < end:
            self.keep(await self.consumer.poll(1.0))
        expected = {(tp.partition, offset) for tp in PARTITIONS for offset in range(RECORDS // 2)}
        assert set(self.read) == expected
        if not doubled:
            assert len(self.read) == RECORDS
            for tp in PARTITIONS:
                offsets = [offset for partition, offset in self.read if partition == tp.partition]
                assert offsets == sorted(offsets)
        if self.consumer.subscription():
            await self.consumer.commit(timeout=PATIENCE)

    async def write_on(self) -> None:
        """Check that no record was written twice, and that later ones are written."""
        later = await self.send()
        assert await self.producer.flush(PATIENCE) == 0
        assert [delivery.done() for delivery in later] == [True] * 3
        counts = Counter(self.written)
        assert max(counts.values()) == 1
        assert set(self.sent[-3:]) <= set(counts) <= set(self.sent)

    async def ask_on(self) -> None:
        assert "in" in await self.admin.list_topics(PATIENCE)

    async def close(self) -> None:
        for client in (self.consumer, self.producer, self.admin):
            begin = self.simulation.now
            await client.close(5.0)
            assert self.simulation.now - begin <= 5.1
            with pytest.raises(KafkaError, match="closed"):
                await client.cluster_id()


Action = Callable[[Scene], Awaitable[Any]]


@dataclass
class Case:
    """A call, the actions before it, and the check after it."""

    call: Action
    before: Action | None = None
    after: Action = Scene.ask_on
    options: dict[str, Any] = field(default_factory=dict)


async def run(case: Case, scene: Scene, at: tuple[int, ...], *, trouble: bool) -> bool:
    """Cancel the call at some points; return whether it had ended before."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CancellingLoop)
    if case.before is not None:
        await case.before(scene)

    async def called() -> None:
        await case.call(scene)

    if trouble:
        for broker in scene.simulation.brokers:
            scene.simulation.bounce(broker, after=1.0)
    victim = asyncio.create_task(called())
    loop.aim(victim, at)
    await asyncio.wait([victim])
    loop.victim = None
    assert victim.cancelled() == loop.took_effect, victim
    if not loop.took_effect:
        victim.result()
    await case.after(scene)
    await scene.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert others == set()
    return not loop.took_effect


def cancelled_at(case: Case, *at: int, trouble: bool = False) -> bool:
    with KafkaSimulation(brokers=2, seed=at[0]) as simulation:
        simulation.create_topic("in", partitions=2)
        simulation.create_topic("out", partitions=1)
        for partition in range(2):
            rows = [b"%d" % n for n in range(RECORDS // 2)]
            simulation.produce("in", rows, partition=partition)

        async def main() -> bool:
            return await run(case, Scene(simulation, case.options), at, trouble=trouble)

        loop = CancellingLoop(simulation.world)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            through = runner.run(main())
        assert loop.complaints == []
        assert simulation.world.hot_loops == []
    simulation.verify()
    return through


def loop_ended_at(case: Case, at: int) -> bool:
    """End the loop at a point during the call; return whether the call had ended before."""
    with KafkaSimulation(brokers=2, seed=at) as simulation:
        simulation.create_topic("in", partitions=2)
        simulation.create_topic("out", partitions=1)
        scenes: list[Scene] = []
        simulation.produce("in", [b"%d" % n for n in range(RECORDS)])

        async def main() -> bool:
            scene = Scene(simulation, case.options)
            scenes.append(scene)
            if case.before is not None:
                await case.before(scene)
            loop.ends = loop.create_future()

            async def called() -> None:
                await case.call(scene)

            victim = asyncio.create_task(called())
            loop.aim(victim, (at,))
            await asyncio.wait([victim, loop.ends], return_when=asyncio.FIRST_COMPLETED)
            return not loop.took_effect

        loop = CancellingLoop(simulation.world)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            through = runner.run(main())
        for client in (scenes[0].consumer, scenes[0].producer, scenes[0].admin):
            with suppress(IllegalStateError):  # remaining records need the client's own loop
                asyncio.run(client.close())
            asyncio.run(client.close())  # in a new loop: the client's is closed
            assert "closed" in repr(client)
        assert loop.complaints == []
        del scenes[:]
        gc.collect()  # leaked objects would cause a warning
    simulation.verify()
    return through


# Actions before the call


async def assign(scene: Scene) -> None:
    scene.consumer.assign(PARTITIONS)


async def subscribe(scene: Scene) -> None:
    await scene.consumer.subscribe(["in"])


async def first_poll(scene: Scene) -> None:
    await subscribe(scene)
    while not scene.read:
        scene.keep(await scene.consumer.poll(5.0))


async def committed_poll(scene: Scene) -> None:
    await first_poll(scene)
    await scene.consumer.commit()


async def sent(scene: Scene) -> None:
    await scene.send()


async def initialised(scene: Scene) -> None:
    await scene.producer.init_transactions()


async def begun(scene: Scene) -> None:
    await initialised(scene)
    await scene.producer.begin_transaction()
    await scene.send()


async def begun_and_written(scene: Scene) -> None:
    await begun(scene)
    await scene.producer.flush()


async def begun_after_poll(scene: Scene) -> None:
    await first_poll(scene)
    await begun(scene)


# The calls


async def poll(scene: Scene) -> None:
    scene.keep(await scene.consumer.poll(5.0))


async def poll_arrow(scene: Scene) -> None:
    keep_batch(scene, await scene.consumer.poll_arrow(5.0))


def keep_batch(scene: Scene, batch: Any) -> None:
    if batch is not None:
        columns = (batch.column(name).to_pylist() for name in ("partition", "offset"))
        scene.read += zip(*columns, strict=True)


async def records(scene: Scene) -> None:
    async for record in scene.consumer.records(timeout=0.3):
        scene.keep([record])


async def records_with_pauses(scene: Scene) -> None:
    async for record in scene.consumer.records(timeout=0.3):
        scene.keep([record])
        if len(scene.read) % 20 == 0:
            await asyncio.sleep(0.01)


async def batches(scene: Scene) -> None:
    async for batch in scene.consumer.batches(timeout=0.3):
        keep_batch(scene, batch)


async def poll_with_callbacks(scene: Scene) -> None:
    async def slow(consumer: object, partitions: object) -> None:
        await asyncio.sleep(0.01)

    await scene.consumer.subscribe(["in"], on_assigned=slow, on_revoked=slow)
    await poll(scene)


async def many_deliveries(scene: Scene) -> None:
    await asyncio.gather(*await scene.send(10))


async def block(scene: Scene) -> None:
    async with scene.producer.transaction():
        await scene.send()
        await asyncio.sleep(0.005)


async def failing_block(scene: Scene) -> None:
    with suppress(ValueError):
        async with scene.producer.transaction():
            await asyncio.gather(*await scene.send())
            raise ValueError


async def send_without_room(scene: Scene) -> None:
    for _ in range(20):
        scene.sent.append(b"%d" % len(scene.sent))
        padding = {"padding": bytes(300)}
        await scene.producer.send("out", scene.sent[-1], headers=padding, partition=0)


async def send_and_wait(scene: Scene) -> None:
    scene.sent.append(b"w")
    await scene.producer.send_and_wait("out", b"w")


async def arrow(scene: Scene) -> None:
    import pyarrow as pa

    scene.sent += [b"a", b"b"]
    delivery = await scene.producer.send_arrow("out", pa.table({"value": [b"a", b"b"]}))
    await delivery


async def many(scene: Scene) -> None:
    scene.sent += [b"a", b"b"]
    await (await scene.producer.send_many("out", [b"a", b"b"]))


async def exit_of_a_block(scene: Scene) -> None:
    async with scene.consumer, scene.producer:
        await first_poll(scene)
        await scene.send()


# Checks after the call


async def read_on(scene: Scene) -> None:
    await scene.read_on()


async def read_again(scene: Scene) -> None:
    if not scene.consumer.subscription():
        await subscribe(scene)
    await scene.read_on(doubled=True)


async def write_on(scene: Scene) -> None:
    await scene.write_on()


async def transact_on(scene: Scene) -> None:
    """Check that the transaction is complete or absent, and run another one."""
    producer, before = scene.producer, list(scene.sent)
    with suppress(IllegalStateError):  # transactions are already initialized
        await producer.init_transactions(PATIENCE)
    with suppress(IllegalStateError):  # a commit has begun, and continues
        await producer.abort_transaction(PATIENCE)
    with suppress(IllegalStateError):  # no transaction is open
        await producer.commit_transaction(PATIENCE)
    await begin_on(scene, before)


async def block_on(scene: Scene) -> None:
    """Check that a cancelled transaction block has ended its transaction."""
    await begin_on(scene, list(scene.sent))


async def begin_on(scene: Scene, before: list[bytes]) -> None:
    async with scene.producer.transaction():
        await scene.send()
    values = set(scene.written)
    assert set(scene.sent[-3:]) <= values
    assert set(before) <= values or not set(before) & values


async def with_receiver(scene: Scene) -> None:
    """Enable telemetry on the brokers, so that they assign client ids."""
    scene.simulation.cluster.receive_telemetry(TelemetryReceiver())


CASES = {
    "poll, assigned": Case(poll, assign, read_on),
    "poll, joining": Case(poll, subscribe, read_on),
    "poll": Case(poll, first_poll, read_on),
    "poll with callbacks": Case(poll_with_callbacks, None, read_on),
    "poll, classic": Case(poll, subscribe, read_on, {"group_protocol": "classic"}),
    "poll, KIP-848": Case(poll, subscribe, read_on, {"group_protocol": "consumer"}),
    "records": Case(records, first_poll, read_on),
    "records with pauses": Case(records_with_pauses, assign, read_on),
    "poll_arrow": Case(poll_arrow, assign, read_on),
    "batches": Case(batches, first_poll, read_on),
    "subscribe": Case(subscribe, None, read_on),
    "subscribe again": Case(subscribe, first_poll, read_on),
    "unsubscribe": Case(lambda s: s.consumer.unsubscribe(), first_poll, read_again),
    "commit": Case(lambda s: s.consumer.commit(), first_poll, read_on),
    "commit_async": Case(lambda s: s.consumer.commit_async(), first_poll, read_on),
    "committed": Case(lambda s: s.consumer.committed(PARTITIONS), committed_poll, read_on),
    "seek_to_committed": Case(lambda s: s.consumer.seek_to_committed(), committed_poll, read_again),
    "position": Case(lambda s: s.consumer.position(PARTITIONS[0]), assign, read_on),
    "beginning_offsets": Case(lambda s: s.consumer.beginning_offsets(PARTITIONS), assign, read_on),
    "end_offsets": Case(lambda s: s.consumer.end_offsets(PARTITIONS), None, read_on),
    "offsets_for_times": Case(
        lambda s: s.consumer.offsets_for_times(dict.fromkeys(PARTITIONS, 0)), None, read_on
    ),
    "consumer.partitions_for": Case(lambda s: s.consumer.partitions_for("in"), None, read_on),
    "consumer.describe": Case(lambda s: s.consumer.describe(["in"]), None, read_on),
    "consumer.list_topics": Case(lambda s: s.consumer.list_topics(), None, read_on),
    "consumer.close": Case(lambda s: s.consumer.close(5.0), first_poll),
    "async with": Case(exit_of_a_block),
    "send": Case(sent, None, write_on),
    "send, without room": Case(send_without_room, None, write_on, {"buffer_memory": 1024}),
    "send_and_wait": Case(send_and_wait, None, write_on),
    "deliveries": Case(many_deliveries, None, write_on),
    "send_arrow": Case(arrow, None, write_on),
    "send_many": Case(many, None, write_on),
    "flush": Case(lambda s: s.producer.flush(), sent, write_on),
    "warm": Case(lambda s: s.producer.warm(["out"]), None, write_on),
    "producer.partitions_for": Case(lambda s: s.producer.partitions_for("out"), None, write_on),
    "producer.close": Case(lambda s: s.producer.close(5.0), sent),
    "init_transactions": Case(lambda s: s.producer.init_transactions(), None, transact_on),
    "transaction": Case(block, initialised, block_on),
    "transaction that fails": Case(failing_block, initialised, block_on),
    "transaction, with care": Case(block, initialised, transact_on),
    "begin_transaction": Case(lambda s: s.producer.begin_transaction(), initialised, transact_on),
    "commit_transaction": Case(lambda s: s.producer.commit_transaction(), begun, transact_on),
    "abort_transaction": Case(
        lambda s: s.producer.abort_transaction(), begun_and_written, transact_on
    ),
    "send_offsets_to_transaction": Case(
        lambda s: s.producer.send_offsets_to_transaction(
            {PARTITIONS[0]: 1}, s.consumer.group_metadata()
        ),
        begun_after_poll,
        transact_on,
    ),
    "committed_offsets": Case(
        lambda s: s.producer.committed_offsets("g"), initialised, transact_on
    ),
    "transactional close": Case(lambda s: s.producer.close(5.0), begun_and_written),
    "create_topics": Case(lambda s: s.admin.create_topics([NewTopic("new", 2)])),
    "delete_topics": Case(lambda s: s.admin.delete_topics(["out"])),
    "admin.list_topics": Case(lambda s: s.admin.list_topics()),
    "describe_topics": Case(lambda s: s.admin.describe_topics(["in"])),
    "describe_cluster": Case(lambda s: s.admin.describe_cluster()),
    "examine": Case(lambda s: s.admin.examine(["in"], "g")),
    "describe_api_versions": Case(lambda s: s.admin.describe_api_versions()),
    "describe_reachability": Case(lambda s: s.admin.describe_reachability()),
    "create_partitions": Case(lambda s: s.admin.create_partitions({"out": 9})),
    "list_offsets": Case(lambda s: s.admin.list_offsets(dict.fromkeys(PARTITIONS, "LATEST"))),
    "describe_consumer_groups": Case(lambda s: s.admin.describe_consumer_groups("g"), first_poll),
    "list_groups": Case(lambda s: s.admin.list_groups()),
    "cluster_id": Case(lambda s: s.admin.cluster_id()),
    "client_instance_id": Case(lambda s: s.admin.client_instance_id(), with_receiver),
    "admin.close": Case(lambda s: s.admin.close(5.0), lambda s: s.admin.list_topics(), write_on),
}


TROUBLED = (
    "poll, joining",
    "records",
    "commit",
    "consumer.close",
    "send_and_wait",
    "deliveries",
    "producer.close",
    "init_transactions",
    "transaction",
    "transaction that fails",
    "send_offsets_to_transaction",
    "commit_transaction",
    "create_topics",
    "describe_cluster",
)
ENDED = (
    "poll, joining",
    "records with pauses",
    "poll with callbacks",
    "commit",
    "consumer.close",
    "async with",
    "deliveries",
    "send, without room",
    "transaction",
    "commit_transaction",
    "create_topics",
)
TWICE = (
    "async with",
    "unsubscribe",
    "consumer.close",
    "producer.close",
    "transaction, with care",
    "transaction that fails",
    "workers",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable warnings: thousands of clients aren't closed in time."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def sweep(
    name: str,
    points: Iterable[tuple[int, ...]],
    *,
    cancelled: Callable[..., bool] = cancelled_at,
    **how: bool,
) -> int:
    """Try one point after another until the call ends before it; return that point."""
    case = Case(work, None, work_on) if name == "workers" else CASES[name]
    if case.after in (transact_on, block_on) or "transactional" in name:
        case.options["transactional_id"] = "tx"
    for at in points:
        try:
            if cancelled(case, *at, **how):
                return at[0]
        except BaseException as error:
            error.add_note(f"{name}, cancelled at {at}")
            raise
    pytest.fail(f"{name} has more points")


async def work(scene: Scene) -> None:
    async def one(record: Any) -> None:
        await asyncio.sleep(0.01)
        scene.keep([record])

    await AsyncWorkers(scene.consumer, one, drain_timeout=1.0).run("in", timeout=5.0)


async def work_on(scene: Scene) -> None:
    """Check that each record is processed at least once, and only finished ones are committed."""
    committed = await scene.consumer.committed(PARTITIONS)
    for tp, at in committed.items():
        finished = {offset for partition, offset in scene.read if partition == tp.partition}
        assert at is None or set(range(at.offset)) <= finished
    await work(scene)
    assert set(scene.read) == {(tp.partition, n) for tp in PARTITIONS for n in range(RECORDS // 2)}
    committed = await scene.consumer.committed(PARTITIONS)
    assert {at and at.offset for at in committed.values()} == {RECORDS // 2}


OTHER_QUESTIONS = {name for name, *_ in CALLS} - set(CASES)
"""Other admin calls, which choose brokers in the same ways as a call that has a case."""


def test_every_coroutine_method_of_the_asyncio_clients_has_a_case() -> None:
    text = Path(__file__).read_text()
    names = {
        name
        for facade in (AsyncProducer, AsyncConsumer, AsyncAdmin, AsyncWorkers)
        for name in dir(facade)
        if not name.startswith("_") and iscoroutinefunction(unwrap(getattr(facade, name)))
    }
    assert len(names) >= 30
    assert {n for n in names - OTHER_QUESTIONS if f".{n}(" not in text} == set()


@pytest.mark.parametrize("name", CASES if PART == 1 else [*CASES][1::2])
def test_clients_work_after_a_call_was_cancelled_at_any_point(name: str) -> None:
    assert sweep(name, ((at,) for at in range(1, MOST_POINTS, EACH))) > 2


def test_workers_can_be_cancelled_at_any_point() -> None:
    assert sweep("workers", ((at,) for at in range(1, MOST_POINTS, EACH * 5))) > 50


@pytest.mark.parametrize("name", ENDED)
def test_the_loop_may_end_at_any_point_of_a_call(name: str) -> None:
    assert (
        sweep(name, ((at,) for at in range(1, MOST_POINTS, EACH * 3)), cancelled=loop_ended_at) > 1
    )


@pytest.mark.parametrize("name", TROUBLED)
def test_clients_work_after_a_call_was_cancelled_while_brokers_restart(name: str) -> None:
    assert sweep(name, ((at,) for at in range(1, MOST_POINTS, EACH * 3)), trouble=True) > 10


@pytest.mark.parametrize("name", TWICE)
def test_clients_work_after_a_second_cancellation_during_the_cleanup(name: str) -> None:
    for later in some((1, 2, 5, 12), 2):
        sweep(name, ((at, at + later) for at in range(1, MOST_POINTS, TWICE_EACH)))
