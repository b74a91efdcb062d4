"""Every way to read a log returns the same records once, and ends at the same position.

The logs contain records of several producers, transactions that commit, abort or stay open, and so
markers without records around them. Each read begins anywhere and changes its way repeatedly. (A
loop over an iterator once stayed forever at an aborted transaction.)
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.completed_fetch import CompletedFetch
from odradek.common.types import TopicPartition
from odradek.record import DecodedRecords
from odradek.simulation import SimulatedCluster, World

TP = TopicPartition("t", 0)
WAYS = ("poll", "poll one", "records", "poll_arrow", "batches")
ENDS = ("none", "commit", "abort")
Row = tuple[int, bytes | None]
"""An offset and a value."""


def write(
    world: World, cluster: SimulatedCluster, acts: list[tuple[str, int, bool]]
) -> dict[str, list[Row]]:
    """Run `acts`: the end of each transaction, its number of records, whether they have headers.

    Returns the rows that a reader of each isolation level must find.
    """
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    plain = on_host(world.host("plain"), Producer, servers)
    chain = on_host(world.host("chain"), Producer, {**servers, "transactional.id": "x"})
    chain.init_transactions(timeout=10)
    every: list[Row] = []
    committed: list[Row] = []
    for number, (ends, count, header) in enumerate(acts):
        producer = plain if ends == "none" else chain
        if producer is chain:
            chain.begin_transaction()
        rows = []
        for n in range(count):
            value = b"%d/%d" % (number, n)
            headers = [("h", value)] if header else None
            sent = producer.send("t", value, partition=0, headers=headers).result(timeout=10)
            rows.append((sent.offset, value))
        every += rows
        if ends != "abort":
            committed += rows
        if producer is chain:
            chain.commit_transaction(10) if ends == "commit" else chain.abort_transaction(10)
    plain.close()
    chain.close()
    world.advance(1.0)  # a commit doesn't wait for its markers
    return {"read_uncommitted": every, "read_committed": committed}


def read(consumer: Consumer, way: str) -> list[Row]:
    """Call the reading method that `way` names once, and return its rows."""
    if way.startswith("poll_"):
        batch = consumer.poll_arrow(timeout=0.5)
        return [] if batch is None else _rows(batch)
    if way.startswith("poll"):
        most = 1 if way == "poll one" else 500
        return [(r.offset, r.value) for r in consumer.poll(timeout=0.5, max_records=most)]
    if way == "batches":
        return [row for batch in consumer.batches(timeout=0.5) for row in _rows(batch)]
    found = []
    for record in consumer.records(timeout=0.5):
        found.append((record.offset, record.value))
        if len(found) == 3:
            break
    return found


def _rows(batch: pa.RecordBatch) -> list[Row]:
    columns = batch.to_pydict()
    return list(zip(columns["offset"], columns["value"], strict=True))


def end_in_time(patch: pytest.MonkeyPatch) -> None:
    """Fail a loop that decodes without end, instead of hanging."""
    decode_on, count = CompletedFetch._decode_on, 0

    def counted(self: CompletedFetch, *wanted: Any) -> DecodedRecords:
        nonlocal count
        count += 1
        assert count < 1000, "it decodes without end"
        return decode_on(self, *wanted)

    patch.setattr(CompletedFetch, "_decode_on", counted)


@pytest.mark.simulation
@given(
    acts=st.lists(
        st.tuples(st.sampled_from(ENDS), st.integers(0, 4), st.booleans()), min_size=1, max_size=8
    ),
    ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=5),
    level=st.sampled_from(("read_committed", "read_uncommitted")),
    start=st.floats(0, 1),
)
def test_all_ways_of_reading_return_the_same_records(
    acts: list[tuple[str, int, bool]], ways: list[str], level: str, start: float
) -> None:
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=1)
    readable = write(world, cluster, acts)
    end = cluster.log("t", 0).end_offset
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": level}
    consumer = on_host(world.host("reader"), Consumer, settings)
    consumer.assign([TP])
    begin = int(start * end)
    consumer.seek(TP, begin)
    expected = [row for row in readable[level] if row[0] >= begin]
    found: list[Row] = []
    turn = 0
    with pytest.MonkeyPatch.context() as patch:
        end_in_time(patch)
        while len(found) < len(expected) or consumer.position(TP, timeout=5) < end:
            found += read(consumer, ways[turn % len(ways)])
            turn += 1
            assert turn < 100, f"{found} at {consumer.position(TP)} of {end}"
        assert found == expected
        assert not read(consumer, ways[0])
    consumer.close()
