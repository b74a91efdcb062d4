"""Test group consumers on real brokers without faults: start, commits, slow applications."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.other_client import Row, write_all
from tests.own_time import held

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import CommitFailedError
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

PARTITIONS = 4
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def member(cluster: LocalCluster, topic: str, **config: Any) -> Consumer:
    given = {"auto_offset_reset": "earliest", "group_id": f"group-{topic}", **config}
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, **given)


def write(cluster: LocalCluster, topic: str, numbers: range) -> None:
    rows = [Row(None, b"%d" % n) for n in numbers]
    write_all(cluster.bootstrap_servers, topic, rows, list(range(PARTITIONS)))


def parts(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(PARTITIONS)]


@PROTOCOLS
def test_a_group_of_one_starts_at_once_and_resumes_at_its_offsets(
    cluster: LocalCluster, topic: str, protocol: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    write(cluster, topic, range(40))
    config = {"group_protocol": protocol, "max_poll_interval_ms": 20_000}
    with member(cluster, topic, **config) as first:
        first.subscribe([topic])
        rows = 0
        for batch in first.batches(timeout=60):
            rows += batch.num_rows
            if rows == 40:
                break
    times = []
    for run in range(2):
        write(cluster, topic, range(8))
        began = time.monotonic()
        with member(cluster, topic, **config) as again:
            again.subscribe([topic])
            with held() as not_run:
                records = again.poll(20)
            times.append(time.monotonic() - began - not_run.total)
            while len(records) < 8:
                records += again.poll(5)
            assert sorted({r.offset for r in records}) == [10 + 2 * run, 11 + 2 * run]
            if run == 1:
                row = pa.table({"topic": [topic], "partition": [3], "offset": [500]})
                again.commit(row)
                assert again.committed(parts(topic)[3:])[parts(topic)[3]] == OffsetAndMetadata(501)
    # The broker takes a second for a KIP-848 assignment. A member that had not left would keep its
    # partitions for twenty seconds.
    assert min(times) < (2.5 if protocol == "classic" else 5.0), times
    with member(cluster, topic) as observer:
        found = observer.committed(parts(topic))
        # An offset that the caller commits, even past the position, isn't replaced by an automatic
        # commit until more of that partition is read.
        ends = dict.fromkeys(parts(topic), OffsetAndMetadata(14, "", 0))
        assert found == {**ends, parts(topic)[3]: OffsetAndMetadata(501)}


@PROTOCOLS
def test_an_application_that_exceeds_max_poll_interval_loses_its_partitions(
    cluster: LocalCluster, topic: str, protocol: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    write(cluster, topic, range(4))
    log: list[str] = []
    config = {"group_protocol": protocol, "max_poll_interval_ms": 500}
    with member(cluster, topic, **config) as slow:
        slow.subscribe(
            [topic],
            on_assigned=lambda _, p: log.append(f"assigned {len(p)}"),
            on_revoked=lambda _, p: log.append(f"revoked {len(p)}"),
            on_lost=lambda _, p: log.append(f"lost {len(p)}"),
        )
        slow.poll(20)
        time.sleep(1.5)
        with pytest.raises(CommitFailedError, match="max.poll.interval.ms"):
            slow.commit({parts(topic)[0]: 1})
        end = time.monotonic() + 20
        while log.count("assigned 4") < 2 and time.monotonic() < end:
            slow.poll(0.5)
        assert log == ["assigned 4", "lost 4", "assigned 4"]
