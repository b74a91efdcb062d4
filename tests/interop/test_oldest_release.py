"""Run a part of these tests with the oldest tested release, 3.9; the others use the newest.

The tests are those of the other modules, with this module's cluster. `make test-long` runs them
with every codec and assignor.
"""

from __future__ import annotations

import pytest
from tests.interop import test_mixed_groups as groups
from tests.interop import test_other_clients_read as other_clients
from tests.interop import test_reads_other_clients as reads
from tests.interop.group_members import Jvm
from tests.interop.test_reads_other_clients import consumer as consumer
from tests.interop.test_transactions import (
    test_each_reads_what_the_others_committed_and_takes_over_their_id as each_reads,
)

from odradek.api.consumer import Consumer
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

__all__ = ["consumer"]

CODECS = pytest.mark.parametrize(
    "codec",
    [
        codec if codec in ("none", "zstd") else pytest.param(codec, marks=pytest.mark.long)
        for codec in other_clients.CODECS
    ],
)


@pytest.fixture(scope="module")
def cluster(clusters: SharedClusters) -> LocalCluster:
    running = clusters.shared({"brokers": 1, "version": "3.9"})
    assert running.version.startswith("3.9.")
    return running


@CODECS
def test_librdkafkas_records_are_read(
    cluster: LocalCluster, topic: str, consumer: Consumer, codec: str
) -> None:
    reads.test_all_records_of_librdkafka_are_read(cluster, topic, consumer, codec)


@CODECS
def test_librdkafka_reads_the_producers_records(
    cluster: LocalCluster, topic: str, codec: str
) -> None:
    other_clients.test_librdkafka_reads_all_records(cluster, topic, codec)


@pytest.mark.parametrize(
    "strategy", ["range", pytest.param("cooperative-sticky", marks=pytest.mark.long)]
)
def test_members_of_three_clients_share_a_group_of_the_oldest_release(
    cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str
) -> None:
    groups.test_with_librdkafka_and_java(cluster, jvm, topic, strategy)


@pytest.mark.long  # shorter tests: test_transactions.py, integration/test_releases.py (on 3.9)
def test_transactions_of_three_clients_work_with_the_oldest_release(
    cluster: LocalCluster, topic: str
) -> None:
    each_reads(cluster, topic)
