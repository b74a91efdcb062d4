"""Share one small cluster among all tests with other clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import clusters, pytest_runtest_teardown
from tests.interop.group_members import Jvm

from odradek.testing import LocalCluster, LocalRegistry
from odradek.testing.brokers.shared_clusters import SharedClusters

__all__ = ["clusters", "pytest_runtest_teardown"]

_numbers = itertools.count()
# Members of KIP-848 groups learn of changes with their heartbeats, which are 5 s apart by default.
# These groups may have sessions of a second.
QUICK_GROUPS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "400",
}
# ACLs exist, and all clients are super users.
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OPTIONS = {"brokers": 1, "config": {**QUICK_GROUPS, **ACLS}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="module")
def cluster(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared(OPTIONS)


@pytest.fixture
def topic() -> str:
    """Return a topic name that no other test of this run uses."""
    return f"interop-{next(_numbers)}"


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """Return the process of all Java group members."""
    running = Jvm()
    yield running
    running.close()


@pytest.fixture(scope="session")
def registry() -> Iterator[LocalRegistry]:
    """Return a schema registry of another project."""
    with LocalRegistry() as found:
        yield found
