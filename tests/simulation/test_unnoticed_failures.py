"""Failed records whose results the program doesn't check are counted in one WARNING."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.scene import Stage

from odradek import AsyncProducer, Producer
from odradek.common.errors.kafka import TopicAuthorizationError
from odradek.simulation.brokers.injected_errors import Injection
from odradek.testing import KafkaSimulation

ALWAYS = 1 << 60
DENIED = TopicAuthorizationError.code or 0


def forbid(cluster: Any, api: str = "Produce", times: int = ALWAYS) -> None:
    """Let all brokers refuse records as if the ACL were missing."""
    for broker in cluster.brokers.values():
        broker.injections.append(Injection(api, DENIED, times))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "looked at no result" in r.getMessage()]


def raises(future: Any) -> type[BaseException]:
    with pytest.raises(TopicAuthorizationError) as caught:
        future.result()
    return caught.type


def send_all(producer: Producer) -> None:
    for n in range(1000):
        producer.send("t", b"%d" % n)


def test_flush_logs_the_number_of_failed_records(caplog: pytest.LogCaptureFixture) -> None:
    """As in a loop of the README, no future is kept, and the block ends without an error."""
    stage = Stage()
    forbid(stage.cluster)
    with stage.producer(client_id="orders", linger_ms=5) as producer:
        send_all(producer)
        assert producer.flush() == 0
        (line,) = told(caplog)
    assert line.startswith(
        "[orders] 1000 records were not delivered, and the program looked at no result of them. "
        "The first error is TopicAuthorizationError: TOPIC_AUTHORIZATION_FAILED (29)"
    )
    assert line.endswith("Pass on_delivery, or check the futures that send() returns")
    assert told(caplog) == [line]


def test_a_flush_after_each_record_does_not_log_a_line_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    forbid(stage.cluster)
    with stage.producer() as producer:
        for _ in range(100):
            producer.send("t", b"one")
            producer.flush()
        assert stage.world.now < 60
        assert len(told(caplog)) == 1
    first, last = told(caplog)
    assert "] 1 record was" in first
    assert "] 99 records were" in last


def test_close_logs_the_number_of_failed_records(caplog: pytest.LogCaptureFixture) -> None:
    """Records of a topic that doesn't exist fail before they are in a batch."""
    stage = Stage()
    with stage.producer(max_block_ms=1000, allow_auto_create_topics=False) as producer:
        producer.send("absent", b"one")
        producer.send("absent", b"two")
    (line,) = told(caplog)
    assert "2 records were not delivered" in line


def test_failures_are_logged_once_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    forbid(stage.cluster)
    with stage.producer() as producer:
        for _ in range(90):
            producer.send("t", b"one")
            stage.world.advance(1.0)
        first, second = told(caplog)
    assert "1 record was" in first or "2 records were" in first
    assert 50 < int(second.split("] ")[1].split()[0]) < 70


@pytest.mark.parametrize(
    "look",
    [
        lambda futures: [one.exception() for one in futures],
        lambda futures: [raises(one) for one in futures],
        lambda futures: [one.add_done_callback(lambda done: done.exception()) for one in futures],
    ],
    ids=["exception", "result", "callback"],
)
@pytest.mark.parametrize("flushed", [True, False])
def test_a_program_that_checks_results_gets_no_warning(
    look: Callable[[Any], object], flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    forbid(stage.cluster)
    with stage.producer() as producer:
        futures = [producer.send("t", b"%d" % n, partition=n % 3) for n in range(9)]
        if flushed:
            producer.flush()
        look(futures)
        producer.flush()
        producer.send("t", b"one", on_delivery=lambda error, metadata: None)
        del futures
    assert told(caplog) == []


def test_failures_with_a_kept_future_are_not_reported_yet(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    forbid(stage.cluster)
    with stage.producer() as producer:
        futures = [producer.send("t", b"%d" % n, partition=0) for n in range(9)]
        producer.flush()
        stage.world.advance(100.0)
        assert all(one.done() for one in futures)  # done() doesn't retrieve the error
        assert told(caplog) == []
        del futures
    (line,) = told(caplog)
    assert "9 records" in line


@pytest.mark.parametrize("kind", ["arrow", "many"])
def test_a_failure_of_many_rows_is_logged_if_the_program_does_not_check_it(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    forbid(stage.cluster)

    def send(producer: Producer) -> Any:
        values = [b"%d" % n for n in range(20)]
        if kind == "many":
            return producer.send_many("t", values)
        return producer.send_arrow("t", pa.table({"value": values}))

    with stage.producer() as producer:
        assert send(producer).exception() is not None
        assert told(caplog) == []
        send(producer)
        producer.flush()
        (line,) = told(caplog)
    assert "20 records" in line


def test_failures_in_a_transaction_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    with stage.producer(transactional_id="one") as producer:
        producer.init_transactions()
        forbid(stage.cluster, times=1)
        with pytest.raises(TopicAuthorizationError), producer.transaction():
            producer.send("t", b"one")
    assert told(caplog) == []


async def test_an_asyncio_producer_logs_only_results_that_are_not_awaited(
    kafka_simulation: KafkaSimulation, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_simulation.create_topic("t")
    forbid(kafka_simulation.cluster)
    servers = kafka_simulation.bootstrap_servers
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        with pytest.raises(TopicAuthorizationError):
            await producer.send_and_wait("t", b"one")
        with pytest.raises(TopicAuthorizationError):
            await (await producer.send("t", b"one"))
        await producer.flush()
        assert told(caplog) == []
        for _ in range(5):
            await producer.send("t", b"one")
        await producer.flush()
    (line,) = told(caplog)
    assert "5 records" in line


def test_nothing_is_logged_without_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    stage = Stage()
    with stage.producer() as producer:
        send_all(producer)
    assert caplog.records == []
