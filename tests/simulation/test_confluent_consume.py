"""`consume(n)` of confluent_kafka's API: messages count as processed once they were returned."""

from __future__ import annotations

from typing import Any, Literal, Never

import pytest
from tests.simulation.test_wake_ups_confluent import in_virtual_time

from odradek import TopicPartition
from odradek.compat import confluent_kafka as confluent
from odradek.compat.confluent_kafka import callback_queue, consumer_core
from odradek.compat.confluent_kafka.aio import AIOConsumer
from odradek.simulation.coordinators.committed_offsets import Committed, StoredGroupOffsets
from odradek.testing import KafkaSimulation

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
WAIT = 20.0


def settings(simulation: KafkaSimulation, protocol: str, **more: Any) -> dict[str, Any]:
    simulation.create_topic("t", partitions=2)
    write(simulation, 0)
    return {
        "bootstrap.servers": simulation.bootstrap_servers,
        "group.id": "g",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        **more,
    }


def write(simulation: KafkaSimulation, first: int) -> None:
    with simulation.producer() as producer:
        for number in range(first, first + 10):
            producer.send("t", b"%d" % number, partition=number % 2)


@pytest.fixture
def simulation(
    kafka_simulation: KafkaSimulation, monkeypatch: pytest.MonkeyPatch
) -> KafkaSimulation:
    in_virtual_time(kafka_simulation, monkeypatch)
    monkeypatch.setattr(callback_queue, "monotonic", lambda: kafka_simulation.now)
    return kafka_simulation


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TopicPartition, int]]:
    """Return all committed offsets, as the coordinator stores them."""
    found: list[tuple[TopicPartition, int]] = []
    commit = StoredGroupOffsets.commit

    def noted(self: StoredGroupOffsets, partition: TopicPartition, committed: Committed) -> None:
        found.append((partition, committed.offset))
        commit(self, partition, committed)

    monkeypatch.setattr(StoredGroupOffsets, "commit", noted)
    return found


def values(messages: list[confluent.Message]) -> list[int]:
    return sorted(int(m.value() or b"") for m in messages if m.error() is None)


@PROTOCOLS
def test_auto_commit_leaves_out_messages_that_consume_still_gathers(
    simulation: KafkaSimulation, protocol: str, commits: list[tuple[TopicPartition, int]]
) -> None:
    """A program that is killed inside `consume` has received none of the gathered messages."""
    consumer = confluent.Consumer(settings(simulation, protocol))
    consumer.subscribe(["t"])
    begin = simulation.world.now
    assert values(consumer.consume(100, WAIT)) == list(range(10))
    assert simulation.world.now - begin >= WAIT
    assert [offset for _, offset in commits if offset] == []
    assert consumer.consume(100, 1.0) == []
    assert {*commits} >= {(TopicPartition("t", 0), 5), (TopicPartition("t", 1), 5)}
    consumer.close()


@PROTOCOLS
def test_consume_returns_the_gathered_messages_when_a_rebalance_waits(
    simulation: KafkaSimulation, protocol: Literal["classic", "consumer"]
) -> None:
    """If `consume` kept waiting, the next owner of the partitions would read the messages again."""
    given = settings(simulation, protocol)
    calls: list[str] = []
    others: list[int] = []
    consumer = confluent.Consumer(given)
    consumer.subscribe(["t"], on_revoke=lambda *_: calls.append("revoked"))
    other = simulation.consumer(group_id="g", group_protocol=protocol, auto_offset_reset="earliest")
    simulation.world.after(5.0, lambda: other.subscribe(["t"]))
    begin = simulation.world.now
    found = consumer.consume(100, WAIT)
    assert values(found) == list(range(10))
    assert simulation.world.now - begin < WAIT - 5.0
    assert calls == []
    write(simulation, 10)
    for _ in range(60):
        found += consumer.consume(100, 1.0)
        others += [int(r.value or b"") for r in other.poll(1.0)]
    assert "revoked" in calls
    assert sorted(values(found) + others) == list(range(20))
    assert others
    consumer.close()
    other.close()


async def test_the_asyncio_consumer_commits_messages_only_after_they_were_returned(
    simulation: KafkaSimulation, commits: list[tuple[TopicPartition, int]]
) -> None:
    consumer = AIOConsumer(settings(simulation, "classic"))
    await consumer.subscribe(["t"])
    assert values(await consumer.consume(100, WAIT)) == list(range(10))
    assert [offset for _, offset in commits if offset] == []
    await consumer.close()
    assert {*commits} >= {(TopicPartition("t", 0), 5), (TopicPartition("t", 1), 5)}


def test_messages_of_an_interrupted_consume_are_returned_again_and_not_committed(
    simulation: KafkaSimulation, commits: list[tuple[TopicPartition, int]]
) -> None:
    given = settings(simulation, "classic")

    def stats(_: str) -> None:
        if simulation.world.now > 8.0:
            raise ValueError("from a callback")

    given |= {"statistics.interval.ms": 4000, "stats_cb": stats}
    consumer = confluent.Consumer(given)
    consumer.subscribe(["t"])
    with pytest.raises(ValueError, match="from a callback"):
        consumer.consume(100, 60.0)
    assert [offset for _, offset in commits if offset] == []
    assert values(consumer.consume(10, WAIT)) == list(range(10))
    consumer.close()


class RaisesOnce:
    """A callback whose first call raises."""

    raised = False

    def __call__(self, *_: object) -> None:
        if not self.raised:
            self.raised = True
            raise ZeroDivisionError


def errors(messages: list[confluent.Message]) -> list[tuple[int, int | None, int | None]]:
    return sorted(
        (e.code(), m.partition(), m.offset()) for m in messages if (e := m.error()) is not None
    )


@PROTOCOLS
def test_errors_that_an_interrupted_consume_gathered_are_returned_again(
    simulation: KafkaSimulation, protocol: str
) -> None:
    more = {"enable.partition.eof": True, "stats_cb": RaisesOnce(), "statistics.interval.ms": 7000}
    consumer = confluent.Consumer(settings(simulation, protocol, **more))
    consumer.subscribe(["t", "missing"])
    with pytest.raises(ZeroDivisionError):
        consumer.consume(100, WAIT)
    found = consumer.consume(100, 5.0)
    assert values(found) == list(range(10))
    ends, missing = confluent.KafkaError._PARTITION_EOF, confluent.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert errors(found) == [(ends, 0, 5), (ends, 1, 5), (missing, 0, None)]
    consumer.close()


@PROTOCOLS
def test_ctrl_c_while_messages_are_created_loses_none(
    simulation: KafkaSimulation, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = confluent.Consumer(settings(simulation, protocol))
    consumer.subscribe(["t"])

    def interrupted(_: object) -> Never:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(consumer_core, "messages_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.consume(100, WAIT)
    assert values(consumer.consume(100, 5.0)) == list(range(10))
    consumer.close()
