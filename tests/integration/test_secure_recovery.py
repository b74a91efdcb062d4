"""Brokers die, freeze and move on a cluster that lets nobody in without TLS and a password.

The tests are those of the plaintext cluster, run once more with this module's `mortal_cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.test_consumer_outages import (
    filled,
    test_a_foreign_cluster_is_refused,
    test_a_killed_leader_stops_nothing,
    test_records_that_an_unclean_election_took_away,
    test_the_whole_cluster_moves_while_it_is_read,
    test_without_the_strategy_a_move_is_the_end_and_says_why,
)
from tests.integration.test_producer_outages import (
    test_a_leader_freezes_for_some_seconds,
    test_a_leader_is_killed_and_comes_back,
    test_the_whole_cluster_moves_away,
)

from odradek.testing import LocalCluster
from odradek.testing.shared_clusters import SharedClusters

__all__ = [
    "filled",
    "test_a_foreign_cluster_is_refused",
    "test_a_killed_leader_stops_nothing",
    "test_a_leader_freezes_for_some_seconds",
    "test_a_leader_is_killed_and_comes_back",
    "test_records_that_an_unclean_election_took_away",
    "test_the_whole_cluster_moves_away",
    "test_the_whole_cluster_moves_while_it_is_read",
    "test_without_the_strategy_a_move_is_the_end_and_says_why",
]

pytestmark = pytest.mark.xdist_group("secure_recovery")  # one cluster, however many processes


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared(
        {
            "security": "SASL_SSL",
            "mechanisms": ["SCRAM-SHA-512"],
            "users": {"alice": "alice-secret"},
            "config": {"connections.max.reauth.ms": "10000"},
        }
    )
    yield running
    clusters.put_right(running)
