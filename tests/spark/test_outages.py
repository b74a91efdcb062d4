"""Streaming queries whose cluster moves, or is another one.

On a cluster that lets nobody in without TLS and a password, once with the settings that the JVM
connector's users have. More moves: `test_demo`, `test_pipelines`; what is killed: `test_faults`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import Query, Topics, numbered

from odradek.testing import LocalCluster

Stream = Callable[[str], Query]


@pytest.fixture(scope="module")
def cluster(guarded: LocalCluster) -> LocalCluster:
    return guarded


def test_a_checkpoint_is_not_continued_on_another_cluster(
    stream: Stream, topics: Topics, cluster: LocalCluster
) -> None:
    """Unless it is allowed: then it goes on at the same offsets, as on a mirror."""
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


def test_a_checkpoint_is_continued_elsewhere(
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
