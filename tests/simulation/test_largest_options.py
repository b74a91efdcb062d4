"""Each time option at its largest value: an accepted value must work.

A time in a request has fewer bits than an option. Larger values were once accepted and failed
at every poll.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.common.config import OPTIONS, Config
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.errors.kafka import InvalidSessionTimeoutError, InvalidTransactionTimeoutError
from odradek.common.options.group import NOT_WITH_NEW
from odradek.common.options.values import ADMIN, CONSUMER, PRODUCER
from odradek.common.types import TopicPartition

ONLY_WAITS = ("reconnect.first.jitter.ms",)
"""Options whose largest value intentionally delays all work by that time."""
TIMES = [n for n in OPTIONS if n.endswith(".ms") and "sasl" not in n and n not in ONLY_WAITS]
BESIDE = {
    "fetch.max.wait.ms": {"request.timeout.ms": 2**31 - 1},
    "heartbeat.interval.ms": {"session.timeout.ms": 2**31 - 1},
}
"""By option: other options to set as well, because the option must be less than they are."""
REFUSED: dict[str, type[KafkaError]] = {
    "session.timeout.ms": InvalidSessionTimeoutError,
    "heartbeat.interval.ms": InvalidSessionTimeoutError,
    "transaction.timeout.ms": InvalidTransactionTimeoutError,
}
"""Options that brokers limit to less than the client does."""


def largest(client: str, name: str) -> dict[str, Any]:
    """Return a configuration with this option at its largest value."""
    base = {n: v for n, v in BESIDE.get(name, {}).items() if client in OPTIONS[n].clients}
    for value in (2**63 - 1, 10**15, 2**31 - 1, 2**31 - 2):
        try:
            Config(client, {"bootstrap.servers": "a:1", **base, name: value})
        except ConfigurationError:
            continue
        return {**base, name: value}
    raise AssertionError(f"{name} takes none of them")


@pytest.fixture
def stage() -> Stage:
    return Stage(3, brokers=2, partitions=2)


@pytest.mark.parametrize("name", [n for n in TIMES if PRODUCER in OPTIONS[n].clients])
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_a_producer_works_with_each_time_option_at_its_largest_value(
    name: str, transactional: bool, stage: Stage
) -> None:
    config = largest(PRODUCER, name)
    if transactional:
        config["transactional.id"] = "x"
    producer = stage.producer(**config)
    if transactional:
        if name in REFUSED:
            with pytest.raises(REFUSED[name]):
                producer.init_transactions(30)
            return
        producer.init_transactions(30)
        producer.begin_transaction()
    sent = [producer.send("t", b"%d" % i, partition=i % 2) for i in range(4)]
    if transactional:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
    assert [one.result(5).offset for one in sent] == [0, 0, 1, 1]
    producer.close(5)


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        (name, protocol)
        for protocol in ("assigned", "classic", "consumer")
        for name in TIMES
        if CONSUMER in OPTIONS[name].clients
        and not (protocol == "consumer" and name in NOT_WITH_NEW)
    ],
)
def test_a_consumer_works_with_each_time_option_at_its_largest_value(
    name: str, protocol: str, stage: Stage
) -> None:
    stage.write(range(4))
    config = largest(CONSUMER, name)
    if protocol != "assigned":
        config |= {"group.id": "g", "group.protocol": protocol}
    consumer = stage.consumer(**config)
    if protocol == "assigned":
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    else:
        consumer.subscribe(["t"])
    if protocol == "classic" and name in REFUSED:
        with pytest.raises(REFUSED[name]):
            consumer.poll(30)
        return
    assert stage.read(consumer, 4) == list(range(4))
    if protocol != "assigned":
        consumer.commit(timeout=5)
    consumer.close()


@pytest.mark.parametrize("name", [n for n in TIMES if ADMIN in OPTIONS[n].clients])
def test_an_admin_client_works_with_each_time_option_at_its_largest_value(
    name: str, stage: Stage
) -> None:
    admin = stage.client(Admin, **largest(ADMIN, name))
    assert admin.describe_cluster().cluster_id
    admin.close()


@pytest.mark.parametrize("idle", [0, -1, 100, 2**63 - 1])
def test_records_are_delivered_with_the_smallest_and_largest_idle_times(
    idle: int, stage: Stage
) -> None:
    """With 0, each connection was once closed before its first use, so no record was delivered."""
    producer = stage.producer(connections_max_idle_ms=idle)
    for i in range(3):
        assert producer.send("t", b"x", partition=0).result(1).offset == i
        stage.world.advance(60.0)
    producer.close(5)
