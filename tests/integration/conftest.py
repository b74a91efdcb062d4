"""Real brokers for the integration tests: one cluster for all that leave it whole, one to hurt.

Each process that runs tests has its own of both. `cluster`: tests use topics of their own (`topic`)
and do nothing to its brokers. `mortal_cluster`: tests kill, freeze, move and replace its brokers;
what they leave behind is put right.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import LocalCluster
from odradek.testing.shared_clusters import SharedClusters

_numbers = itertools.count()
# Begun first, so that no process waits for another one's at the end.
LONG = ("test_soak.py", "test_demo_versus.py", "test_no_java.py", "test_porting.py")


@pytest.hookimpl(trylast=True)  # behind the random order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: item.path.parent == here and item.path.name not in LONG)


@pytest.fixture(scope="session")
def clusters() -> Iterator[SharedClusters]:
    with SharedClusters(brokers=3) as running:
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared({})
    yield running
    clusters.put_right(running)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test of this run has."""
    return f"topic-{next(_numbers)}"
