"""Test the asyncio clients on sockets, with asyncio's own loop and uvloop."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import gc
import inspect
import io
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar, cast

import pyarrow as pa
import pytest
import uvloop
from tests.time_limits import HANG_S
from tests.volume import third

import odradek
from odradek import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientClosedError,
    IllegalStateError,
    KafkaTimeoutError,
    NewTopic,
    TopicPartition,
)
from odradek.clients.admin import cluster as cluster_calls
from odradek.compat.confluent_kafka.aio import AIOProducer
from odradek.errors import ClientForkedError, WakeupError
from odradek.network.host import LoopHost
from odradek.runtime.hosts.async_caller import waited
from odradek.testing import FakeCluster

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
PATIENCE = 60.0
ARRIVALS = TopicPartition("arrivals", 0)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2, topics={"flights": 1, "arrivals": 1, "wide": 4}) as cluster:
        yield cluster


LOOPS = ("asyncio", "uvloop", "debug")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with one of the loops in `make test`; each loop gets a third of the tests."""
    if "run" in metafunc.fixturenames:
        metafunc.parametrize("run", third(LOOPS, metafunc.function.__name__), indirect=True)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run[Any]:
    def bounded(program: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return asyncio.wait_for(program, 60)

    if request.param == "uvloop":
        return lambda program: uvloop.run(bounded(program))
    return lambda program: asyncio.run(bounded(program), debug=request.param == "debug")


def config(fake: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": fake.bootstrap_servers, "auto.offset.reset": "earliest", **more}


def producer(fake: FakeCluster, **options: Any) -> AsyncProducer:
    return AsyncProducer({"bootstrap.servers": fake.bootstrap_servers}, **options)


async def filled(fake: FakeCluster, count: int, topic: str = "arrivals") -> None:
    async with producer(fake) as sending:
        deliveries = [await sending.send(topic, b"%d" % n, partition=0) for n in range(count)]
        assert [d.offset for d in await asyncio.gather(*deliveries)] == list(range(count))


async def values(consumer: AsyncConsumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        got = await consumer.poll(PATIENCE)
        assert got
        found += [record.value for record in got]
    return found


# Records


def test_arrow_rows_are_sent_and_read_as_records_and_batches_in_a_group(
    fake: FakeCluster, run: Run[None]
) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    async def assigned(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        told.append(("assigned", partitions))
        assert await consumer.position(partitions[0]) == 0

    async def program() -> None:
        async with producer(fake) as sending:
            table = pa.table({"value": [b"%d" % n for n in range(500)]})
            delivery = await sending.send_arrow("arrivals", table)
            assert [r.last_offset for r in await delivery] == [499]
            assert delivery.errors() is None
            assert delivery.rows == 500
        async with AsyncConsumer(config(fake), group_id="g") as consumer:
            await consumer.subscribe(
                ["arrivals"],
                on_assigned=assigned,
                on_revoked=lambda _, partitions: told.append(("revoked", partitions)),
            )
            seen = 0
            async for record in consumer:
                assert record.value == b"%d" % seen
                seen += 1
                if seen == 300:
                    break
            rows = 0
            async for batch in consumer.batches(timeout=PATIENCE):
                rows += batch.num_rows
                if rows == 200:
                    break
            committed = await consumer.commit()
            assert committed[ARRIVALS].offset == 500
            assert (await consumer.committed([ARRIVALS]))[ARRIVALS] == committed[ARRIVALS]
            assert await consumer.end_offsets([ARRIVALS]) == {ARRIVALS: 500}
        assert told == [("assigned", [ARRIVALS]), ("revoked", [ARRIVALS])]

    run(program())


def test_a_waiting_poll_gets_a_record_before_the_next_fetch_is_sent(
    fake: FakeCluster, run: Run[None]
) -> None:
    """poll() returns a small record before the next fetch is sent, a large one afterwards."""

    async def program() -> None:
        waits = {"fetch.max.wait.ms": 20_000}  # no fetch ends by itself in the meantime
        async with producer(fake) as sending, AsyncConsumer(config(fake, **waits)) as consumer:
            consumer.assign([ARRIVALS])

            def sent() -> float:
                return consumer.metrics().value("request-total")

            async def reads() -> tuple[int, float]:
                (record,) = await consumer.poll(PATIENCE)
                return len(record.value or b""), sent()

            async def fetch_waits(nth: int) -> float:
                """Wait until only the `nth` fetch is in flight; return the number of requests."""
                async with asyncio.timeout(PATIENCE):
                    await asyncio.sleep(0)  # lets a poll begin to wait
                    while (
                        fake.requests()["Fetch"] < nth
                        or sent() - consumer.metrics().value("response-total") != 1
                    ):
                        await asyncio.sleep(0.01)
                assert fake.requests()["Fetch"] == nth
                return sent()

            for nth, (size, ahead) in enumerate([(100, 0), (200_000, 1)] * 3, start=1):
                reading = asyncio.create_task(reads())
                before = await fetch_waits(nth)
                await sending.send_and_wait("arrivals", b"x" * size)
                assert await reading == (size, before + ahead)
                assert await fetch_waits(nth + 1) == before + 1

    run(program())


def test_clients_recover_after_all_brokers_moved(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        async with producer(fake, linger_ms=0) as sending, AsyncConsumer(config(fake)) as consumer:
            consumer.assign([ARRIVALS])
            for n in range(30):
                if n in (10, 20):
                    for broker in fake.broker_ids:
                        await asyncio.to_thread(fake.move, broker)
                await sending.send_and_wait("arrivals", b"%d" % n, partition=0)
            assert await values(consumer, 30) == [b"%d" % n for n in range(30)]

    run(program())


def test_a_transaction_commits_or_aborts(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        async with producer(fake, transactional_id="t") as sending:
            await sending.init_transactions()
            for n in range(4):
                with contextlib.suppress(ZeroDivisionError):
                    async with sending.transaction():
                        await sending.send("flights", b"%d" % n)
                        assert n % 2 or n / 0 > 0
                    assert n % 2
            task = asyncio.create_task(abandoned(sending))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with sending.transaction():
                await sending.send("flights", b"last")
        settings = config(fake, **{"isolation.level": "read_committed"})
        async with AsyncConsumer(settings) as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            assert await values(consumer, 3) == [b"1", b"3", b"last"]

    async def abandoned(sending: AsyncProducer) -> None:
        async with sending.transaction():
            await sending.send("flights", b"never")
            await asyncio.sleep(PATIENCE)

    run(program())


def test_an_admin_client_works_in_an_event_loop(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        async with AsyncAdmin({"bootstrap.servers": fake.bootstrap_servers}) as admin:
            made = await admin.create_topics([NewTopic("new", 3, 1)])
            assert len(made["new"].partitions) == 3
            assert "new" in await admin.list_topics()
            await admin.delete_topics("new")
            assert "new" not in await admin.list_topics()
            assert (await admin.describe_cluster()).cluster_id == await admin.cluster_id()
            assert "It works" in str(admin.explain())

    run(program())


# Deliveries


def test_a_delivery_works_as_an_asyncio_future(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        async with producer(fake) as sending:
            sent = [await sending.send("flights", b"%d" % n) for n in range(6)]
            assert all(asyncio.isfuture(delivery) for delivery in sent)
            called: list[int] = []
            sent[0].add_done_callback(lambda d: called.append(d.result().offset))
            unwanted = called.append
            sent[0].add_done_callback(unwanted)  # type: ignore[arg-type]
            assert sent[0].remove_done_callback(unwanted) == 1  # type: ignore[arg-type]
            with pytest.raises(asyncio.InvalidStateError):
                sent[0].result()
            done, pending = await asyncio.wait(sent[:2])  # type: ignore[type-var]
            assert (len(done), pending) == (2, set())
            assert called == [0]
            assert (await asyncio.wait_for(sent[2], PATIENCE)).offset == 2
            assert (await asyncio.shield(sent[3])).offset == 3
            assert sent[4].exception() is None
            assert not sent[4].cancel()
            reported: list[Any] = []
            await sending.send("flights", b"6", on_delivery=lambda *told: reported.append(told))
            await sending.flush()
            assert [(error, metadata.offset) for error, metadata in reported] == [(None, 6)]

    run(program())


def test_cancelling_the_wait_does_not_cancel_the_delivery(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        async with producer(fake) as sending:
            await sending.send_and_wait("flights", b"0")
            fake.delay("Produce", 1.0)
            delivery = await sending.send("flights", b"1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await delivery
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(delivery, 0.1)
            other = await sending.send("flights", b"2")
            waits = [asyncio.create_task(_awaited(other)) for _ in range(3)]
            await asyncio.sleep(0.05)
            waits[0].cancel()
            offsets = {m.offset for m in await asyncio.gather(*waits[1:])}
            assert offsets == {2}
            assert waits[0].cancelled()
        assert [row[4] for row in fake.records("flights")] == [b"0", b"1", b"2"]

    run(program())


async def _awaited(delivery: Awaitable[T]) -> T:
    return await delivery


# Cancelling, deadlines, tasks


def test_a_cancelled_poll_loses_no_record(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        await filled(fake, 400)
        async with AsyncConsumer(config(fake)) as consumer:
            consumer.assign([ARRIVALS])
            found: list[bytes | None] = []
            turns = 0
            while len(found) < 400:
                task = asyncio.create_task(consumer.poll(PATIENCE, max_records=7))
                for _ in range(turns % 9):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 3:
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found += [record.value for record in await task]
            assert found == [b"%d" % n for n in range(400)]

    run(program())


def test_calls_without_a_broker_end_at_their_timeout(run: Run[None]) -> None:
    async def program() -> None:
        settings = {"bootstrap.servers": "127.0.0.1:9"}
        begun = time.monotonic()
        async with AsyncAdmin(settings) as admin:
            with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:9"):
                await admin.list_topics(timeout=0.3)
        async with AsyncProducer(settings, max_block_ms=300) as sending:
            with pytest.raises(KafkaTimeoutError):
                await sending.send_and_wait("t", b"x")
        async with AsyncConsumer(settings) as consumer:
            consumer.assign([ARRIVALS])
            assert await consumer.poll(0.3) == []
        assert time.monotonic() - begun < 15

    run(program())


class TimersFirst(asyncio.SelectorEventLoop):
    """Event loop whose iteration runs only timers if one is due, as uvloop before libuv 1.45."""

    def _process_events(self, event_list: list[Any]) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if not scheduled or scheduled[0].when() > self.time():
            super()._process_events(event_list)  # type: ignore[misc]


def test_a_received_response_is_used_after_the_loop_was_blocked_past_the_timeout(
    fake: FakeCluster,
) -> None:
    """Block the loop past the caller's deadline, but not past the engine's."""

    async def program() -> None:
        async with AsyncAdmin({"bootstrap.servers": fake.bootstrap_servers}) as admin:
            await admin.describe_cluster()
            fake.delay("DescribeCluster", 0.05)
            engine, host = admin._calls.engine, cast("LoopHost", admin._host)
            described = cluster_calls.describe(False, False)
            answer = engine.start(described.flow(engine, host.now() + PATIENCE))
            host.wake()

            async def has_it() -> bool:
                await waited(host, answer, host.now() + 0.1)
                return answer.done

            waiting = asyncio.create_task(has_it())
            await asyncio.sleep(0.01)
            time.sleep(0.3)  # a callback that blocks the loop
            assert await waiting

    with asyncio.Runner(loop_factory=TimersFirst) as runner:
        runner.run(program())


def test_only_one_task_can_poll_at_a_time(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        async with AsyncConsumer(config(fake)) as consumer:
            consumer.assign([ARRIVALS])
            first = asyncio.create_task(consumer.poll(PATIENCE), name="the first")
            await asyncio.sleep(0.05)
            with pytest.raises(IllegalStateError, match="the first"):
                await consumer.poll(1.0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await first
            waiting = asyncio.create_task(consumer.poll(PATIENCE))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(consumer.wakeup)
            with pytest.raises(WakeupError):
                await waiting
            waiting = asyncio.create_task(consumer.poll(PATIENCE))
            await asyncio.sleep(0.05)
            await consumer.close()
            with pytest.raises(ClientClosedError):
                await waiting

    run(program())


def test_a_second_close_waits_for_the_first(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        sending = producer(fake)
        await sending.send_and_wait("flights", b"0")
        host = sending._host

        async def slow(_: float) -> None:
            await asyncio.sleep(0.2)

        host._flush = slow  # type: ignore[attr-defined]  # as if a socket were slow
        first = asyncio.create_task(sending.close())
        await asyncio.sleep(0.05)
        await sending.close()
        assert not host.in_use
        await first

    run(program())


def test_callers_that_wait_for_buffer_memory_all_send_each_record_once(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        settings = {"buffer_memory": 1 << 16, "batch_size": 1 << 12, "linger_ms": 0}
        async with producer(fake, **settings) as sending:
            value = bytes(2000)

            async def caller(n: int) -> int:
                return (await sending.send_and_wait("wide", value, partition=n % 4)).offset

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(caller(n)) for n in range(200)]
            by_partition = [sorted(t.result() for t in tasks[p::4]) for p in range(4)]
            assert by_partition == [list(range(50))] * 4

    run(program())


def test_a_thousand_tasks_send_through_ten_clients_in_one_loop(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(producer(fake)) for _ in range(10)]
            sends = [clients[n % 10].send_and_wait("flights", b"%d" % n) for n in range(1000)]
            offsets = sorted(m.offset for m in await asyncio.gather(*sends))
            assert offsets == list(range(1000))

    run(program())


# Loops


def test_each_event_loop_needs_its_own_client(fake: FakeCluster, run: Run[None]) -> None:
    kept: list[AsyncProducer] = []

    async def program() -> None:
        sending = producer(fake)
        assert (await sending.send_and_wait("flights", b"x")).offset == len(kept)
        kept.append(sending)
        await sending.close()

    async def other_loop() -> None:
        with pytest.raises(ClientClosedError):
            await kept[0].send_and_wait("flights", b"x")

    run(program())
    run(program())
    run(other_loop())


def test_using_a_client_in_another_event_loop_raises(fake: FakeCluster, run: Run[Any]) -> None:
    async def left_open() -> AsyncAdmin:
        admin = AsyncAdmin({"bootstrap.servers": fake.bootstrap_servers})
        await admin.list_topics()
        return admin

    async def used(admin: AsyncAdmin) -> None:
        with pytest.raises(IllegalStateError, match=r"another event loop \(which was closed\)"):
            await admin.list_topics()
        await admin.close()

    run(used(run(left_open())))


def test_a_delivery_can_only_be_awaited_in_the_producers_loop(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        async with producer(fake, linger_ms=2000) as sending:
            delivery = await sending.send("flights", b"x")
            for wait in (_awaited, asyncio.gather, asyncio.wait_for):
                arguments = (delivery, PATIENCE) if wait is asyncio.wait_for else (delivery,)
                elsewhere = asyncio.to_thread(_in_another_loop, wait, *arguments)
                with pytest.raises(IllegalStateError, match=r"another event loop \(which still"):
                    await elsewhere
            await sending.flush()
            found = await asyncio.to_thread(_in_another_loop, _awaited, delivery)
            assert found == await delivery

    run(program())


def _in_another_loop(wait: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    async def waiting() -> T:
        async with asyncio.timeout(PATIENCE / 4):
            return await wait(*arguments)

    return asyncio.run(waiting())


@pytest.mark.parametrize("transactional", [False, True])
def test_close_after_the_loop_has_ended_reports_lost_records(
    fake: FakeCluster, run: Run[Any], transactional: bool
) -> None:
    heard: list[BaseException | None] = []
    transaction = {"transactional_id": "t"} if transactional else {}

    async def left_open() -> tuple[AsyncProducer, Any]:
        sending = producer(fake, linger_ms=5000, **transaction)
        if transactional:
            await sending.init_transactions()
            await sending.begin_transaction()
        delivery = await sending.send("flights", b"x", on_delivery=lambda e, _: heard.append(e))
        delivery.add_done_callback(lambda _: heard.append(None))
        waiting = asyncio.create_task(_awaited(delivery))
        await asyncio.wait([waiting], timeout=0.01)
        return sending, delivery

    async def closed(sending: AsyncProducer) -> None:
        with pytest.raises(IllegalStateError, match="1 record was not acknowledged when"):
            await sending.close()
        await sending.close()

    sending, delivery = run(left_open())
    assert not delivery.done()
    run(closed(sending))
    assert [type(error) for error in heard] == [ClientClosedError]
    assert isinstance(delivery.exception(), ClientClosedError)


def test_aioproducer_reports_the_value_of_each_record_if_the_loop_is_overdue(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        sending = AIOProducer({"bootstrap.servers": fake.bootstrap_servers})
        reports = []
        for _ in range(10):
            reports.append(await sending.produce("flights", b"x"))
            time.sleep(0.005)  # so that the loop is overdue at the next call
        assert [message.value() for message in await asyncio.gather(*reports)] == [b"x"] * 10
        await sending.close()

    run(program())


def test_a_subclass_can_override_send(fake: FakeCluster, run: Run[None]) -> None:
    class Texts(AsyncProducer):
        async def send(self, topic: str, value: str) -> odradek.DeliveryFuture:  # type: ignore[override]
            return await super().send(topic, value.encode())

    async def program() -> None:
        async with Texts({"bootstrap.servers": fake.bootstrap_servers}) as sending:
            for number in range(10):
                time.sleep(0.005)  # so that the loop is overdue at the next `send`
                assert (await (await sending.send("flights", "x"))).offset == number

    run(program())


def test_a_loop_that_ends_during_a_read_closes_the_consumer_without_errors(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        consumer = AsyncConsumer(config(fake), group_id="g")
        await consumer.subscribe(["arrivals"])
        asyncio.create_task(forever(consumer))  # noqa: RUF006  # the loop's end cancels it
        await asyncio.sleep(0.1)

    async def forever(consumer: AsyncConsumer) -> None:
        async with consumer:
            async for _ in consumer:
                pass

    run(program())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_unclosed_producer_warns_once_and_still_sends_its_records(
    fake: FakeCluster, run: Run[None]
) -> None:
    async def program() -> None:
        sending = producer(fake, linger_ms=200)
        await sending.send_and_wait("flights", b"0")
        await sending.send("flights", b"1")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            del sending
            gc.collect()
        texts = [str(w.message) for w in caught if "AsyncProducer" in str(w.message)]
        assert len(texts) == 1
        assert "test_asyncio_clients.py" in texts[0]
        while len(fake.records("flights")) < 2:
            await asyncio.sleep(0.01)

    run(program())


FORGOTTEN = """
import asyncio, gc, sys, uvloop
from odradek import AsyncAdmin, AsyncConsumer, AsyncProducer

kept = []

async def main(way, loop):
    for make in (AsyncProducer, AsyncConsumer, AsyncAdmin):
        name = f"{way}-{loop}-{make.__name__}"
        client = make({"bootstrap.servers": sys.argv[1]}, client_id=name)
        await client.cluster_id()
        kept.append(client)
        del client
        if way == "collected":
            kept.clear()
            gc.collect()
            await asyncio.sleep(0.05)

for way in ("collected", "loop ended", "process ended"):
    for loop, run in (("asyncio", asyncio.run), ("uvloop", uvloop.run)):
        run(main(way, loop))
    if way == "loop ended":
        kept.clear()
        gc.collect()
"""


def test_each_unclosed_client_warns_once_however_it_ends(fake: FakeCluster) -> None:
    """Check that nothing else is reported, for example none of the client's sockets."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", FORGOTTEN]
    done = subprocess.run(
        [*command, fake.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    warned = sorted(line for line in done.stderr.splitlines() if "ResourceWarning" in line)
    expected = sorted(
        f"{facade.__name__} '{way}-{loop}-{facade.__name__}'"
        for facade in (AsyncProducer, AsyncConsumer, AsyncAdmin)
        for way in ("collected", "loop ended", "process ended")
        for loop in ("asyncio", "uvloop")
    )
    found = sorted(line.partition("unclosed ")[2].partition(" (created")[0] for line in warned)
    assert found == expected, done.stderr
    assert "lost" not in done.stderr


LEFT_OPEN = """
import asyncio, sys
from odradek import AsyncProducer

async def main():
    global producer
    producer = AsyncProducer({"bootstrap.servers": sys.argv[1]}, linger_ms=60_000)
    await producer.partitions_for("flights")
    await producer.send("flights", b"1")

asyncio.run(main())
"""


def test_a_program_that_ends_with_an_open_producer_reports_lost_records(fake: FakeCluster) -> None:
    command = [sys.executable, "-W", "always", "-c", LEFT_OPEN, fake.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (
        "1 record was lost, because AsyncProducer 'odradek' (created at <string>:7)" in done.stderr
    )
    assert "its event loop had already ended" in done.stderr
    assert "use it in an `async with` block" in done.stderr


def test_calls_in_a_forked_child_raise(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        async with AsyncAdmin({"bootstrap.servers": fake.bootstrap_servers}) as admin:
            await admin.list_topics()
            child = os.fork()
            if child == 0:  # pragma: no cover
                try:
                    admin.list_topics().send(None)
                except ClientForkedError:
                    os._exit(7)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            await admin.list_topics()

    run(program())


def test_a_coroutine_function_as_on_delivery_raises(fake: FakeCluster) -> None:
    async def program() -> None:
        async def told(*_: object) -> None:
            pass

        async with producer(fake) as sending:
            with pytest.raises(odradek.ArgumentError, match="await the future that send"):
                await sending.send("flights", b"x", on_delivery=told)  # type: ignore[arg-type]

    asyncio.run(program())


def test_a_consumer_at_full_speed_lets_other_tasks_run(fake: FakeCluster, run: Run[None]) -> None:
    async def program() -> None:
        await filled(fake, 20_000)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        async with AsyncConsumer(config(fake)) as consumer:
            consumer.assign([ARRIVALS], until={ARRIVALS: 20_000})
            assert await values(consumer, 1)  # all records are buffered, or in flight
            before = turns
            rest = sum([1 async for _ in consumer])
            assert rest > 10_000
            assert turns - before > 5
        task.cancel()

    run(program())


# The documentation's examples

CLASSES = [getattr(odradek, n) for n in ("AsyncAdmin", "AsyncConsumer", "AsyncProducer")]


@pytest.mark.parametrize("cls", [*CLASSES, odradek.DeliveryFuture])
def test_docstring_examples_print_the_output_that_they_show(fake: FakeCluster, cls: type) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(cls, cls.__name__)
    (*_, wanted) = (e.want for e in example.examples)
    source = "".join(e.source for e in example.examples)
    source = source.replace("localhost:9092", fake.bootstrap_servers)
    last = example.examples[-1].source
    if not last.startswith(("async", "with", "for")):
        source = source.removesuffix(last) + f"print({last.strip()})"

    async def program() -> str:
        async with producer(fake) as sending:
            if cls is AsyncConsumer:
                for value in (b"JFK", b"LGA"):
                    await sending.send_and_wait("arrivals", value)
            names = {n: getattr(odradek, n) for n in odradek.__all__} | {"producer": sending}
            code = compile(source, cls.__name__, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                found = eval(code, names)  # noqa: S307  # the package's own documentation
                if inspect.isawaitable(found):
                    await found
            return said.getvalue()

    said = asyncio.run(program())
    if cls is AsyncAdmin:
        wanted = wanted.replace("flights']", "flights', 'wide']")
    assert said == wanted
