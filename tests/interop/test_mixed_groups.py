"""Our consumer in one group with librdkafka's and Java's: members come and go, nothing is lost.

Every record is read exactly once, in order within a partition, whoever leads and divides: each
client gives back what it committed before another goes on there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.group_members import Jvm, Observed, start_member
from tests.interop.other_client import Row, write_all

from odradek.testing import LocalCluster

PARTITIONS, ROWS = 6, 60
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    running = Jvm()
    yield running
    running.close()


class Story:
    """One group from its first member to its last."""

    def __init__(self, cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str) -> None:
        self._cluster, self._jvm, self._topic, self._strategy = cluster, jvm, topic, strategy
        self._observed = Observed()
        self._members: dict[str, Any] = {}
        self._written = 0
        cluster.create_topic(topic, partitions=PARTITIONS)

    def join(self, *names: str) -> None:
        """Start members; a name is the client's and a number."""
        for name in names:
            kind = name.rstrip("0123456789")
            strategy = self._strategy
            if kind == "java":
                strategy = f"org.apache.kafka.clients.consumer.{JAVA_NAMES[strategy]}"
            config = {
                **CLASSIC,
                "group.id": f"group of {self._topic}".replace(" ", "-"),
                "partition.assignment.strategy": strategy,
            }
            self._members[name] = start_member(
                kind, name, self._observed, self._cluster, self._jvm, self._topic, config
            )
        self._settle()

    def leave(self, *names: str) -> None:
        """Stop members."""
        for name in names:
            self._members.pop(name).stop()
        self._settle()

    def _settle(self) -> None:
        """Write meanwhile, wait until the partitions are divided, and all is read."""
        self._write()
        observed = self._observed
        if self._members:
            observed.wait(lambda: observed.divided(self._members, PARTITIONS), "even division")
            self._write()
            counts = dict.fromkeys(range(PARTITIONS), self._written // PARTITIONS)
            observed.wait(lambda: observed.complete(counts), f"end ({self._written} rows)")
        else:
            observed.wait(lambda: not observed.owned, "end of all members")

    def _write(self) -> None:
        rows = [Row(None, b"%d" % n) for n in range(self._written, self._written + ROWS)]
        write_all(self._cluster.bootstrap_servers, self._topic, rows, range(PARTITIONS))
        self._written += ROWS

    def check(self) -> None:
        """Once each; and whoever had a partition read it in order."""
        read = self._observed.read
        assert len({(p, offset) for _, p, offset in read}) == len(read)
        last: dict[tuple[str, int], int] = {}
        for name, partition, offset in read:
            assert offset > last.get((name, partition), -1)
            last[name, partition] = offset
        assert not self._observed.errors


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_with_librdkafka_and_java(
    cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str
) -> None:
    story = Story(cluster, jvm, topic, strategy)
    story.join("ours1")
    story.join("java1")  # ours leads
    story.join("confluent1", "ours2")
    story.leave("ours1")  # one of the others leads from now on
    story.leave("java1")
    story.join("java2")
    story.leave("ours2")
    story.join("ours3")  # follows whoever leads
    story.leave("confluent1", "java2")
    story.leave("ours3")
    story.check()


def test_the_sticky_assignor_with_java(cluster: LocalCluster, jvm: Jvm, topic: str) -> None:
    """librdkafka knows no eager sticky assignor."""
    story = Story(cluster, jvm, topic, "sticky")
    story.join("java1")
    story.join("ours1", "ours2")
    story.leave("java1")
    story.join("java2")
    story.leave("ours1")
    story.leave("ours2", "java2")
    story.check()
