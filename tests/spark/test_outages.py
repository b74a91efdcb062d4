"""Test streaming queries whose cluster moves or is replaced, and whose driver dies in a batch.

The cluster requires TLS and a password; one test uses the settings of the JVM connector's users.
More moves: `test_demo`, `test_pipelines`; kills: `test_faults`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import Query, Topics, numbered

from odradek.testing import LocalCluster

Stream = Callable[[str], Query]

DRIVER = Path(__file__).parent / "driver_to_kill.py"


@pytest.fixture(scope="module")
def cluster(guarded: LocalCluster) -> LocalCluster:
    return guarded


def test_a_checkpoint_is_not_continued_on_another_cluster(
    stream: Stream, topics: Topics, cluster: LocalCluster
) -> None:
    """Test also the option that permits another cluster: the query keeps its offsets."""
    topic = topics.create()
    topics.fill(topic, numbered(0, 10))
    job = stream(topic)
    job.run(startingOffsets="earliest")
    ours = cluster.cluster_id
    other = cluster.replace_with_foreign()
    try:
        topics.create(name=topic)
        topics.fill(topic, numbered(0, 16))
        for trigger in ({"availableNow": True}, {"processingTime": "1 second"}):
            query = job.start(trigger)
            with pytest.raises(StreamingQueryException) as caught:
                query.awaitTermination(60)
            assert ours in str(caught.value)
            assert other in str(caught.value)
        assert job.values() == list(range(10))
        job.run(allowClusterChange="true")
        assert job.values() == list(range(16))
        assert job.offsets()[-1]["cluster"] == other
    finally:
        cluster.restore()


@pytest.mark.long  # shorter tests: test_parity.py (a killed worker, a replayed batch), test_sink.py
def test_a_driver_killed_in_a_batch_loses_and_duplicates_no_record(
    stream: Stream, topics: Topics, cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = topics.create()
    total = 4000
    topics.fill(topic, numbered(0, total))
    command = [sys.executable, str(DRIVER), topic, str(tmp_path)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert first.stdin is not None
    with first.stdin as given:
        given.write(json.dumps(cluster.client_config()).encode())
    try:
        marker = tmp_path / "in-the-middle"
        deadline = time.monotonic() + 300
        while not marker.exists():
            assert first.poll() is None, "the driver ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # the driver's session: JVM and workers are killed too
        first.wait()
    offsets = [p for p in (tmp_path / "checkpoint" / "offsets").iterdir() if p.name.isdecimal()]
    commits = [p for p in (tmp_path / "checkpoint" / "commits").iterdir() if p.name.isdecimal()]
    assert len(offsets) == len(commits) + 1, "it wasn't killed inside a batch"
    job = stream(topic)  # continues from the same checkpoint
    job.run(startingOffsets="earliest", maxOffsetsPerTrigger="500")
    assert job.values() == list(range(total))


def test_a_checkpoint_is_continued_after_a_move(
    stream: Stream, topics: Topics, cluster: LocalCluster
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(0, 100))
    job = stream(topic)
    job.config = cluster.java_config(stores="JKS")
    assert job.config["sasl.jaas.config"].startswith("org.apache.kafka.common.security.scram.")
    job.run(startingOffsets="earliest")
    cluster.move()
    topics.fill(topic, numbered(100, 150))
    job.run()
    assert job.values() == list(range(150))
