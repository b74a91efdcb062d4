"""Test the sink on a real cluster; another client checks the committed records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.interop.other_client import Row, read_all
from typer.testing import CliRunner

import odradek
from odradek.cli.pipeline import app as pipeline
from odradek.testing import LocalCluster


def committed(
    cluster: LocalCluster, topic: str, partitions: int = 2, *, whole: bool = True
) -> list[Row]:
    """Return the records of a topic that a read_committed consumer of librdkafka sees."""
    found = read_all(cluster.librdkafka_config(), topic, partitions, whole=whole)
    return [row for rows in found.values() for row in rows]


def test_a_batch_writes_all_columns_to_the_topics_of_its_rows(
    spark: SparkSession, cluster: LocalCluster, topics: Any, options: dict[str, str]
) -> None:
    one, two = topics.create(partitions=3), topics.create(partitions=2)
    rows = spark.range(20_000, numPartitions=2).select(
        f.expr("if(id % 5 = 0, null, cast(id as string)) as key"),
        f.expr("if(id % 7 = 0, null, encode(concat('v', id), 'utf-8')) as value"),
        f.expr(f"if(id % 3 = 0, '{one}', '{two}') as topic"),
        f.expr("if(id % 2 = 0, 1, null) as partition"),
        f.expr("if(id % 4 = 0, array(struct('h' as key, binary('x') as value)), null) as headers"),
        f.expr("id as ignored"),
    )
    rows.write.format("odradek").options(**options).mode("append").save()
    for topic, partitions in ((one, 3), (two, 2)):
        found = committed(cluster, topic, partitions)
        ids = [n for n in range(20_000) if (n % 3 == 0) is (topic == one)]
        assert Counter((row.key, row.value, row.headers) for row in found) == Counter(
            (
                f"{n}".encode() if n % 5 else None,
                f"v{n}".encode() if n % 7 else None,
                () if n % 4 else (("h", b"x"),),
            )
            for n in ids
        )
        by_key = {int(row.key): row.partition for row in found if row.key is not None}
        assert all(by_key[n] == 1 for n in ids if n % 5 and n % 2 == 0)
    long = f.expr("if(id = 15000, repeat('x', 2000000), 'y') as value")
    for frame, given, words in (
        (spark.range(16_000, numPartitions=1).select(long), {}, "row 15000 of this task"),
        (
            spark.range(9, numPartitions=1).select(f.lit("x").alias("value")),
            {"topic": "nowhere"},
            "topic 'nowhere' doesn't exist",
        ),
        (rows.where("id < 0"), {"topic": one, "subscribe": "x"}, "unknown option 'subscribe'"),
    ):
        with pytest.raises(PySparkException, match=words):
            frame.write.format("odradek").options(**{**options, "topic": one, **given}).mode(
                "append"
            ).save()


class Job:
    """Stream from Parquet files, two tasks a batch, to a topic; can run repeatedly."""

    def __init__(
        self, spark: SparkSession, folder: Path, topic: str, given: dict[str, str]
    ) -> None:
        self._spark, self._folder, self._topic, self._given = spark, folder, topic, given
        self.checkpoint = folder / "checkpoint"

    def put(self, name: str, start: int, stop: int) -> None:
        """Write one file, which is one batch."""
        table = pa.table({"id": range(start, stop)})
        (self._folder / "in").mkdir(exist_ok=True)
        pq.write_table(table, self._folder / "in" / f"{name}.parquet")

    def rows(self) -> DataFrame:
        stream = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", "1")
        frame = stream.parquet(str(self._folder / "in")).repartition(2, "id")
        return frame.select(
            f.expr("cast(id as string) as key"),
            f.expr("if(id = 666, repeat('x', 2000000), cast(id as string)) as value"),
        )

    def run(self, **given: str) -> Any:
        query = (
            self.rows()
            .writeStream.format("odradek")
            .options(topic=self._topic, delivery="exactly_once", **{**self._given, **given})
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90), "the query didn't end"
        return query

    def forget(self, batch: int) -> None:
        """Leave the checkpoint like a driver that dies before it logs the end of a batch."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def query_id(self) -> str:
        text = (self.checkpoint / "metadata").read_text()
        return str(json.loads(text.splitlines()[-1])["id"])


@pytest.fixture
def job(
    spark: SparkSession, topics: Any, tmp_path: Path, options: dict[str, str]
) -> Iterator[Callable[[], tuple[Job, str]]]:
    def make() -> tuple[Job, str]:
        topic = topics.create(partitions=2, max_message_bytes="4000000")
        return Job(spark, tmp_path, topic, options), topic

    yield make
    for query in spark.streams.active:
        query.stop()


def values(cluster: LocalCluster, topic: str, *, whole: bool = True) -> list[int]:
    found = [row.value or b"" for row in committed(cluster, topic, whole=whole)]
    return sorted(666 if len(value) > 9 else int(value) for value in found)


def test_replays_failed_tasks_and_zombies_write_each_row_exactly_once(
    cluster: LocalCluster, job: Callable[[], tuple[Job, str]]
) -> None:
    work, topic = job()
    work.put("a", 0, 500)
    query = work.run()
    assert query.lastProgress["sink"]["numOutputRows"] == 500
    assert values(cluster, topic) == list(range(500))
    # The driver died after the commit: the same batch is replayed, and skipped. In the next batch a
    # task fails, so nothing of that batch is committed.
    work.forget(0)
    work.put("b", 500, 1000)
    with pytest.raises(StreamingQueryException, match=r"row \d+ of this task: a record of up to"):
        work.run()
    # A task that Spark killed may leave its transaction open until the next attempt.
    assert values(cluster, topic, whole=False) == list(range(500))
    # An attempt of an older run, which still has an open transaction, is fenced.
    zombie = odradek.Producer(
        {**cluster.client_config(), "transactional.id": f"odradek-{work.query_id()}-sink-1"}
    )
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, b"777").result(30)
    big = {"kafka.max.request.size": "3000000"}
    query = work.run(**big)
    assert values(cluster, topic) == list(range(1000))
    with pytest.raises(odradek.ProducerFencedError):
        zombie.commit_transaction()
    zombie.close(0)
    # The same batch with other rows is rejected, until the user accepts the decided rows.
    work.forget(1)
    work.put("b", 500, 1001)
    with pytest.raises(StreamingQueryException, match="with 500 rows .* repeated with 501"):
        work.run(**big)
    at = ["resolve", str(work.checkpoint), "--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(pipeline, at)
    assert (done.exit_code, "is completely committed" in done.output) == (0, True), done.output
    done = CliRunner().invoke(pipeline, [*at, "--accept-loss"])
    assert (done.exit_code, "counts as complete" in done.output) == (0, True), done.output
    work.run(**big)
    assert values(cluster, topic) == list(range(1000))


def test_a_rerun_job_writes_exactly_once(
    spark: SparkSession, cluster: LocalCluster, topics: Any, options: dict[str, str]
) -> None:
    topic = topics.create(partitions=2)
    options |= {"kafka.buffer.memory": "16384"}  # also with a small buffer

    def write(rows: int, batch: int, tasks: int = 2) -> None:
        columns = ("cast(id as string) as value", "repeat('x', 200) as key")
        frame = spark.range(rows, numPartitions=tasks).selectExpr(*columns)
        frame.write.format("odradek").options(**options).options(
            topic=topic, delivery="exactly_once", jobId="nightly", batchId=str(batch)
        ).mode("append").save()

    write(100, 0)
    write(100, 0)
    assert values(cluster, topic) == list(range(100))
    write(10, 1)
    assert len(values(cluster, topic)) == 110
    with pytest.raises(PySparkException, match="batch numbers must increase"):
        write(100, 0)
    write(10, 1, tasks=1)
    with pytest.raises(PySparkException, match="was already written with 10 rows"):
        write(11, 1)
    assert len(values(cluster, topic)) == 110
