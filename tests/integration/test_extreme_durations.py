"""Set every duration to the smallest and largest values of its range; a client sends and reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.volume import some

from odradek import Consumer, Producer, TopicPartition
from odradek.common.options.table import OPTIONS
from odradek.common.options.values import Option
from odradek.errors import ClientBrokenError, ConfigurationError, KafkaError
from odradek.testing import FakeCluster

P0 = TopicPartition("t", 0)
VALUES = (0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1)
DURATIONS = [o for o in OPTIONS.values() if o.parse.kind == "milliseconds"]
ALWAYS_SET = {"connections.max.idle.ms": -1, "metadata.max.age.ms": 30 * 86_400_000}
"""Options that are set in all cases, so that no earlier deadline hides a large one."""
MAY_TIME_OUT = {
    "default.api.timeout.ms", "max.block.ms", "request.timeout.ms", "delivery.timeout.ms",
    "bootstrap.timeout.ms", "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
}  # fmt: skip
"""Durations with which calls may time out if the value is 0 or 1 ms."""
FIRST_JITTER = "reconnect.first.jitter.ms"
"""The first connection waits for a random part of this duration."""


def allowed(option: Option, value: int) -> bool:
    try:
        option.parse(option.name, value)
    except ConfigurationError:
        return False
    return True


CASES = [
    (o.name, v)
    for o in DURATIONS
    for v in VALUES
    if allowed(o, v) and (o.name != FIRST_JITTER or v < 2)
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        made.create_topic("t", partitions=1)
        yield made


def send_and_read(cluster: FakeCluster, given: dict[str, int]) -> None:
    of = {
        kind: {n: v for n, v in given.items() if kind in OPTIONS[n].clients}
        for kind in ("producer", "consumer")
    }
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer({**servers, **of["producer"]}) as producer:
        for value in (b"x", b"y"):
            sent = producer.send("t", value, partition=0)
            producer.flush(60)  # independent of linger.ms
            sent.result(60)
    with Consumer({**servers, "auto.offset.reset": "earliest", **of["consumer"]}) as consumer:
        consumer.assign([P0])
        records = consumer.poll(60)
        while not records:
            records = consumer.poll(60)
        assert records[0].value == b"x"


def test_duration_options_are_found_in_the_option_tables() -> None:
    assert len(DURATIONS) >= 30
    assert len(CASES) >= 100


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, 2**63 - 1])
def test_a_client_works_with_all_durations_at_large_values(
    cluster: FakeCluster, value: int
) -> None:
    given = {o.name: value for o in DURATIONS if allowed(o, value) and o.name != FIRST_JITTER}
    given.pop("fetch.max.wait.ms", None)  # must be less than request.timeout.ms
    given.pop("linger.ms", None)  # limited by delivery.timeout.ms and request.timeout.ms
    for name in ("request.timeout.ms", "heartbeat.interval.ms"):  # other options must exceed them
        given.pop(name, None)
    send_and_read(cluster, given)


@pytest.mark.parametrize(("name", "value"), some(CASES, 60))
def test_a_client_works_with_one_duration_at_an_extreme_value(
    cluster: FakeCluster, name: str, value: int
) -> None:
    try:
        send_and_read(cluster, {**ALWAYS_SET, name: value})
    except ConfigurationError:
        return  # in conflict with the default of another option
    except KafkaError as error:
        if isinstance(error, ClientBrokenError) or name not in MAY_TIME_OUT or value > 1:
            raise
