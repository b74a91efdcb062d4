"""Share one Spark session and one real cluster among all Spark tests: both start slowly."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)
from pyspark.sql import DataFrame, SparkSession
from tests.raw_connection import RawConnection
from tests.soak.spark_driver import spark_home
from tests.spark import worker_daemon
from tests.spark.class_archives import java_options

from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.testing import LocalCluster, ensure_java_environment

Row = tuple[bytes | None, bytes | None]
_numbers = itertools.count(1)


HERE = Path(__file__).parent
LONG = (
    "log_changes",
    "parity",
    "pipelines",
    "misconfigured",
    "demo",
    "outages",
    "replanned",
    "faults",
)
"""Modules that take the longest; they start first, so that no process runs alone at the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> None:
    """Schedule modules in this order; by default those with many tests would go first."""
    if config.getvalue("dist") == "loadfile":
        config.option.loadscopereorder = False


def rank(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    return LONG.index(name) if name in LONG else len(LONG)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    ours = [item for item in items if item.path.parent == HERE]
    for item in ours:
        item.add_marker(pytest.mark.spark)
    yield
    ours = sorted((item for item in items if item.path.parent == HERE), key=rank)
    items[:] = [item for item in items if item.path.parent != HERE] + ours


class Topics:
    """Create topics and records with another client than ours."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._settings: dict[str, str | int | float | bool] = {
            **cluster.librdkafka_config(),
            "log_level": 0,  # librdkafka would log each broker that a test stops
        }
        self._admin = AdminClient(self._settings)

    def create(self, partitions: int = 2, name: str | None = None, **config: str) -> str:
        topic = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(
            30
        )
        return topic

    def wait_for_one_id(self, topic: str) -> None:
        """Wait until all brokers (without TLS) agree on a topic's id after it was recreated."""
        until = time.monotonic() + 30.0
        while len(found := {self._id_at(at, topic) for at in self.cluster.broker_addresses}) > 1:
            assert time.monotonic() < until, found
            time.sleep(0.05)

    @staticmethod
    def _id_at(address: str, topic: str) -> UUID:
        host, _, port = address.rpartition(":")
        with RawConnection(host, int(port)) as broker:
            asked = MetadataRequest([MetadataRequestTopic(name=topic)])
            topic_id: UUID = broker.ask(asked, 12).topics[0].topic_id
        return topic_id

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        done = self._admin.create_partitions([NewPartitions(topic, partitions)])
        done[topic].result(30)

    def forget(self, topic: str, offset: int) -> None:
        """Delete the records of partition 0 before an offset, as retention does."""
        wanted = TopicPartition(topic, 0, offset)
        done = self._admin.delete_records([wanted])
        next(iter(done.values())).result(30)

    def fill(self, topic: str, rows: Sequence[Row], partitions: int = 2, **more: Any) -> None:
        """Send the rows, row n to partition n modulo `partitions`."""
        # Idempotent, because otherwise a batch that a new leader rejects is written after the next
        # one.
        producer = Producer({**self._settings, "linger.ms": 20, "enable.idempotence": True})
        for n, (key, value) in enumerate(rows):
            producer.produce(topic, value, key, partition=n % partitions, **more)
            producer.poll(0)
        assert producer.flush(60) == 0


def spark_options(config: Mapping[str, str]) -> dict[str, str]:
    """Return a client's settings as options of the data source."""
    return {f"kafka.{name}": value for name, value in config.items()}


def numbered(start: int, stop: int) -> list[Row]:
    return [(f"k{n}".encode() if n % 3 else None, f"{n}".encode()) for n in range(start, stop)]


# Internal topics have one replica: followers that poll for new records twice a second would take a
# third of the processor time of two brokers, which mostly wait for Spark.
NO_COPIES = {
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, config=NO_COPIES) as running:
        yield running


USERS = {"spark": "xyzzy-plugh-23"}


@pytest.fixture(scope="session")
def guarded() -> Iterator[LocalCluster]:
    """Return a broker that requires TLS and a password."""
    with LocalCluster(
        brokers=1, security="SASL_SSL", mechanisms=["SCRAM-SHA-512"], users=USERS
    ) as running:
        yield running


@pytest.fixture(scope="module")  # a module can override the cluster
def topics(cluster: LocalCluster) -> Topics:
    return Topics(cluster)


@pytest.fixture(scope="session", autouse=True)
def _quick_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make every Spark that a test starts, here or as a program, start faster."""
    ensure_java_environment()
    home = spark_home(tmp_path_factory.mktemp("quick"), python=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", java_options())
        patch.setenv("SPARK_HOME", str(home))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start the session of all tests, without code generation.

    Code generation takes a third of the time of small queries. The programs that tests start (the
    README's, the declarative pipelines, Spark 4.2.0) use code generation, the default.
    """
    ensure_java_environment()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: Any = SparkSession.builder
    session: SparkSession = (
        builder.master("local[2]")
        .appName("odradek-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.python.daemon.module", worker_daemon.__name__)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()
    gateway: Any = session.sparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


@pytest.fixture
def options(cluster: LocalCluster) -> dict[str, str]:
    """Return the options with which source and sink reach the cluster."""
    return spark_options(cluster.client_config())


@pytest.fixture
def read(spark: SparkSession, options: dict[str, str]) -> Callable[..., DataFrame]:
    """Return a function for batch reads: `read(topic, option=value)`."""

    def load(topic: str, schema: str | None = None, **more: str) -> DataFrame:
        reader = spark.read.format("odradek").options(**options, subscribe=topic).options(**more)
        return (reader.schema(schema) if schema else reader).load()

    return load


class Query:
    """Stream from a topic to Parquet with a checkpoint; can be started repeatedly."""

    def __init__(
        self, spark: SparkSession, folder: Path, config: Mapping[str, str], topic: str
    ) -> None:
        self._spark, self._folder = spark, folder
        self.config, self._topic = config, topic
        self._running: list[Any] = []

    def start(self, trigger: dict[str, Any], **options: str) -> Any:
        frame = (
            self._spark.readStream.format("odradek")
            .options(**spark_options(self.config))
            .option("subscribe", self._topic)
            .options(**options)
            .load()
        )
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(self._folder / "rows"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        self._running.append(query)
        return query

    def run(self, trigger: dict[str, Any] | None = None, **options: str) -> Any:
        """Run to the end (default trigger: AvailableNow); raise the query's error."""
        query = self.start(trigger or {"availableNow": True}, **options)
        assert query.awaitTermination(60), "the query didn't end"
        return query

    def values(self) -> list[int]:
        rows = self._spark.read.parquet(str(self._folder / "rows")).select("value").collect()
        return sorted(int(row.value) for row in rows)

    def wait_for(self, count: int, query: Any, timeout: float = 60.0) -> None:
        """Wait until `count` records are committed."""
        deadline = time.monotonic() + timeout
        while self._committed(query) < count:
            failure = query.exception()
            assert failure is None, str(failure)
            assert time.monotonic() < deadline, f"{query.lastProgress}"
            time.sleep(0.1)

    def _committed(self, query: Any) -> int:
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def offsets(self) -> list[dict[str, Any]]:
        """Return the logged offsets of each batch."""
        folder = self._folder / "checkpoint" / "offsets"
        batches = sorted(int(p.name) for p in folder.iterdir() if p.name.isdecimal())
        texts = [(folder / str(number)).read_text() for number in batches]
        return [json.loads(text.splitlines()[-1]) for text in texts]

    def stop(self) -> None:
        for query in self._running:
            query.stop()


@pytest.fixture
def stream(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> Iterator[Callable[[str], Query]]:
    made: list[Query] = []

    def make(topic: str) -> Query:
        made.append(Query(spark, tmp_path, cluster.client_config(), topic))
        return made[-1]

    yield make
    for query in made:
        query.stop()
