"""R-RB-10: a client that never reached a broker raises after 10 s and warns within 5 s."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.asyncio_admin import AsyncAdmin
from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import (
    KafkaError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
    UnsupportedServerError,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.testing import KafkaSimulation

P0 = TopicPartition("t", 0)
LIMIT = 10.0
OPTION = "bootstrap.timeout.ms"
DOCTOR = "odradek doctor --bootstrap-server"


def sent(producer: Any) -> Any:
    """Send a record and do nothing else."""
    return producer.send("t", b"x")


def in_a_block(producer: Any) -> None:
    with producer:
        sent(producer)


def raised_in_a_block(producer: Any) -> None:
    with producer:
        sent(producer).result(timeout=LIMIT)


def flushed(producer: Any) -> None:
    sent(producer)
    producer.flush()


def chosen_by_a_function(keys: Any, *_: Any) -> int:
    return 0


Call = Callable[[Any], Any]
CALLS: dict[str, tuple[str, Call]] = {
    "result": ("producer", lambda p: sent(p).result()),
    "exception": ("producer", lambda p: _raise(sent(p).exception())),
    "flush": ("producer", flushed),
    "close": ("producer", lambda p: (sent(p), p.close())),
    "with": ("producer", in_a_block),
    "with and result": ("producer", raised_in_a_block),
    "partitions_for of a producer": ("producer", lambda p: p.partitions_for("t")),
    "warm": ("producer", lambda p: p.warm("t")),
    "send_many": ("producer", lambda p: p.send_many("t", [b"x"])),
    "init_transactions": ("transactional", lambda p: p.init_transactions()),
    "send with a function": ("by function", sent),
    "cluster_id": ("consumer", lambda c: c.cluster_id()),
    "partitions_for": ("consumer", lambda c: c.partitions_for("t")),
    "list_topics": ("consumer", lambda c: c.list_topics()),
    "end_offsets": ("consumer", lambda c: c.end_offsets([P0])),
    "beginning_offsets": ("consumer", lambda c: c.beginning_offsets([P0])),
    "offsets_for_times": ("consumer", lambda c: c.offsets_for_times({P0: 0})),
    "position": ("consumer", lambda c: c.position(P0)),
    "committed": ("consumer", lambda c: c.committed([P0])),
    "commit": ("consumer", lambda c: c.commit({P0: 1})),
    "list_topics of an admin": ("admin", lambda a: a.list_topics()),
    "describe_cluster": ("admin", lambda a: a.describe_cluster()),
    "create_topics": ("admin", lambda a: a.create_topics([NewTopic("u", 1)])),
    "list_groups": ("admin", lambda a: a.list_groups()),
    "list_offsets": ("admin", lambda a: a.list_offsets({P0: "LATEST"})),
}


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def client(stage: Stage, kind: str, **config: Any) -> Any:
    if kind == "consumer":
        made = stage.consumer(group_id="g", **config)
        made.assign([P0])
        return made
    if kind == "admin":
        return stage.client(Admin, **config)
    own: dict[str, Any] = {"transactional": {"transactional_id": "x"}}.get(kind, {})
    if kind == "by function":
        own["partitioner"] = chosen_by_a_function
    return stage.producer(**own, **config)


def away(seed: int = 1) -> Stage:
    """Create a cluster that no client can reach."""
    stage = Stage(seed)
    every_broker(stage.cluster, "crash")
    return stage


def whole(error: BaseException) -> str:
    """Return the error as Python prints it."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_times_out_after_ten_seconds_with_the_reason(name: str) -> None:
    stage = away()
    kind, call = CALLS[name]
    made = client(stage, kind)
    began = stage.world.now
    with pytest.raises(NoBrokerAvailableError) as caught:
        call(made)
    if kind != "consumer":
        made.close()
    assert stage.world.now - began == pytest.approx(LIMIT, abs=0.2)
    said = whole(caught.value)
    front = stage.cluster.bootstrap_servers
    assert f"no broker could be reached for 10.0 s ({OPTION})" in said
    assert f"odradek doctor --bootstrap-server {front}" in said
    assert f"{front}: connect: ConnectionRefusedByPeerError" in said
    assert said.count("no broker could be reached") == 1, said
    assert "During handling" not in said
    assert not stage.world.hot_loops


@pytest.mark.parametrize("name", ["list_topics", "end_offsets", "describe_cluster", "warm"])
def test_a_timeout_argument_takes_precedence_unless_the_option_is_set(name: str) -> None:
    """If `bootstrap.timeout.ms` is set, it applies to all calls."""
    arguments = {"end_offsets": ([P0],), "warm": ("t",)}.get(name, ())
    kind = {"describe_cluster": "admin", "warm": "producer"}.get(name, "consumer")
    for config, timeout, ends in (
        ({}, 25.0, 25.0),
        ({}, 3.0, 3.0),
        ({"bootstrap_timeout_ms": 20_000}, 25.0, 20.0),
        ({"bootstrap_timeout_ms": 20_000}, None, 20.0),
    ):
        stage = away()
        made = client(stage, kind, **config)
        began = stage.world.now
        with pytest.raises(NoBrokerAvailableError):
            getattr(made, name)(*arguments, timeout=timeout)
        assert stage.world.now - began == pytest.approx(ends, abs=0.2), (config, timeout)


GOVERNED: list[tuple[str, dict[str, Any], float]] = [
    ("list_topics", {"default_api_timeout_ms": 30_000}, 30.0),
    ("describe_cluster", {"default_api_timeout_ms": 30_000}, 30.0),
    ("list_topics", {"metadata_unavailable_timeout_ms": 20_000}, 20.0),
    ("list_topics", {"default_api_timeout_ms": 30_000, "bootstrap_timeout_ms": 5000}, 5.0),
    ("list_topics", {"reconnect_first_jitter_ms": 5000}, 15.0),
    ("result", {"max_block_ms": 30_000}, 30.0),
    ("result", {"max_block_ms": 3000}, 3.0),
    ("result", {"delivery_timeout_ms": 90_000}, 60.0),
    ("result", {"bootstrap_timeout_ms": 30_000}, 30.0),
    ("result", {"max_block_ms": 60_000, "bootstrap_timeout_ms": 4000}, 4.0),
    ("flush", {"max_block_ms": 30_000}, 30.0),
    ("flush", {"delivery_timeout_ms": 40_000}, 40.0),
    ("partitions_for of a producer", {"max_block_ms": 30_000}, 30.0),
    ("with", {"max_block_ms": 20_000}, 20.0),
]


@pytest.mark.parametrize(("name", "config", "ends"), GOVERNED)
def test_a_configured_bootstrap_timeout_replaces_the_default_of_ten_seconds(
    name: str, config: dict[str, Any], ends: float
) -> None:
    stage = away()
    kind, call = CALLS[name]
    made = client(stage, kind, **config)
    began = stage.world.now
    with pytest.raises(KafkaTimeoutError):
        call(made)
    assert stage.world.now - began == pytest.approx(ends, abs=0.3)


def test_the_timeout_of_each_record_starts_at_its_send() -> None:
    stage = away()
    producer = stage.producer()
    began = stage.world.now
    ended: list[float] = []
    for _ in range(3):
        producer.send("t", b"x", on_delivery=lambda *_: ended.append(stage.world.now - began))
        stage.world.advance(4.0)
    with pytest.raises(NoBrokerAvailableError, match="1 record for topic t was not sent"):
        producer.flush()
    assert ended == [pytest.approx(at, abs=0.1) for at in (10.0, 14.0, 18.0)]
    producer.close()


@pytest.mark.parametrize("name", CALLS)
def test_brokers_that_start_in_time_are_found(name: str) -> None:
    stage = away()
    kind, call = CALLS[name]
    made = client(stage, kind)
    stage.world.after(8.0, partial(every_broker, stage.cluster, "restart"))
    call(made)
    assert 8.0 <= stage.world.now <= LIMIT + 1


def test_after_the_first_contact_a_record_has_its_usual_timeout() -> None:
    stage = away()
    producer = stage.producer()
    stage.world.after(9.0, partial(every_broker, stage.cluster, "restart"))
    began = stage.world.now
    missing = producer.send("t", b"x", partition=7)
    unknown = producer.send("nowhere", b"x")
    for future, what in ((missing, "partition 7 of topic t"), (unknown, "topic nowhere")):
        with pytest.raises(KafkaTimeoutError, match=what):
            future.result()
    assert stage.world.now - began == pytest.approx(60.0, abs=0.5)  # limited by max.block.ms
    producer.close()


@pytest.mark.parametrize(("name", "ends"), [("list_topics of an admin", 60.0), ("flush", 120.0)])
def test_after_the_first_contact_calls_have_their_usual_timeout(name: str, ends: float) -> None:
    stage = Stage()
    kind, call = CALLS[name]
    made = client(stage, kind)
    made.cluster_id(5.0)
    if kind == "producer":
        made.warm("t", 5.0)
    every_broker(stage.cluster, "crash")
    began = stage.world.now
    with pytest.raises(NoBrokerAvailableError):
        call(made)
    assert stage.world.now - began == pytest.approx(ends, abs=0.5)


def test_a_client_that_was_interrupted_remembers_its_first_contact() -> None:
    """After an interruption the client has a new engine, which hasn't reached a broker itself."""
    stage = Stage()
    admin = stage.client(Admin)
    admin.cluster_id(5.0)
    every_broker(stage.cluster, "crash")
    admin._calls._renew()
    began = stage.world.now
    with pytest.raises(NoBrokerAvailableError):
        admin.list_topics()
    assert stage.world.now - began == pytest.approx(60.0, abs=0.2)


def test_a_hint_from_another_client_counts_as_first_contact() -> None:
    """A Spark task starts with metadata of the driver, maybe during an outage."""
    stage = Stage()
    driver = stage.consumer(name="driver")
    driver.cluster_id()
    hint = driver.bootstrap_hint()
    every_broker(stage.cluster, "crash")
    settings = stage.settings()
    task = on_host(stage.world.host("task"), Consumer, settings, bootstrap_hint=hint)
    began = stage.world.now
    with pytest.raises(KafkaTimeoutError):
        task.end_offsets([P0])
    assert stage.world.now - began == pytest.approx(60.0, abs=0.2)


def test_a_controller_does_not_count_as_a_broker() -> None:
    """A controller's port answers ApiVersions, but not Metadata."""
    stage = Stage()
    for broker in stage.cluster.brokers.values():
        spoken = broker.spoken
        broker.speak({key: span for key, span in spoken.items() if key != MetadataRequest.API_KEY})
    admin = stage.client(Admin)
    began = stage.world.now
    with pytest.raises(UnsupportedServerError, match="isn't a broker: of .* none is Metadata"):
        admin.list_topics()
    assert stage.world.now - began < 2.0


def test_poll_and_iteration_keep_their_own_timeouts(caplog: pytest.LogCaptureFixture) -> None:
    """Without any broker, a loop over records raises at its timeout instead of just ending.

    A consumer service may start before its brokers, so poll() returns [].
    """
    stage = away()
    consumer = stage.consumer()
    consumer.assign([P0])
    assert consumer.poll(25.0) == []
    for loop in (consumer.records(timeout=15.0), consumer.batches(timeout=15.0)):
        began = stage.world.now
        reason = r"waiting for records: no broker .* \(the timeout of the iterator\)"
        with pytest.raises(NoBrokerAvailableError, match=reason):
            next(loop)
        assert stage.world.now - began == pytest.approx(15.0, abs=0.2)
    assert any(record.levelno == logging.WARNING for record in caplog.records)
    every_broker(stage.cluster, "restart")
    stage.write(range(3))
    assert stage.read(consumer, 1)
    consumer.close()


def black_holes(stage: Stage) -> str:
    every_broker(stage.cluster, "blackhole")
    return "no response"


def refuses(stage: Stage) -> str:
    every_broker(stage.cluster, "crash")
    return "refused"


def hangs(stage: Stage) -> str:
    """Let brokers accept connections and never respond, like stopped processes."""
    every_broker(stage.cluster, "pause")
    return "no response"


def has_no_name(stage: Stage) -> str:
    stage.world.dns.clear()
    return "resolve"


@pytest.mark.parametrize("how", [refuses, black_holes, hangs, has_no_name])
def test_a_warning_names_the_address_and_the_cause_within_five_seconds(
    how: Callable[[Stage], str], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    cause = how(stage)
    producer = stage.producer()
    future = sent(producer)
    stage.world.advance(5.0)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    front = stage.cluster.bootstrap_servers
    assert any(front in text and cause in text for text in warnings), warnings
    assert any("the cluster hasn't been reached yet" in text for text in warnings), warnings
    with pytest.raises(NoBrokerAvailableError):
        future.result()
    producer.close()


@pytest.mark.parametrize(
    ("how", "counted"),
    [
        (refuses, r"bootstrap addresses: \d+ connection attempts, \d+ failures;"),
        (has_no_name, r"bootstrap addresses: \d+ failed name resolutions;"),
    ],
)
def test_the_log_of_a_short_program_names_the_cause_and_the_remedy_once(
    how: Callable[[Stage], str], counted: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    cause = how(stage)
    with pytest.raises(NoBrokerAvailableError), stage.producer() as producer:
        future = sent(producer)
        stage.world.advance(5.0)
        picture = producer.explain()
        future.result()
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    (named,) = [line for line in lines if cause in line]
    front = stage.cluster.bootstrap_servers
    assert named.endswith(f"Check each step from this machine with: {DOCTOR} {front}")
    assert any(re.search(counted, line) for line in lines), lines
    assert "was lost" not in str(picture)
    assert "0 connection attempts" not in str(picture)
    assert ("failed name resolution" in str(picture)) == (how is has_no_name)


def test_a_result_and_a_close_that_both_time_out_name_their_cause_once() -> None:
    stage = away()
    began = stage.world.now
    with pytest.raises(NoBrokerAvailableError) as caught, stage.producer() as producer:
        sent(producer).result(timeout=7.0)
    assert stage.world.now - began == pytest.approx(LIMIT, abs=0.2)
    said = whole(caught.value)
    assert said.count("odradek doctor") == 1, said
    assert "close() failed as well, for the same reason" in said


def test_the_end_of_a_with_block_reports_a_missing_partition() -> None:
    stage = Stage()
    with (
        pytest.raises(KafkaTimeoutError, match="not acknowledged|acknowledgement") as caught,
        stage.producer() as producer,
    ):
        producer.send("t", b"x", partition=7)
    assert "partition 7 of topic 't' doesn't exist, it has 3 partitions" in str(caught.value)


def test_a_call_for_a_missing_topic_raises_an_error_about_the_topic() -> None:
    stage = Stage()
    consumer = stage.consumer()
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        consumer.partitions_for("tt", 5.0)
    assert "did you mean t?" in str(caught.value)
    said = whole(caught.value)
    assert said.count("Traceback") == 1, said


ASYNC: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {}


def asynchronous(kind: type[Any]) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def note(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        ASYNC[call.__name__] = (kind, call)
        return call

    return note


@asynchronous(AsyncProducer)
async def delivery(producer: AsyncProducer) -> None:
    await (await producer.send("t", b"x"))


@asynchronous(AsyncProducer)
async def flush(producer: AsyncProducer) -> None:
    await producer.send("t", b"x")
    await producer.flush()


@asynchronous(AsyncProducer)
async def close(producer: AsyncProducer) -> None:
    await producer.send("t", b"x")
    await producer.close()


@asynchronous(AsyncConsumer)
async def partitions_for(consumer: AsyncConsumer) -> None:
    await consumer.partitions_for("t")


@asynchronous(AsyncAdmin)
async def list_topics(admin: AsyncAdmin) -> None:
    await admin.list_topics()


@pytest.mark.parametrize("name", ASYNC)
async def test_calls_of_asyncio_clients_time_out_after_ten_seconds_too(
    name: str, kafka_simulation: KafkaSimulation
) -> None:
    kafka_simulation.create_topic("t")
    every_broker(kafka_simulation.cluster, "crash")
    kind, call = ASYNC[name]
    made = kind(bootstrap_servers=kafka_simulation.bootstrap_servers)
    began = kafka_simulation.now
    with pytest.raises(NoBrokerAvailableError, match=OPTION):
        await call(made)
    await made.close()
    assert kafka_simulation.now - began == pytest.approx(LIMIT, abs=0.2)


def test_a_loop_over_records_ends_without_an_error_if_the_first_connection_is_slow() -> None:
    stage = Stage()
    for broker in stage.cluster.brokers.values():
        stage.cluster.slow_handshake(broker.id, 1.0)
    consumer = stage.consumer()
    consumer.assign([P0])
    assert list(consumer.records(timeout=0.2)) == []
    consumer.close()


def test_a_longer_connection_setup_timeout_extends_the_bootstrap_timeout() -> None:
    stage = Stage()
    for broker in stage.cluster.brokers.values():
        stage.cluster.slow_handshake(broker.id, 12.0)
    admin = stage.client(Admin, socket_connection_setup_timeout_ms=30_000)
    assert admin.list_topics()
    admin.close()


def unsent(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "broker has been reached" in r.getMessage()]


def test_the_log_counts_records_that_failed_without_a_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = away()
    producer = stage.producer()
    for _ in range(3):
        sent(producer)
    stage.world.advance(LIMIT + 1.0)
    assert unsent(caplog) == [
        "3 records for topic t were not sent, because no broker has been reached"
    ]


def test_records_that_fail_one_after_another_share_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = away()
    producer = stage.producer()
    for _ in range(30):
        sent(producer)
        stage.world.advance(0.5)
    stage.world.advance(LIMIT + 1.0)
    assert len(unsent(caplog)) == 1
    with suppress(KafkaError):
        producer.close(timeout=0)
    assert unsent(caplog) == [
        "1 record for topic t was not sent, because no broker has been reached",
        "29 records for topic t were not sent, because no broker has been reached",
    ]
