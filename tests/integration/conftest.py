"""Real brokers for the integration tests: one cluster for all that leave it whole, others to hurt.

`cluster` is shared by the whole run: tests use topics of their own (`topic`) and do nothing to its
brokers.  `mortal_cluster` is shared by a module whose tests kill and move brokers, and leave all of
them running.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import LocalCluster

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def mortal_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic name that no other test of this run has."""
    return f"topic-{next(_numbers)}"
