"""Test transactions of three clients: each sees the others' commits and aborts, and fences them."""

from __future__ import annotations

import pytest
from tests.interop.other_client import read_all
from tests.interop.our_client import read
from tests.interop.transactional import FencedError, Javas, Librdkafkas, Other

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import FatalTransactionError
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster


def run_transactions(other: Other, topic: str, name: str) -> None:
    """Run two transactions of another client, of which the first is committed."""
    other.begin()
    other.write(topic, f"{name}-1", f"{name}-2")
    other.commit()
    other.begin()
    other.write(topic, f"{name}-aborted")
    other.abort()


def ours(servers: str, transactional_id: str) -> Producer:
    made = Producer(bootstrap_servers=servers, transactional_id=transactional_id)
    made.init_transactions()
    return made


def committed_rows(servers: str, topic: str, count: int) -> list[bytes | None]:
    """Return the values that our consumer reads: `count` values, and any that follow."""
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in (*read(consumer, count), *consumer.poll(0.2))]


def test_each_reads_what_the_others_committed_and_takes_over_their_id(
    cluster: LocalCluster, topic: str
) -> None:
    """Pass one id from Odradek to librdkafka, to Java and back; each leaves a transaction open."""
    servers, place = cluster.bootstrap_servers, TopicPartition(topic, 0)
    cluster.create_topic(topic)
    first = ours(servers, topic)
    with first.transaction():
        first.send(topic, b"ours-1", partition=0)
        first.send_offsets_to_transaction({place: 1}, topic)
    with pytest.raises(ZeroDivisionError), first.transaction():
        first.send(topic, b"aborted", partition=0).result(timeout=30)
        raise ZeroDivisionError
    first.begin_transaction()
    first.send(topic, b"left-open", partition=0).result(timeout=30)
    second = Librdkafkas(servers, topic)
    run_transactions(second, topic, "librdkafkas")
    with pytest.raises(FatalTransactionError):
        first.abort_transaction()
    first.close()
    second.begin()
    second.write(topic, "left-open")
    with Javas(servers, topic) as third:
        with pytest.raises(FencedError):
            second.commit()
        run_transactions(third, topic, "javas")
        third.begin()
        third.offset(topic, topic, 5)
        third.commit()
        third.begin()
        third.write(topic, "left-open")
        third.offset(topic, topic, 99)
        with ours(servers, topic) as fourth:
            with pytest.raises(FencedError):
                third.commit()
            with fourth.transaction():
                fourth.send(topic, b"ours-2", partition=0)
    with Consumer(bootstrap_servers=servers, group_id=topic) as member:
        assert member.committed([place]) == {place: OffsetAndMetadata(5)}
    expected = ["ours-1", "librdkafkas-1", "librdkafkas-2", "javas-1", "javas-2", "ours-2"]
    raw = [value.encode() for value in expected]
    assert committed_rows(servers, topic, len(expected)) == raw
    assert [row.value for row in read_all(servers, topic, 1)[0]] == raw
    printed = cluster.console_consumer(
        topic, "--isolation-level", "read_committed", max_messages=len(expected)
    )
    assert printed.splitlines() == expected
