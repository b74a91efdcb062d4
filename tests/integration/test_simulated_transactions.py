"""Compare the simulated transaction coordinators with Kafka's by the same raw requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.test_simulated_groups import simulated
from tests.raw_connection import RawConnection
from tests.unit.simulation.transactional import NEW, OLD, Producer

from odradek.common.errors import kafka as errors
from odradek.protocol.messages import find_coordinator as fc
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.testing import LocalCluster

GROUP, TRANSACTION = 0, 1
RETRIED = {
    error.code
    for error in (
        errors.ConcurrentTransactionsError,
        errors.CoordinatorLoadInProgressError,
        errors.CoordinatorNotAvailableError,
        errors.NotCoordinatorError,
        errors.NotEnoughReplicasError,
        errors.NotLeaderOrFollowerError,
        errors.RequestTimedOutError,  # if followers are slow; the batch is sent again
        errors.UnknownTopicOrPartitionError,
    )
}


class ClusterScope:
    """Cluster with the interface that `Producer` expects: brokers are addresses."""

    def __init__(self, servers: str, names: str) -> None:
        self.names = names
        self._lines: dict[tuple[str, int], RawConnection] = {}
        host, _, port = servers.partition(":")
        self._door = (host, int(port))
        self.cluster: Any = SimpleNamespace(
            leader=self._leader, groups=SimpleNamespace(index=lambda group: group)
        )

    def ask(self, place: tuple[str, int], body: Any, version: int) -> Any:
        if place not in self._lines:
            self._lines[place] = RawConnection(*place)
        return self._lines[place].ask(body, version)

    def _find(self, key: str, kind: int) -> tuple[str, int]:
        deadline = time.monotonic() + 20.0
        while True:
            request = fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = self.ask(self._door, request, 4).coordinators[0]
            if found.error_code == 0:
                return found.host, found.port
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.05)

    def coordinator(self, name: str) -> tuple[str, int]:
        return self._find(name, TRANSACTION)

    def _leader(self, topic: str, partition: Any) -> tuple[str, int]:
        if topic != "t":  # __consumer_offsets: `partition` is the group id, see above
            return self._find(partition, GROUP)
        answer = self.ask(self._door, MetadataRequest([MetadataRequestTopic(name=topic)]), 12)
        places = {b.node_id: (b.host, b.port) for b in answer.brokers}
        leaders = {p.partition_index: p.leader_id for p in answer.topics[0].partitions}
        return places[leaders[partition]]

    def init(
        self, name: str, expected: tuple[int, int] = (-1, -1), *, timeout: int = 60_000
    ) -> Any:
        request = InitProducerIdRequest(name, timeout, *expected)
        return self.ask(self.coordinator(name), request, 5)

    def producer(self, name: str, version: int) -> Producer:
        name = f"{self.names}-{name}"
        retried(lambda: int(self.init(name).error_code))
        answer = self.init(name)
        made: Any = self
        return Producer(made, name, answer.producer_id, answer.producer_epoch, version)

    def close(self) -> None:
        for line in self._lines.values():
            line.close()


def retried(ask: Callable[[], int | None]) -> int | None:
    """Repeat a request until its response isn't a retriable error."""
    deadline = time.monotonic() + 20.0
    while True:
        code = ask()
        if code not in RETRIED or time.monotonic() > deadline:
            return code
        time.sleep(0.05)


def ends(room: ClusterScope, version: int) -> list[Any]:
    """Commit, repeat it, and then abort; abort another transaction; end two that never began."""
    producer = room.producer(f"ends{version}", version)
    epoch = producer.epoch
    said: list[Any] = [retried(lambda: producer.send(b"a")), producer.end()]
    said.append(producer.epoch - epoch)
    producer.epoch = epoch
    said.append(retried(producer.end))
    producer.epoch = epoch
    said.append(retried(lambda: producer.end(commit=False)))
    producer = room.producer(f"ends{version}", version)
    said += [retried(lambda: producer.send(b"b")), producer.end(commit=False)]
    producer = room.producer(f"ends{version}", version)
    before = producer.epoch
    said += [producer.end(), retried(lambda: producer.end(commit=False)), producer.epoch - before]
    return said


def zombies(room: ClusterScope, version: int) -> list[Any]:
    """Return the errors of a fenced producer, with old and new request versions."""
    old = room.producer(f"zombie{version}", version)
    said: list[Any] = [retried(lambda: old.send(b"a"))]
    room.producer(f"zombie{version}", version)
    said += [old.send(b"b", version=n) for n in (9, 11, 12)]
    said += [old.add(1, version=n) for n in (0, 1, 2, 3)]
    said += [old.add_offsets(version=n) for n in (1, 2, 3)]
    said += [retried(lambda n=n: old.commit_offset(3, n)) for n in (3, 5)]  # type: ignore[misc]
    said.append(retried(old.end))
    return said


def strangers(room: ClusterScope, version: int) -> list[Any]:
    """Send batches and offsets without a transaction, with unknown ids and unknown members."""
    producer = room.producer(f"stranger{version}", version)
    said: list[Any] = [retried(lambda n=n: producer.send(b"a", version=n)) for n in (9, 11)]  # type: ignore[misc]
    said += [retried(lambda n=n: producer.commit_offset(3, n)) for n in (3, 4)]  # type: ignore[misc]
    said.append(
        retried(
            lambda: producer.commit_offset(3, 5, generation_id_or_member_epoch=4, member_id="m")
        )
    )
    made: Any = room
    other = Producer(made, f"{room.names}-nobody", 999_999, 0, version)
    said += [retried(lambda: other.send(b"a", version=11)), retried(lambda: other.add(0))]
    said += [retried(other.end), producer.add(17)]
    return said


def again(room: ClusterScope, version: int) -> list[Any]:
    """Send InitProducerId with an id and epoch (KIP-360)."""
    producer = room.producer(f"again{version}", version)
    who = (producer.id, producer.epoch)
    first, second = room.init(producer.name, who), room.init(producer.name, who)
    said = [first.producer_epoch - producer.epoch, second.producer_epoch - producer.epoch]
    room.producer(f"again{version}", version)
    said.append(room.init(producer.name, who).error_code)
    said.append(room.init(producer.name, (999_999, 0)).error_code)
    said.append(room.init(producer.name, timeout=0).error_code)
    said.append(room.init(producer.name, timeout=900_001).error_code)
    nobody = InitProducerIdRequest("", 60_000)
    said.append(room.ask(room.coordinator(producer.name), nobody, 5).error_code)
    return said


@pytest.fixture(scope="module")
def scopes(cluster: LocalCluster) -> Iterator[tuple[ClusterScope, ClusterScope]]:
    """Return real brokers, and simulated ones on real sockets."""
    cluster.create_topic("t", partitions=2)
    with (
        simulated() as servers,
        closing(ClusterScope(servers, "script")) as made,
        closing(ClusterScope(cluster.bootstrap_servers, "script")) as real,
    ):
        yield real, made


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("script", [ends, zombies, strangers, again])
def test_simulated_and_real_coordinators_send_the_same_responses(
    scopes: tuple[ClusterScope, ClusterScope],
    script: Callable[[ClusterScope, int], list[Any]],
    version: int,
) -> None:
    real, made = scopes
    ours, kafkas = script(made, version), script(real, version)
    assert [
        (n, *both) for n, both in enumerate(zip(ours, kafkas, strict=True)) if both[0] != both[1]
    ] == []
