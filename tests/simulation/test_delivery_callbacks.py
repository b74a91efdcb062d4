"""`on_delivery` and callbacks of futures: called once and in order; errors in them are harmless."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.produce_script import make

from odradek.clients.producer.batch import RecordMetadata
from odradek.common.errors import KafkaTimeoutError, RecordTooLargeError
from odradek.network.flow import START, Signal, Wait
from odradek.runtime.hosts.record_future import ArrowFuture, RecordFuture

one_broker = partial(make, 1, brokers=1, partitions=2)


def test_callbacks_are_called_in_order_without_poll() -> None:
    world, _, producer = one_broker()
    told: list[tuple[BaseException | None, RecordMetadata]] = []
    for n in range(10):
        producer.send(
            "t",
            b"%d" % n,
            partition=1,
            timestamp_ms=n,
            on_delivery=lambda e, m: told.append((e, m)),
        )
    assert not told
    world.advance(1.0)
    assert told == [(None, RecordMetadata("t", 1, n, n)) for n in range(10)]


def test_the_callback_of_a_failed_record_gets_its_partition_and_no_offset() -> None:
    world, cluster, producer = one_broker(
        **{"delivery.timeout.ms": 1000, "request.timeout.ms": 500}
    )
    producer.partitions_for("t", timeout=5)
    cluster.go_silent(next(iter(cluster.brokers)))
    told: list[tuple[BaseException | None, RecordMetadata]] = []
    future = producer.send(
        "t", b"1", partition=1, timestamp_ms=7, on_delivery=lambda e, m: told.append((e, m))
    )
    world.advance(1.1)
    ((error, place),) = told
    assert isinstance(error, KafkaTimeoutError)
    assert error is future.exception(timeout=0)
    assert place == RecordMetadata("t", 1, -1, 7)


def test_an_error_raised_by_send_calls_no_callback() -> None:
    _, _, producer = one_broker()
    told: list[object] = []
    said = r"exceeds max\.request\.size \(1048576\): raise it, and the topic's max\.message"
    with pytest.raises(RecordTooLargeError, match=said):
        producer.send("t", b"x" * (1 << 21), on_delivery=lambda e, m: told.append((e, m)))
    producer.close()
    assert not told


def test_an_exception_in_a_callback_is_logged_and_has_no_other_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, _, producer = one_broker()

    def fail(*_: object) -> None:
        raise RuntimeError("a callback's own fault")

    with caplog.at_level(logging.ERROR, logger="odradek"):
        first = producer.send("t", b"1", on_delivery=fail)
        second = producer.send("t", b"2")
        second.add_done_callback(fail)
        rows = producer.send_arrow("t", pa.table({"value": [b"3"]}))
        rows.add_done_callback(fail)
        producer.flush(timeout=5)
    assert [type(r.exc_info[1]) for r in caplog.records if r.exc_info] == [RuntimeError] * 3
    assert producer.send("t", b"4").result(timeout=5).offset >= 0  # the client continues
    assert first.result().offset >= 0
    assert rows.result()[0].records == 1


def test_a_callback_added_after_the_result_is_called_immediately() -> None:
    _, _, producer = one_broker()
    future = producer.send("t", b"1")
    future.result(timeout=5)
    told: list[RecordFuture | ArrowFuture] = []
    future.add_done_callback(told.append)
    assert told == [future]


def test_flush_returns_the_number_of_unfinished_records_or_names_it_in_its_error() -> None:
    _, cluster, producer = one_broker()
    assert producer.flush() == 0
    for n in range(5):
        producer.send("t", b"%d" % n, partition=0)
    assert producer.flush(5) == 0
    cluster.go_silent(next(iter(cluster.brokers)))
    for n in range(7):
        producer.send("t", b"%d" % n, partition=n % 2)
    with pytest.raises(KafkaTimeoutError) as caught:
        producer.flush(1.0)
    assert caught.value.remaining == 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer._engine, "flush", lambda deadline: never())
        with pytest.raises(KafkaTimeoutError) as caught:
            producer.flush(1.0)
    assert caught.value.remaining == 7
    cluster.heal()
    assert producer.flush(60) == 0


def never() -> Any:
    """Yield a wait that never ends, as if the I/O thread were late."""
    yield START
    yield Wait((Signal(),))
