"""Compare `stats_cb` with librdkafka's statistics of the same simulated brokers."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest

from odradek.compat import confluent_kafka as ours
from odradek.compat.confluent_kafka import aio
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.settings import Given
from odradek.testing import FakeCluster

LIBRARIES = pytest.mark.parametrize("library", [ours, confluent_kafka], ids=["ours", "theirs"])
EVERY = 100
"""Interval of statistics, in milliseconds."""
Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as made:
        made.create_topic("t", partitions=2)
        yield made


def until(told: list[Json], good: Callable[[Json], bool], poll: Callable[[], object]) -> Json:
    """Poll until the last statistics satisfy a condition."""
    deadline = time.monotonic() + 20.0
    while True:
        if told and good(told[-1]):
            return told[-1]
        assert time.monotonic() < deadline, told[-1:]
        poll()


def settings(cluster: FakeCluster, told: list[Json], **more: Any) -> Json:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": "me",
        "statistics.interval.ms": EVERY,
        "stats_cb": lambda text: told.append(json.loads(text)),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def produced(library: Any, cluster: FakeCluster) -> Json:
    told: list[Json] = []
    producer = library.Producer(settings(cluster, told))
    for n in range(10):
        producer.produce("t", b"%d" % n, partition=n % 2)
    producer.flush(10.0)
    found = until(
        told, lambda s: s["txmsgs"] == 10 and not s["msg_cnt"], lambda: producer.poll(1.0)
    )
    with suppress(AttributeError):  # missing in older versions of confluent-kafka
        producer.close()
    return found


def consumed(library: Any, cluster: FakeCluster) -> Json:
    told: list[Json] = []
    more = {"group_id": f"g-{library.__name__}", "auto_offset_reset": "earliest"}
    consumer = library.Consumer(settings(cluster, told, **more))
    consumer.subscribe(["t"])
    count = 0

    def poll() -> None:
        nonlocal count
        count += consumer.poll(0.2) is not None

    def all_there(found: Json) -> bool:
        lags = [p["consumer_lag_stored"] for n, p in _partitions(found) if n != "-1"]
        return count >= 10 and found["rxmsgs"] >= 10 and lags == [0, 0]

    found = until(told, all_there, poll)
    consumer.close()
    return found


def _partitions(found: Json) -> list[tuple[str, Json]]:
    return list(found["topics"].get("t", {"partitions": {}})["partitions"].items())


def same_layout(mine: Any, theirs: Any, path: str = "") -> None:
    """Check that each of odradek's fields exists in librdkafka's, with a value of the same type."""
    if not isinstance(mine, dict):
        assert type(mine) is type(theirs), path
        return
    by_name = path in (".brokers", ".topics") or path.endswith(".partitions")
    for name, value in mine.items():
        if by_name:
            for other in theirs.values():
                same_layout(value, other, f"{path}.*")
        else:
            assert name in theirs, f"{path}.{name}"
            same_layout(value, theirs[name], f"{path}.{name}")


def test_a_producers_statistics_have_librdkafkas_layout(cluster: FakeCluster) -> None:
    mine, theirs = produced(ours, cluster), produced(confluent_kafka, cluster)
    same_layout(mine, theirs)
    assert (mine["type"], theirs["type"]) == ("producer", "producer")
    assert mine["name"].startswith("me#producer-")
    for found in (mine, theirs):
        assert (found["client_id"], found["txmsgs"]) == ("me", 10)
        assert found["msg_max"] == 100_000
        assert found["tx"] >= found["rx"] > 0
        assert abs(found["time"] - time.time()) < 60
    assert mine["msg_size"] == 0
    assert mine["msg_size_max"] == theirs["msg_size_max"]
    learned = {name for name, b in mine["brokers"].items() if b["source"] == "learned"}
    assert learned <= set(theirs["brokers"])
    assert {b["state"] for b in mine["brokers"].values()} <= {"UP", "DOWN", "INIT"}
    assert sum(b["tx"] for b in mine["brokers"].values()) == mine["tx"]


@pytest.mark.slow
def test_a_consumers_statistics_have_librdkafkas_layout(cluster: FakeCluster) -> None:
    produced(ours, cluster)
    mine, theirs = consumed(ours, cluster), consumed(confluent_kafka, cluster)
    same_layout(mine, theirs)
    assert (mine["type"], theirs["type"]) == ("consumer", "consumer")
    for found in (mine, theirs):
        group = found["cgrp"]
        assert (group["state"], group["join_state"]) == ("up", "steady")
        assert (group["assignment_size"], group["rebalance_cnt"] >= 1) == (2, True)
    ends = [
        {n: p["hi_offset"] for n, p in _partitions(found) if n != "-1"} for found in (mine, theirs)
    ]
    assert ends[0] == ends[1]


@pytest.mark.slow
@LIBRARIES
def test_poll_calls_the_statistics_callback_at_its_interval(
    library: Any, cluster: FakeCluster
) -> None:
    told: list[Json] = []
    made = time.monotonic()
    producer = library.Producer(settings(cluster, told))
    time.sleep(3.5 * EVERY / 1000)
    assert told == [], "no poll has happened"
    begun = time.monotonic()
    while len(told) < 6 and time.monotonic() < begun + 10.0:
        producer.poll(5.0)
    now = time.monotonic()
    assert now - begun < 5.0, "a poll ends when statistics arrive"
    assert now - made > 5 * EVERY / 1000, "and not earlier"
    assert [one["ts"] for one in told] == sorted(one["ts"] for one in told)
    with suppress(AttributeError):
        producer.close()


@LIBRARIES
@pytest.mark.parametrize("given", [{"statistics.interval.ms": 0}, {"stats_cb": None}])
def test_no_statistics_are_reported_without_an_interval_or_a_callback(
    library: Any, given: Json, cluster: FakeCluster
) -> None:
    told: list[Json] = []
    config = {**settings(cluster, told), **given}
    config = {name: value for name, value in config.items() if value is not None}
    producer = library.Producer(config)
    producer.poll(0.3)
    assert told == []
    with suppress(AttributeError):
        producer.close()


def test_an_exception_of_the_statistics_callback_is_raised_by_poll(cluster: FakeCluster) -> None:
    def refuse(_: str) -> None:
        raise ZeroDivisionError("mine")

    told: list[Json] = []
    producer = ours.Producer({**settings(cluster, told), "stats_cb": refuse})
    raised, deadline = 0, time.monotonic() + 20.0
    while raised < 2:
        assert time.monotonic() < deadline
        try:
            producer.poll(5.0)
        except ZeroDivisionError:
            raised += 1
    producer.close()


def test_serving_the_callback_queue_waits_until_the_periodic_callback_is_due() -> None:
    queue, told = CallbackQueue(Given({})), list[float]()
    queue.put_every(0.05, lambda: told.append(time.monotonic()))
    assert queue.empty()
    begun = time.monotonic()
    assert queue.serve(10.0) == 1
    assert 0.04 < time.monotonic() - begun < 5.0
    assert queue.serve(0.0) == 0
    queue.put(lambda: told.append(0.0))
    assert queue.serve(0.0) == 1, "other callbacks don't wait for it"
    time.sleep(0.06)
    assert not queue.empty()
    assert queue.serve(0.0) == 1


def test_statistics_are_not_reported_for_a_garbage_collected_client(cluster: FakeCluster) -> None:
    told: list[Json] = []
    producer = ours.Producer(settings(cluster, told))
    queue = producer._queue
    producer._producer.close()
    del producer
    gc.collect()
    time.sleep(1.5 * EVERY / 1000)
    queue.serve(0.0)
    assert told == []


@pytest.mark.slow
def test_poll_of_asyncio_clients_calls_the_statistics_callback(cluster: FakeCluster) -> None:
    asyncio.run(asyncio.wait_for(_polled_in_a_loop(cluster), 60.0))


async def _polled_in_a_loop(cluster: FakeCluster) -> None:
    wrote: list[Json] = []
    read: list[Json] = []

    async def note(text: str) -> None:
        read.append(json.loads(text))

    producer = aio.AIOProducer(settings(cluster, wrote))
    config = {**settings(cluster, read, group_id="aio"), "stats_cb": note}
    consumer = aio.AIOConsumer(config)
    await consumer.subscribe(["t"])
    future = await producer.produce("t", b"x")
    await future
    deadline = time.monotonic() + 20.0
    while not (wrote and read):
        assert time.monotonic() < deadline
        await producer.poll(0.05)
        await consumer.poll(0.2)
        await asyncio.sleep(0.05)
    assert (wrote[-1]["type"], read[-1]["type"]) == ("producer", "consumer")
    assert wrote[-1]["txmsgs"] >= 1
    await producer.close()
    await consumer.close()
