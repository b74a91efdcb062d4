"""Test threads that send, flush and poll at the same time, also with a fork or a close."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.api.loopback_scene import PATIENCE, one_broker
from tests.unit.runtime.test_fork import in_child

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.common.errors import ClientForkedError, KafkaError
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.record_future import RecordFuture

TP = TopicPartition("t", 0)
THREADS, TURNS = 4, 40


def together(jobs: Sequence[Callable[[], object]], meanwhile: Callable[[], object]) -> list[Any]:
    """Run `jobs` in threads and `meanwhile` in this thread; return the errors of the jobs."""
    raised: list[Any] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return raised


def test_records_sent_before_the_first_metadata_keep_their_order() -> None:
    """The first records wait for metadata; later records must not overtake them."""
    with one_broker(partitions=4) as (_, servers), Producer(bootstrap_servers=servers) as producer:
        futures: list[list[RecordFuture]] = [[] for _ in range(THREADS)]

        def work(number: int) -> None:
            key = b"%d" % number
            futures[number] = [
                producer.send("t", b"", key, partition=number if turn % 3 else None)
                for turn in range(300)
            ]

        jobs = [partial(work, number) for number in range(THREADS)]
        assert together(jobs, lambda: None) == []
        for mine in futures:
            last: dict[int, int] = {}
            for place in (future.result(PATIENCE) for future in mine):
                assert last.get(place.partition, -1) < place.offset
                last[place.partition] = place.offset
        assert producer._engine.accumulator.used == 0


@pytest.mark.parametrize("fork", [False, True])
def test_threads_share_a_producer_while_the_process_forks(fork: bool) -> None:
    with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as producer:
        futures: list[Any] = []

        def work(seed: int) -> None:
            rng = random.Random(seed)
            for turn in range(TURNS):
                match rng.randrange(4):
                    case 0:
                        futures.append(producer.send_arrow("t", pa.table({"value": [b"a"] * 20})))
                    case 1:
                        producer.flush(PATIENCE)
                    case _:
                        futures.extend(producer.send("t", b"b" * turn) for _ in range(20))

        def refused() -> None:
            for call in (lambda: producer.send("t", b"c"), producer.flush, producer.explain):
                with pytest.raises(ClientForkedError):
                    call()
            producer.close()

        def forks() -> None:
            for _ in range(5 if fork else 0):
                in_child(refused)

        jobs = [partial(work, seed) for seed in range(THREADS)]
        assert together(jobs, forks) == []
        producer.flush(PATIENCE)
        sent = sum(getattr(future, "rows", 1) for future in futures)
        assert all(future.exception(PATIENCE) is None for future in futures)
        assert producer._engine.accumulator.used == 0
        with Consumer(bootstrap_servers=servers) as consumer:
            assert consumer.end_offsets([TP], PATIENCE)[TP] == sent


@pytest.mark.slow
def test_close_during_concurrent_sends_completes_all_futures() -> None:
    with one_broker() as (_, servers):
        producer = Producer(bootstrap_servers=servers)
        producer.send("t", b"0").result(PATIENCE)
        accepted: list[Any] = []

        def work() -> None:
            while True:
                accepted.append(producer.send("t", b"x" * 100))

        raised = together([work] * THREADS, producer.close)
        assert len(raised) == THREADS
        assert all(isinstance(error, KafkaError) for error in raised)
        outcomes = [future.exception(PATIENCE) for future in accepted]  # no future remains pending
        assert all(isinstance(error, KafkaError | None) for error in outcomes)


@pytest.mark.parametrize("where", [(RecordAccumulator, "take"), (PartitionQueue, "number")])
def test_close_waits_for_a_batch_that_the_io_thread_has_taken(
    where: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = where
    work, in_hand = getattr(owner, name), threading.Event()

    def slow(*arguments: Any) -> Any:
        found = work(*arguments)
        if found or name == "number":
            in_hand.set()
            time.sleep(0.2)  # the client is closed while the batch is in no queue
        return found

    with one_broker() as (_, servers):
        with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
            producer.partitions_for("t")
            monkeypatch.setattr(owner, name, slow)
            future = producer.send("t", b"a")
            assert in_hand.wait(PATIENCE)
        assert future.result(0).offset == 0
