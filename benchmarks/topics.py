"""Start the broker and fill its topics: loaded once per shape, or empty to produce into.

In: shapes (record size, partitions and so on). Out: topics with records in them. One real broker,
started as by Kafka's own scripts, with Kafka's defaults except for those that METHOD.md lists. Must
not: create or delete topics with the client under test.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from benchmarks import data, peers
from benchmarks.rows import Shape
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from odradek.testing import LocalCluster

BROKER_CONFIG = {
    # Kafka's defaults replace LocalCluster's own, smaller values.
    "num.network.threads": "3",
    "num.io.threads": "8",
    # Topics are deleted during the benchmark, and their files must be deleted soon.
    "log.segment.delete.delay.ms": "1000",
    "log.index.size.max.bytes": "1048576",
}
HEAP = "1g"
_LOADERS = (("franz-go", "load"), ("odradek", "load"))
_LOAD_TIMEOUT = 300.0
_SETTLE = 1.0


def new_cluster(*, tls: bool = False) -> LocalCluster:
    """Return a cluster of one broker; with `tls` the broker has a second, encrypted listener."""
    return LocalCluster(
        brokers=1,
        config=BROKER_CONFIG,
        heap=HEAP,
        full_jvm=True,
        security="SSL" if tls else "PLAINTEXT",
    )


class Topics:
    """The topics that the benchmarks use in one cluster."""

    def __init__(self, cluster: LocalCluster, folder: Path, records: int) -> None:
        # Clients connect to the broker itself, because a forwarder would slow them down.
        self.bootstrap = cluster.inner_servers
        self._encrypted = cluster.broker_addresses[0]
        self._ca = cluster.authority.certificate if cluster.security == "SSL" else None
        self.records = records
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._loaded: set[str] = set()
        self._made = 0

    def metadata_answer(self) -> Path:
        """Return a file with the response of a cluster of 10,000 topics with 50 partitions each."""
        path = self._folder / "metadata"
        if not path.exists():
            path.write_bytes(data.metadata_answer())
        return path

    def access(self, *, tls: bool) -> list[str]:
        """Return a driver's arguments: the broker's address and, with TLS, the authority's file."""
        if not tls:
            return ["--bootstrap", self.bootstrap]
        if self._ca is None:
            raise RuntimeError("this cluster was made without TLS")
        return ["--bootstrap", self._encrypted, "--ca", str(self._ca)]

    def records_of(self, shape: Shape) -> int:
        """Return the number of a topic's records, which is a multiple of its partitions' number."""
        per_partition = max(1, int(self.records * shape.share) // shape.partitions)
        return per_partition * shape.partitions

    def pool(self, shape: Shape) -> Path:
        """Return the file with the pool of records of this size."""
        path = self._folder / f"pool-{shape.value_size}"
        if not path.exists():
            data.write_pool(path, shape.value_size)
        return path

    def empty(self, shape: Shape) -> str:
        """Return a new topic without records."""
        self._made += 1
        topic = f"empty-{self._made}"
        self._create(topic, shape.partitions)
        return topic

    def loaded(self, shape: Shape) -> str:
        """Return the topic of this shape, loaded if necessary."""
        if shape.topic not in self._loaded:
            self._create(shape.topic, shape.partitions)
            self._load(shape)
            self._loaded.add(shape.topic)
        return shape.topic

    def end(self, topic: str) -> int:
        """Return the sum of the end offsets of a topic's partitions."""
        described = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
        last = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = {TopicPartition(topic, n): last for n in described}
        found = self._admin.list_offsets(places, request_timeout=30)
        return sum(future.result(30).offset for future in found.values())

    def drop(self, topic: str) -> None:
        """Delete a topic, whose files the broker deletes a second later."""
        self._loaded.discard(topic)
        with suppress(KafkaException):
            self._admin.delete_topics([topic])[topic].result(30)

    def _create(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
            if len(found) == partitions and all(p.leader >= 0 for p in found.values()):
                return
            time.sleep(0.1)
        raise RuntimeError(f"topic {topic} has no leaders")

    def _load(self, shape: Shape) -> None:
        count = self.records_of(shape)
        for client, mode in _LOADERS:
            built = peers.command(client, mode)
            if built.command is not None:
                break
        else:
            raise RuntimeError(f"no client can load topics: {built.reason}")
        done = subprocess.run(
            [*built.command, "--bootstrap", self.bootstrap, "--topic", shape.topic,
             "--partitions", str(shape.partitions), "--records", str(count),
             "--pool", str(self.pool(shape)), "--codec", shape.codec,
             "--batch-size", str(shape.batch_size)],
            capture_output=True, text=True, timeout=_LOAD_TIMEOUT, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"loading {shape.topic} failed: {done.stderr.strip()[-500:]}")
        if json.loads(done.stdout)["records"] != count:
            raise RuntimeError(f"{shape.topic} wasn't loaded whole")
        time.sleep(_SETTLE)
