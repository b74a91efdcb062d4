"""Test queries with wrong options: each fails within 60 s and names the option and the reason.

Several run at the same time, since the slow ones only wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.soak.spark_soak import reason
from tests.spark.conftest import Topics, numbered, spark_options
from tests.volume import WHOLE

from odradek.testing import LocalCluster

# No error may depend on the timeout of a call: with these values the test would time out.
PATIENT = {"kafka.default.api.timeout.ms": "1200000", "kafka.max.block.ms": "1200000"}
PATIENT["kafka.delivery.timeout.ms"] = "1200000"
pytestmark = pytest.mark.timeout(600)
READS = ("read", "read a stream")
WRITES = ("write", "write a stream")
BATCH, STREAMS = ("read", "write"), ("read a stream", "write a stream")
EVERY = (*READS, *WRITES)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True, slots=True)
class Wrong:
    """Options that replace correct ones, and words that the error must contain."""

    options: Mapping[str, str]
    words: tuple[str, ...]
    queries: tuple[str, ...] = EVERY

    def chosen(self, turn: int) -> tuple[str, ...]:
        """Return the kinds of query to run; `make test` runs one, a different one in each turn."""
        return self.queries if WHOLE else (self.queries[turn % len(self.queries)],)


def wrongs(guarded: LocalCluster) -> list[Wrong]:
    jaas = f'{SCRAM} username="spark" password="wrong-password-7";'
    return [
        Wrong(
            {"kafka.bootstrap.servers": "127.0.0.1:1"}, ("kafka.bootstrap.servers", "127.0.0.1:1")
        ),
        Wrong({"kafka.sasl.jaas.config": jaas}, ("CredentialsRefused", "sasl.password")),
        Wrong(
            {"kafka.bootstrap.servers": guarded.inner_servers.split(",")[0]},
            ("security.protocol",),
            ("read", "write a stream"),
        ),
        Wrong(
            {"kafka.security.protocol": "PLAINTEXT"},
            ("security.protocol",),
            ("write", "read a stream"),
        ),
        Wrong(
            {"kafka.ssl.truststore.location": "nowhere.p12"}, ("ssl.truststore.location",), BATCH
        ),
        Wrong({"subscribe": "no-such-topic"}, ("subscribe", "no-such-topic"), READS),
        Wrong({"topic": "no-such-topic"}, ("topic", "no-such-topic"), WRITES),
        # The following wrong options are detected before any request, one for each kind of query:
        # unit tests have every option (test_options, test_sink_options).
        Wrong({"kafka.security.protocol": "TLS"}, ("security.protocol", "TLS"), BATCH),
        Wrong({"kafka.request.timeout.ms": "soon"}, ("request.timeout.ms", "soon"), STREAMS[1:]),
        Wrong({"startingOfsets": "earliest"}, ("did you mean startingOffsets",), READS[1:]),
    ]


class Runner:
    """Run one query of each kind with the given options."""

    def __init__(self, spark: SparkSession, good: Mapping[str, str], topic: str, tmp: Path) -> None:
        self._spark, self._good, self._topic, self._tmp = spark, good, topic, tmp

    def __call__(self, name: str, wrong: Wrong) -> str:
        """Return what is wrong with the error for a wrong option; empty if nothing."""
        options = {**self._good, "subscribe" if name in READS else "topic": self._topic}
        if "assign" in wrong.options:
            del options["subscribe"]
        options.update(wrong.options)
        try:
            self._run(name, options, f"{name}-{abs(hash(str(wrong)))}")
        except Exception as error:
            text = str(error)
        else:
            return f"{name} with {dict(wrong.options)} worked"
        missing = [word for word in wrong.words if word not in text]
        if missing:
            return f"{name} with {dict(wrong.options)}: no {missing} in {reason(text)}"
        return ""

    def _run(self, name: str, options: Mapping[str, str], folder: str) -> None:
        spark = self._spark
        if name == "read":
            spark.read.format("odradek").options(**options).load().count()
        elif name == "write":
            rows = spark.range(2, numPartitions=1).selectExpr("cast(id as string) value")
            rows.write.format("odradek").options(**options).mode("append").save()
        else:
            source: Any = spark.readStream.format("rate-micro-batch")
            source = source.option("rowsPerBatch", "2").option("numPartitions", "1")
            if name == "read a stream":
                source = spark.readStream.format("odradek").options(**options)
            writer = source.load().selectExpr("cast(value as string) value").writeStream
            writer = writer.option("checkpointLocation", str(self._tmp / folder))
            sink = "noop" if name == "read a stream" else "odradek"
            query = writer.format(sink).options(**(options if sink == "odradek" else {})).start()
            try:
                query.awaitTermination()
            finally:
                query.stop()


def make_active(spark: SparkSession) -> None:
    """Make the session this thread's active one, because Spark looks there for Python's sinks.

    In a thread without one, a query that writes fails with "ClassNotFoundException:
    odradek.DefaultSource", while a query that reads makes its session active by itself.
    """
    sessions: Any = spark._jvm
    sessions.SparkSession.setActiveSession(spark._jsparkSession)


def test_each_wrong_option_is_reported_within_a_minute(
    spark: SparkSession, guarded: LocalCluster, tmp_path: Path
) -> None:
    topics = Topics(guarded)
    topic = topics.create()
    topics.fill(topic, numbered(0, 4))
    good = spark_options(guarded.java_config(stores="PKCS12")) | PATIENT
    run = Runner(spark, good, topic, tmp_path)
    assert "worked" in run("read", Wrong({}, ()))
    # Six queries at a time take a quarter of two processors, because they mostly wait.
    with ThreadPoolExecutor(6, initializer=make_active, initargs=(spark,)) as pool:
        answers = [
            pool.submit(run, name, wrong)
            for turn, wrong in enumerate(wrongs(guarded))
            for name in wrong.chosen(turn)
        ]
        failures = [answer.result() for answer in answers]
    assert "\n".join(failure for failure in failures if failure) == ""
