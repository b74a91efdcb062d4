"""Run programs for confluent-kafka through odradek's module while a real broker moves.

One broker is enough, since a cluster of one is entirely unavailable while it moves, and moving
three takes three times the processor time; `make test-long` moves three (`test_outages`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka.admin
import pytest

import odradek.compat.confluent_kafka.admin
from odradek.compat.confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from odradek.compat.confluent_kafka.admin import AdminClient, NewTopic
from odradek.compat.confluent_kafka.aio import AIOConsumer, AIOProducer
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

PATIENCE = 60.0
"""Timeout of one call in seconds; a move takes a part of this time."""
COUNT = 600
MOVES_AT = (200, 400)
"""Record numbers at which the broker moves; the second move is graceful."""


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared({"brokers": 1})
    yield running
    clusters.put_right(running)


@pytest.fixture
def admin(mortal_cluster: LocalCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": mortal_cluster.bootstrap_servers}) as made:
        yield made


@pytest.fixture
def topics(admin: AdminClient, topic: str) -> tuple[str, str]:
    """Return two topics of this test: the source and the target."""
    names = f"{topic}-source", f"{topic}-target"
    made = admin.create_topics([NewTopic(name, 2, 1) for name in names])
    for name in names:
        made[name].result(PATIENCE)
    return names


def reading(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "copies",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def writing(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    settings = {name.replace("__", "."): value for name, value in more.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, **settings}


def written(cluster: LocalCluster, topic: str) -> None:
    """Write numbers to both partitions."""
    producer = Producer(writing(cluster))
    for number in range(COUNT):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(PATIENCE) == 0
    producer.close()


def taken(consumer: Consumer, count: int) -> list[Message]:
    """Return `count` messages and skip transient errors."""
    found: list[Message] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count}"
        found += [m for m in consumer.consume(count - len(found), 0.5) if m.error() is None]
    return found


def all_of(cluster: LocalCluster, topic: str) -> list[list[int]]:
    """Return the values that a reader of committed records finds, by partition.

    The last transaction's markers may be written after its commit was acknowledged, so the first
    reported end of a partition may come before its last records.
    """
    consumer = Consumer(reading(cluster, group__id="readers", enable__partition__eof=True))
    consumer.assign([TopicPartition(topic, n, 0) for n in range(2)])
    found: list[list[int]] = [[], []]
    ended: set[int | None] = set()
    while len(ended) < 2 or sum(map(len, found)) < COUNT:
        message = consumer.poll(PATIENCE)
        if message is None:
            break
        if (error := message.error()) is None:
            found[message.partition() or 0].append(int(message.value()))
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return found


EVENS_AND_ODDS = [list(range(0, COUNT, 2)), list(range(1, COUNT, 2))]


def compare(found: list[list[int]]) -> None:
    """Assert that no record is missing or repeated; the error lists those that are."""
    for numbers, expected in zip(found, EVENS_AND_ODDS, strict=True):
        missing = sorted({*expected} - {*numbers})
        repeated = [n for n, times in Counter(numbers).items() if times > 1]
        assert (missing, repeated) == ([], [])
    assert found == EVENS_AND_ODDS


@pytest.mark.parametrize("moves", [pytest.param(MOVES_AT, marks=pytest.mark.long), MOVES_AT[1:]])
def test_a_copy_recovers_from_moves(
    mortal_cluster: LocalCluster, topics: tuple[str, str], moves: tuple[int, ...]
) -> None:
    source, target = topics
    written(mortal_cluster, source)
    reports: list[tuple[KafkaError | None, int, int | None]] = []
    told: list[tuple[str, int]] = []

    def report(error: KafkaError | None, message: Message) -> None:
        reports.append((error, message.partition() or 0, message.offset()))

    def tell(name: str) -> Callable[[Any, list[TopicPartition]], None]:
        return lambda _, partitions: told.append((name, len(partitions)))

    consumer = Consumer(reading(mortal_cluster))
    producer = Producer(writing(mortal_cluster))
    consumer.subscribe([source], on_assign=tell("assigned"), on_revoke=tell("revoked"))
    for number in range(COUNT):
        if number in moves:
            mortal_cluster.move(graceful=number == MOVES_AT[1])
        (message,) = taken(consumer, 1)
        producer.produce(
            target,
            message.value(),
            partition=message.partition() or 0,
            headers={"from": str(message.offset())},
            on_delivery=report,
        )
        if number % 50 == 49:
            assert producer.flush(PATIENCE) == 0
            consumer.commit(asynchronous=False)
    assert [len(reports), len(producer)] == [COUNT, 0]
    assert {error for error, _, _ in reports} == {None}
    by_partition = [[at for _, n, at in reports if n == number] for number in range(2)]
    assert by_partition == [list(range(COUNT // 2))] * 2  # each value once, in order
    done = consumer.committed(consumer.assignment(), PATIENCE)
    assert [p.offset for p in done] == [COUNT // 2] * 2
    consumer.close()
    producer.close()
    assert told[0] == ("assigned", 2)
    assert told[-1] == ("revoked", 2)
    compare(all_of(mortal_cluster, target))


@pytest.mark.long
def test_transactions_recover_from_two_moves(
    mortal_cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    written(mortal_cluster, source)
    consumer = Consumer(reading(mortal_cluster))
    producer = Producer(writing(mortal_cluster, transactional__id=f"copy of {source}"))
    producer.init_transactions(PATIENCE)
    consumer.subscribe([source])
    done, moves, aborted = 0, list(MOVES_AT), False
    while done < COUNT:
        messages = taken(consumer, min(50, COUNT - done))
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition() or 0)
        if moves and done >= moves[0]:
            # The flush ends only when the previous transaction's markers are written. If the only
            # broker is killed before, Kafka 4.4.0 may leave them out ("Couldn't find leader
            # endpoint for partitions ... likely deleted"): that transaction then stays open.
            assert producer.flush(PATIENCE) == 0
            mortal_cluster.move()
            moves.pop(0)
        if done >= 100 and not aborted:  # abort this transaction once and repeat it
            aborted = True
            producer.abort_transaction(PATIENCE)
            for partition in consumer.committed(consumer.assignment(), PATIENCE):
                consumer.seek(partition)
            continue
        positions = consumer.position(consumer.assignment())
        while True:
            try:
                producer.send_offsets_to_transaction(
                    positions, consumer.consumer_group_metadata(), PATIENCE
                )
                producer.commit_transaction(PATIENCE)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        done += len(messages)
    consumer.close()
    producer.close()
    assert not moves
    compare(all_of(mortal_cluster, target))


@pytest.mark.long
def test_an_asyncio_copy_recovers_from_two_moves(
    mortal_cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    written(mortal_cluster, source)

    async def copy() -> list[int]:
        told: list[int] = []

        async def assigned(_: AIOConsumer, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.append(len(partitions))

        producer = AIOProducer(writing(mortal_cluster))
        async with AIOConsumer(reading(mortal_cluster)) as consumer, producer:
            await consumer.subscribe([source], on_assign=assigned)
            done, moves = 0, list(MOVES_AT)
            while done < COUNT:
                if moves and done >= moves[0]:
                    moves.pop(0)
                    await asyncio.to_thread(mortal_cluster.move)
                messages = [m for m in await consumer.consume(50, 1.0) if m.error() is None]
                deliveries = [
                    await producer.produce(target, m.value(), partition=m.partition() or 0)
                    for m in messages
                ]
                for message in await asyncio.gather(*deliveries):
                    assert message.error() is None
                done += len(messages)
                if messages:
                    await consumer.commit(asynchronous=False)
            found = await consumer.committed(await consumer.assignment(), PATIENCE)
            assert [p.offset for p in found] == [COUNT // 2] * 2
        return told

    assert asyncio.run(asyncio.wait_for(copy(), 3 * PATIENCE))[0] == 2
    compare(all_of(mortal_cluster, target))


@pytest.mark.long  # shorter tests: the test below, test_confluent_programs.py
def test_admin_calls_work_on_real_brokers_before_and_after_a_move(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    heard: list[KafkaError] = []
    config = {"bootstrap.servers": mortal_cluster.bootstrap_servers, "error_cb": heard.append}
    with AdminClient(config, logger=logging.getLogger("administration")) as admin:
        new = NewTopic(topic, 3, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([new], validate_only=True)[topic].result(PATIENCE)
        assert topic not in admin.list_topics(timeout=PATIENCE).topics
        admin.create_topics([new])[topic].result(PATIENCE)
        with pytest.raises(KafkaException) as again:
            admin.create_topics([new])[topic].result(PATIENCE)
        assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        mortal_cluster.move()
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE)
        assert [len(described.partitions), described.name] == [3, topic]
        cluster = admin.describe_cluster().result(PATIENCE)
        assert [cluster.cluster_id, len(cluster.nodes)] == [mortal_cluster.cluster_id, 1]
        admin.delete_topics([topic])[topic].result(PATIENCE)
        with pytest.raises(KafkaException) as gone:
            admin.delete_topics([topic])[topic].result(PATIENCE)
        assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        admin.poll(0)
        assert heard  # errors of the connections that the move closed


def test_alter_configs_replaces_options_as_confluent_kafka_does(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """Compare `AlterConfigs`, which resets options that it doesn't name, of both libraries."""
    config = {"bootstrap.servers": mortal_cluster.bootstrap_servers}
    steps = [{"retention.ms": "5000", "max.message.bytes": "900"}, {"retention.ms": "6000"}, {}]
    for module in (odradek.compat.confluent_kafka.admin, confluent_kafka.admin):
        client: Any = module.AdminClient(config)
        with client as admin:
            name = f"{topic}-{module.__name__.partition('.')[0]}"
            admin.create_topics([module.NewTopic(name, 1, 1)])[name].result(PATIENCE)
            for values, code in (
                ({"retention.ms": "x"}, "INVALID_CONFIG"),
                *((s, None) for s in steps),
            ):
                resource: Any = module.ConfigResource("topic", name, set_config=values)
                with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
                    done = admin.alter_configs([resource])[resource]
                error = done.exception(PATIENCE)
                assert (error and error.args[0].name()) == code
                until = time.monotonic() + PATIENCE
                while topic_options(admin, resource) != ([] if code else sorted(values.items())):
                    assert time.monotonic() < until  # brokers apply the change a little later


def topic_options(admin: Any, resource: Any) -> list[tuple[str, str]]:
    """Return the options that were set for the topic itself."""
    entries = admin.describe_configs([resource])[resource].result(PATIENCE)
    return sorted((n, e.value) for n, e in entries.items() if e.source == 1)
