"""Test that futures of `send` and `send_arrow` work with `concurrent.futures` and `asyncio`."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.api.loopback_scene import PATIENCE, one_broker
from tests.unit.runtime.test_fork import in_child

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.clients.calls.record_sending import DeliveryCallback
from odradek.clients.producer.batch import BatchOutcome, ProducerBatch, RecordMetadata
from odradek.common.errors import (
    ClientClosedError,
    ClientForkedError,
    IllegalStateError,
    KafkaTimeoutError,
)
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.runtime.hosts.record_future import RecordFuture, report_to
from odradek.simulation import SimulatedCluster, World

P0 = TopicPartition("t", 0)


class FutureOwner:
    """A producer with only the methods that a future calls."""

    seconds = 60.0

    def __init__(self) -> None:
        self.set_unclosed_watch = 0

    def _watched(self) -> float:
        self.set_unclosed_watch += 1
        return self.seconds

    def _too_late(self, of: ProducerBatch) -> KafkaTimeoutError:
        return KafkaTimeoutError(f"timed out waiting for the acknowledgement of {of.partition}")

    def _surface(self, error: BaseException) -> None:
        raise error

    def _defer(self, action: Callable[[], None]) -> None:
        action()


def new_batch(producer: Any = None, records: int = 1) -> tuple[ProducerBatch, list[RecordFuture]]:
    """Build a batch with `records` records and return it with their futures."""
    builder = BatchBuilder(1 << 16, None)
    for _ in range(records):
        builder.append(None, b"v", (), 0)
    batch = ProducerBatch(P0, builder, 0.0, 120.0)
    owner: Any = producer or FutureOwner()
    return batch, [RecordFuture(owner, batch, i, 7) for i in range(records)]


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as made:
        yield made


def test_a_future_without_waiters_allocates_no_waiter_state() -> None:
    batch, (future,) = new_batch()
    assert isinstance(future, cf.Future)
    assert (future.cancel(), future.cancelled(), future.running()) == (False, False, True)
    assert repr(future) == "<RecordFuture pending>"
    batch.done.complete(BatchOutcome(4, -1))
    assert (future.cancel(), future.cancelled(), future.running()) == (False, False, False)
    assert repr(future) == "<RecordFuture finished>"
    assert future.__dict__ == {}
    assert not hasattr(future, "_watch")


def test_wait_and_as_completed_return_the_same_futures(producer: Producer) -> None:
    futures: list[Any] = [producer.send("t", b"%d" % n) for n in range(20)]
    futures.append(producer.send_arrow("t", pa.table({"value": [b"a", b"b"]})))
    for _ in range(2):  # the second time, all futures are done already
        done, left = cf.wait(futures, PATIENCE)
        assert (done, left) == (set(futures), set())
    assert set(cf.as_completed(futures, PATIENCE)) == set(futures)


def test_as_completed_yields_each_future_once() -> None:
    first, some = new_batch(records=2)
    second, more = new_batch(records=2)
    first.done.complete(BatchOutcome(0, -1))
    come = cf.as_completed([*some, *more], PATIENCE)
    assert {next(come), next(come)} == set(some)
    timer = threading.Thread(target=lambda: second.done.complete(BatchOutcome(2, -1)))
    timer.start()
    assert set(come) == set(more)
    timer.join()


def test_wait_may_return_at_the_first_completed_future_or_the_first_exception() -> None:
    good, (well,) = new_batch()
    bad, (ill,) = new_batch()
    assert cf.wait([well, ill], 0).done == set()
    good.done.complete(BatchOutcome(0, -1))
    assert cf.wait([well, ill], PATIENCE, cf.FIRST_COMPLETED).done == {well}
    thread = threading.Thread(target=lambda: bad.done.fail(ClientClosedError("closed")))
    thread.start()
    assert cf.wait([ill, new_batch()[1][0]], PATIENCE, cf.FIRST_EXCEPTION).done == {ill}
    thread.join()


def test_completing_a_batch_does_not_block_on_a_futures_lock() -> None:
    batch, (future,) = new_batch()
    waiter = cf._base._FirstCompletedWaiter()
    future._condition.acquire()
    brings = threading.Thread(target=lambda: batch.done.complete(BatchOutcome(0, -1)))
    brings.start()
    brings.join(PATIENCE)
    assert not brings.is_alive()
    assert future._state == "PENDING"  # the state doesn't change while a thread holds the lock
    future._waiters.append(waiter)
    future._condition.release()
    assert waiter.finished_futures == [future]
    assert waiter.event.is_set()


def test_futures_can_be_awaited(producer: Producer) -> None:
    async def main() -> None:
        assert (await producer.send("t", b"1")).topic == "t"
        sent = [producer.send("t", b"%d" % n) for n in range(50)]
        offsets = [m.offset for m in await asyncio.gather(*sent)]
        assert offsets == list(range(offsets[0], offsets[0] + 50))
        (written,) = await producer.send_arrow("t", pa.table({"value": [b"a", b"b"]}))
        assert written.records == 2
        wrapped = await asyncio.wrap_future(producer.send("t", b"2"))
        assert wrapped.offset == written.last_offset + 1
        assert (await sent[0]).offset == offsets[0]  # awaited again: returns without suspending

    asyncio.run(main())


def test_a_timed_out_await_does_not_cancel_the_future() -> None:
    batch, (future,) = new_batch()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.001)
        task = asyncio.ensure_future(asyncio.wait_for(future, PATIENCE))
        await asyncio.sleep(0)
        wrapped = asyncio.wrap_future(future)
        wrapped.cancel()
        await asyncio.sleep(0)
        threading.Thread(target=lambda: batch.done.complete(BatchOutcome(3, -1))).start()
        assert (await task).offset == 3

    asyncio.run(main())
    assert future.result().offset == 3


def test_await_raises_the_error_of_the_batch() -> None:
    batch, futures = new_batch(records=2)

    async def main() -> None:
        tasks = [asyncio.ensure_future(asyncio.wait_for(f, PATIENCE)) for f in futures]
        await asyncio.sleep(0)
        batch.done.fail(ClientClosedError("closed"))
        for task in tasks:
            with pytest.raises(ClientClosedError):
                await task
        with pytest.raises(ClientClosedError):
            await futures[0]

    asyncio.run(main())


def test_an_await_times_out_with_the_delivery_timeout() -> None:
    owner = FutureOwner()
    owner.seconds = 0.001
    batch, (future,) = new_batch(owner)

    async def main() -> None:
        with pytest.raises(KafkaTimeoutError, match="acknowledgement of t-0"):
            await asyncio.wait_for(future, PATIENCE)
        batch.done.complete(BatchOutcome(3, -1))  # too late: no task waits any more
        await asyncio.sleep(0)
        assert (await future).offset == 3

    asyncio.run(main())
    assert owner.set_unclosed_watch == 1


def test_a_result_that_arrives_after_the_end_of_the_event_loop_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch, (future,) = new_batch()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.001)

    asyncio.run(main())
    batch.done.complete(BatchOutcome(3, -1))
    assert caplog.records == []


def test_the_timeout_of_an_await_is_the_delivery_timeout_and_its_error_has_a_note(
    producer: Producer,
) -> None:
    assert producer._watched() == 120.0
    error = producer._too_late(1)
    assert error.__notes__ == ["The producer still sends the records, unless it is closed first."]


def test_waiting_in_a_forked_child_raises(producer: Producer) -> None:
    _, (future,) = new_batch(producer)

    def refused() -> None:
        with pytest.raises(ClientForkedError):
            cf.wait([future])

    in_child(refused)


def test_waiting_with_concurrent_futures_in_a_simulation_raises() -> None:
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t")
    host = world.host("p", background=True)
    producer = on_host(host, Producer, bootstrap_servers=cluster.bootstrap_servers)
    future = producer.send("t", b"1")
    with pytest.raises(IllegalStateError, match="simulation"):
        cf.wait([future])
    future.result()
    assert cf.wait([future], 0).done == {future}


def test_a_wait_can_be_repeated_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, (future,) = new_batch()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RecordFuture, "add_done_callback", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cf.wait([future], timeout=1)
    batch.done.complete(BatchOutcome(5, -1))
    done, _ = cf.wait([future], timeout=1)
    assert done == {future}


def test_waiting_in_a_delivery_callback_raises(producer: Producer) -> None:
    raised: SimpleQueue[BaseException] = SimpleQueue()

    def waits(*_: object) -> None:
        try:
            cf.wait([producer.send("t", b"another")], timeout=PATIENCE)
        except IllegalStateError as error:
            raised.put(error)

    producer.send("t", b"x", on_delivery=waits).result(PATIENCE)
    producer.flush(PATIENCE)
    assert "can't wait for a result" in str(raised.get(timeout=PATIENCE))


@pytest.mark.parametrize("closed", [False, True])
def test_on_delivery_may_take_a_lock_that_the_sender_holds(closed: bool) -> None:
    told: SimpleQueue[tuple[str, int]] = SimpleQueue()
    lock = threading.Lock()

    def acknowledged_first(future: RecordFuture, on_delivery: DeliveryCallback) -> None:
        future.result(PATIENCE)
        if closed:
            made.close(PATIENCE)
        report_to(future, on_delivery)

    def on_delivery(_: object, record: RecordMetadata) -> None:
        if closed or lock.acquire(timeout=PATIENCE):
            told.put((threading.current_thread().name, record.offset))

    with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as made:
        vars(made)["_report_to"] = acknowledged_first
        with lock:
            made.send("t", b"x", on_delivery=on_delivery)
        assert told.get(timeout=PATIENCE) == ("MainThread" if closed else "odradek-io", 0)


def test_flush_returns_after_a_callback_that_was_registered_late(producer: Producer) -> None:
    told: list[int] = []

    def acknowledged_first(future: RecordFuture, on_delivery: DeliveryCallback) -> None:
        future.result(PATIENCE)
        report_to(future, on_delivery)

    def on_delivery(_: object, record: RecordMetadata) -> None:
        told.append(record.offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(producer), "_report_to", acknowledged_first)
        patch.setattr(producer._host, "defer", lambda _: None)  # as if actions ran after `flush`
        sent = [producer.send("t", b"x", on_delivery=on_delivery) for _ in range(3)]
        producer.flush(PATIENCE)
        assert told == [future.result(0).offset for future in sent]
