"""The futures of `send` and `send_arrow` in `concurrent.futures` and `asyncio`."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.api.loopback_scene import PATIENCE, one_broker
from tests.unit.runtime.test_fork import in_child

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.clients.producer.batch import BatchOutcome, ProducerBatch
from odradek.common.errors import (
    ClientClosedError,
    ClientForkedError,
    IllegalStateError,
    KafkaTimeoutError,
)
from odradek.common.types import TopicPartition
from odradek.record import BatchBuilder
from odradek.runtime.hosts.record_future import RecordFuture
from odradek.simulation import SimulatedCluster, World

P0 = TopicPartition("t", 0)


class Asked:
    """What a future asks of its producer."""

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


def waiting(producer: Any = None, records: int = 1) -> tuple[ProducerBatch, list[RecordFuture]]:
    """Records in one batch, and their futures."""
    builder = BatchBuilder(1 << 16, None)
    for _ in range(records):
        builder.append(None, b"v", (), 0)
    batch = ProducerBatch(P0, builder, 0.0, 120.0)
    owner: Any = producer or Asked()
    return batch, [RecordFuture(owner, batch, i, 7) for i in range(records)]


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as made:
        yield made


def test_a_future_that_nobody_watches_has_nothing_made_for_it() -> None:
    batch, (future,) = waiting()
    assert isinstance(future, cf.Future)
    assert (future.cancel(), future.cancelled(), future.running()) == (False, False, True)
    assert repr(future) == "<RecordFuture pending>"
    batch.done.complete(BatchOutcome(4, -1))
    assert (future.cancel(), future.cancelled(), future.running()) == (False, False, False)
    assert repr(future) == "<RecordFuture finished>"
    assert future.__dict__ == {}
    assert not hasattr(future, "_watch")


def test_wait_gives_the_futures_themselves(producer: Producer) -> None:
    futures: list[Any] = [producer.send("t", b"%d" % n) for n in range(20)]
    futures.append(producer.send_arrow("t", pa.table({"value": [b"a", b"b"]})))
    for _ in range(2):  # the second time all of them are there already
        done, left = cf.wait(futures, PATIENCE)
        assert (done, left) == (set(futures), set())
    assert set(cf.as_completed(futures, PATIENCE)) == set(futures)


def test_each_comes_once_as_it_completes() -> None:
    first, some = waiting(records=2)
    second, more = waiting(records=2)
    first.done.complete(BatchOutcome(0, -1))
    come = cf.as_completed([*some, *more], PATIENCE)
    assert {next(come), next(come)} == set(some)
    timer = threading.Thread(target=lambda: second.done.complete(BatchOutcome(2, -1)))
    timer.start()
    assert set(come) == set(more)
    timer.join()


def test_wait_for_the_first_and_for_the_first_error() -> None:
    good, (well,) = waiting()
    bad, (ill,) = waiting()
    assert cf.wait([well, ill], 0).done == set()
    good.done.complete(BatchOutcome(0, -1))
    assert cf.wait([well, ill], PATIENCE, cf.FIRST_COMPLETED).done == {well}
    thread = threading.Thread(target=lambda: bad.done.fail(ClientClosedError("closed")))
    thread.start()
    assert cf.wait([ill, waiting()[1][0]], PATIENCE, cf.FIRST_EXCEPTION).done == {ill}
    thread.join()


def test_an_outcome_does_not_wait_for_a_lock_that_a_user_holds() -> None:
    batch, (future,) = waiting()
    waiter = cf._base._FirstCompletedWaiter()
    future._condition.acquire()
    brings = threading.Thread(target=lambda: batch.done.complete(BatchOutcome(0, -1)))
    brings.start()
    brings.join(PATIENCE)
    assert not brings.is_alive()
    assert future._state == "PENDING"  # what the holder sees doesn't change
    future._waiters.append(waiter)
    future._condition.release()
    assert waiter.finished_futures == [future]
    assert waiter.event.is_set()


def test_a_coroutine_awaits(producer: Producer) -> None:
    async def main() -> None:
        assert (await producer.send("t", b"1")).topic == "t"
        sent = [producer.send("t", b"%d" % n) for n in range(50)]
        offsets = [m.offset for m in await asyncio.gather(*sent)]
        assert offsets == list(range(offsets[0], offsets[0] + 50))
        (written,) = await producer.send_arrow("t", pa.table({"value": [b"a", b"b"]}))
        assert written.records == 2
        wrapped = await asyncio.wrap_future(producer.send("t", b"2"))
        assert wrapped.offset == written.last_offset + 1
        assert (await sent[0]).offset == offsets[0]  # again, without a turn of the loop

    asyncio.run(main())


def test_the_loop_goes_on_meanwhile_and_giving_up_cancels_nothing() -> None:
    batch, (future,) = waiting()

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


def test_an_error_comes_out_of_await() -> None:
    batch, futures = waiting(records=2)

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


def test_an_await_ends_with_the_delivery_timeout() -> None:
    owner = Asked()
    owner.seconds = 0.001
    batch, (future,) = waiting(owner)

    async def main() -> None:
        with pytest.raises(KafkaTimeoutError, match="acknowledgement of t-0"):
            await asyncio.wait_for(future, PATIENCE)
        batch.done.complete(BatchOutcome(3, -1))  # late: nobody waits any more
        await asyncio.sleep(0)
        assert (await future).offset == 3

    asyncio.run(main())
    assert owner.set_unclosed_watch == 1


def test_an_outcome_after_the_loops_end_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    batch, (future,) = waiting()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.001)

    asyncio.run(main())
    batch.done.complete(BatchOutcome(3, -1))
    assert caplog.records == []


def test_the_real_producer_says_how_long_and_what(producer: Producer) -> None:
    assert producer._watched() == 120.0
    error = producer._too_late(1)
    assert error.__notes__ == ["The producer still sends the records, unless it is closed first."]


def test_a_forked_child_does_not_wait_for_ever(producer: Producer) -> None:
    _, (future,) = waiting(producer)

    def refused() -> None:
        with pytest.raises(ClientForkedError):
            cf.wait([future])

    in_child(refused)


def test_virtual_time_does_not_pass_outside_of_calls() -> None:
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


def test_a_wait_that_was_interrupted_as_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, (future,) = waiting()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RecordFuture, "add_done_callback", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cf.wait([future], timeout=1)
    batch.done.complete(BatchOutcome(5, -1))
    done, _ = cf.wait([future], timeout=1)
    assert done == {future}


def test_a_callback_is_refused_to_wait(producer: Producer) -> None:
    raised: SimpleQueue[BaseException] = SimpleQueue()

    def waits(*_: object) -> None:
        try:
            cf.wait([producer.send("t", b"another")], timeout=PATIENCE)
        except IllegalStateError as error:
            raised.put(error)

    producer.send("t", b"x", on_delivery=waits).result(PATIENCE)
    producer.flush(PATIENCE)
    assert "can't wait for a result" in str(raised.get(timeout=PATIENCE))
