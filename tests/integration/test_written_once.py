"""Check R-PR-1 on real brokers: assumptions of the simulation, and rejected records."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.other_client import read_all

from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors.kafka import InvalidRecordError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.record import BatchBuilder
from odradek.testing import LocalCluster


@pytest.fixture
def cluster(mortal_cluster: LocalCluster) -> LocalCluster:
    """Return the cluster that other tests of this group use, since a second one is expensive."""
    return mortal_cluster


def batches(cluster: LocalCluster, topic: str) -> list[tuple[int, ...]]:
    """Return epoch, first sequence and count of each batch in the logs of two partitions.

    Kafka's own tool reads the logs.
    """
    data = cluster.directory / "broker-0" / "data"
    logs = ",".join(str(data / f"{topic}-{n}" / f"{0:020}.log") for n in range(2))
    text = cluster.run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", logs])
    found = re.findall(r"count: (\d+) baseSequence: (\d+) .*producerEpoch: (\d+)", text)
    return [(int(epoch), int(sequence), int(count)) for count, sequence, epoch in found]


def alter(
    producer: Producer, sequence: int, code: int, whether: Callable[[int], bool]
) -> list[int]:
    """Turn the n-th response to the batch that has this sequence into an error if `whether(n)`.

    Returns a list to which the original error codes are added.
    """
    batch_completion = producer._engine.sender.batch_completion
    settle = batch_completion.settle
    seen: list[int] = []

    def altered(
        batch: Any, answer: PartitionProduceResponse | None, error: Any, **more: Any
    ) -> None:
        if answer is not None and batch.sequence == sequence:
            seen.append(answer.error_code)
            if whether(len(seen)):
                answer.error_code, answer.base_offset = code, -1
        settle(batch, answer, error, **more)

    batch_completion.settle = altered  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("code", [7, pytest.param(20, marks=pytest.mark.long)])
def test_a_batch_with_altered_responses_is_written_once(
    cluster: LocalCluster, topic: str, code: int
) -> None:
    """Reproduce a former duplicate: the third retry came after more than five later batches."""
    cluster.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=100) as producer:
        producer.send(topic, b"000", partition=0).result(timeout=60)
        seen = alter(producer, 1, code, lambda n: n <= 3)
        futures = []
        for n in range(1, 60):
            futures.append(producer.send(topic, b"%03d" % n * 30, partition=0))
            time.sleep(0.005)
        producer.flush(timeout=30)
    assert len(seen) == 4
    assert set(seen) == {0}  # the broker recognized each retry
    assert [f.result(timeout=0).offset for f in futures] == list(range(1, 60))
    rows = read_all(cluster.bootstrap_servers, topic, 1)[0]
    assert [int((r.value or b"")[:3]) for r in rows] == list(range(60))


@pytest.mark.long  # shorter tests: simulation/test_written_once.py
def test_a_restarted_leader_knows_only_the_last_batch(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """Restart a leader with 3 unacknowledged batches: the first 2 get OUT_OF_ORDER_SEQUENCE."""
    cluster = mortal_cluster
    cluster.create_topic(topic, partitions=1, replication_factor=1)
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "batch.size": 100,
        "linger.ms": 0,
        "retry.backoff.ms": 200,
        "retry.backoff.max.ms": 200,
    }
    with Producer(config) as producer:
        producer.send(topic, b"000", partition=0).result(timeout=60)
        ended = threading.Event()  # until it is set, no response is accepted
        seen = [alter(producer, n, 7, lambda _: not ended.is_set()) for n in (1, 2, 3)]
        futures = [producer.send(topic, b"%03d" % n * 30, partition=0) for n in (1, 2, 3)]
        deadline = time.monotonic() + 10
        while not all(seen) and time.monotonic() < deadline:
            time.sleep(0.02)
        leader = producer._engine.metadata.snapshot.leader(topic, 0)  # type: ignore[union-attr]
        assert leader is not None
        cluster.stop(leader.id)
        ended.set()
        cluster.start(leader.id)
        assert [f.result(timeout=60).offset for f in futures] == [-1, -1, 3]
        assert [codes[-1] for codes in seen] == [45, 45, 0]
        assert {code for codes in seen for code in codes[:-1]} <= {0, 6}  # 6: not the leader yet
        producer.send(topic, b"004", partition=0).result(timeout=60)
        assert producer._engine.sender.identity.bumps == 0
    rows = read_all(cluster.bootstrap_servers, topic, 1)[0]
    assert [int((r.value or b"")[:3]) for r in rows] == list(range(5))


def test_one_partition_starts_a_new_epoch_without_init_producer_id(
    cluster: LocalCluster, topic: str
) -> None:
    """Start a new epoch in one partition: its leader accepts sequence 0 and rejects the old epoch.

    Other partitions of the same producer keep the old epoch, in the same requests.
    """
    cluster.create_topic(topic, partitions=2, replication_factor=3)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in (0, 1):
            producer.send(topic, b"first", partition=partition).result(timeout=60)
        engine = producer._engine
        identity = engine.sender.identity.current
        numbering = engine.sender._partitions.get(TopicPartition(topic, 0)).numbering
        numbering.ended = numbering.lost = True  # as after a batch that expired without a response
        for n in range(3):
            futures = [producer.send(topic, b"%d" % n, partition=p) for p in (0, 1)]
            assert [f.result(timeout=60).offset for f in futures] == [n + 1, n + 1]
        late = BatchBuilder(10_000, None)
        late.append(None, b"late", (), 0)
        sealed = late.build(producer_id=identity[0], producer_epoch=identity[1], base_sequence=1)
        leader = engine.metadata.snapshot.leader(topic, 0)  # type: ignore[union-attr]
        assert leader is not None
        body = ProduceRequest(
            None, -1, 10_000, [TopicProduceData(topic, b"", [PartitionProduceData(0, sealed)])]
        )
        known = engine.metadata.snapshot.topic(topic)  # type: ignore[union-attr]
        assert known is not None
        body.topic_data[0].topic_id = known.topic_id
        answer = producer._call(
            lambda deadline: engine.ask(leader.address, body, ProduceResponse, deadline), 20, "it"
        )
        assert answer.responses[0].partition_responses[0].error_code == 47
        assert producer.send(topic, b"3", partition=0).result(timeout=60).offset == 4
        assert engine.sender.identity.current == identity
    epoch = identity[1]
    of_first = [(epoch, 0, 1), *((epoch + 1, n, 1) for n in range(4))]
    assert batches(cluster, topic) == [*of_first, *((epoch, n, 1) for n in range(4))]


def test_records_without_a_key_are_rejected_one_by_one_in_a_compacted_topic(
    cluster: LocalCluster, topic: str
) -> None:
    """Check KIP-467: each rejected record has its own error; the others are written in order."""
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 3, {"cleanup.policy": "compact"})])
    bad = {3, 4, 17, 99}
    with Producer(bootstrap_servers=servers, linger_ms=200) as producer:
        futures = [
            producer.send(topic, b"%d" % n, None if n in bad else b"k%d" % n, partition=0)
            for n in range(100)
        ]
        producer.flush(timeout=60)
        for n, future in enumerate(futures):
            error = future.exception(timeout=0)
            assert isinstance(error, InvalidRecordError) if n in bad else error is None
        good = [n for n in range(100) if n not in bad]
        assert [futures[n].result(timeout=0).offset for n in good] == list(range(96))
        assert "key" in str(futures[3].exception(timeout=0))
        keys = [None if n in bad else b"a%d" % n for n in range(100)]
        table = pa.table(
            {"key": pa.array(keys, pa.binary()), "value": [b"%d" % n for n in range(100)]}
        )
        rows = producer.send_arrow(topic, table)
        column = rows.errors(timeout=60)
        assert column is not None
        assert {n for n, text in enumerate(column.to_pylist()) if text is not None} == bad
        (place,) = rows.acknowledged()
        assert (place.first_offset, place.records) == (96, 96)
        producer.send(topic, b"last", b"k", partition=0).result(timeout=60)
        assert producer._engine.sender.identity.bumps == 0
    found = [r.value for r in read_all(servers, topic, 1)[0]]
    assert found == [b"%d" % n for n in (*good, *good)] + [b"last"]
