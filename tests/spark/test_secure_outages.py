"""The outages again, on a cluster that lets nobody in without TLS and a password.

And with the settings that the JVM connector's users have: a login module's text, a trust store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

# These are tests, and run here once more: with this module's cluster.
from tests.spark.test_outages import (
    rows,
    test_a_checkpoint_is_not_continued_on_another_cluster,
    test_a_driver_killed_in_mid_batch_loses_and_doubles_nothing,
    test_a_query_survives_a_cluster_that_moves,
)

from odradek.testing import LocalCluster
from odradek.testing.authority import Kind

Stream = Callable[[str], Any]

__all__ = [
    "test_a_checkpoint_is_not_continued_on_another_cluster",
    "test_a_driver_killed_in_mid_batch_loses_and_doubles_nothing",
    "test_a_query_survives_a_cluster_that_moves",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        brokers=2,
        security="SASL_SSL",
        mechanisms=["SCRAM-SHA-512"],
        users={"spark": "spark-secret"},
    ) as running:
        yield running


@pytest.mark.parametrize("stores", ["PKCS12", "JKS"])
def test_a_checkpoint_is_continued_elsewhere(
    stream: Stream, topics: Any, cluster: LocalCluster, stores: Kind
) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 100))
    job = stream(topic)
    job.config = cluster.java_config(stores=stores)
    assert job.config["sasl.jaas.config"].startswith("org.apache.kafka.common.security.scram.")
    job.run(startingOffsets="earliest")
    if stores == "JKS":  # a move for each of both would be one too many
        cluster.move()
    topics.fill(topic, rows(100, 150))
    job.run()
    assert job.values() == list(range(150))
