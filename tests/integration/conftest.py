"""Real brokers for the integration tests: one cluster for all that leave it whole, one to hurt.

`cluster`: tests use topics of their own (`topic`) and do nothing to its brokers. `mortal_cluster`:
tests kill, freeze, move and replace its brokers; what they leave behind is put right.

Idle brokers cost as much as busy tests on a small machine. So tests go by groups, one for each kind
of cluster: a group runs in one process, and its clusters end with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from odradek.testing import LocalCluster
from odradek.testing.shared_clusters import SharedClusters

HERE = Path(__file__).parent
_numbers = itertools.count()
_running: list[SharedClusters] = []
# Begun first, so that no process waits for another one's at the end.
LONG_GROUPS = ("secure_recovery", "hurt", "whole", "soak")
LONG = ("test_demo_versus.py", "test_no_java.py", "test_porting.py", "test_security_errors.py")


def group(item: pytest.Item) -> str:
    """The tests that share clusters with this one."""
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    names = getattr(item, "fixturenames", ())
    if "mortal_cluster" in names:
        return "soak" if item.path.name == "test_soak.py" else "hurt"
    return "whole" if "cluster" in names else ""


def rank(item: pytest.Item) -> tuple[int, int]:
    """Where a test stands in the order; groups stay together."""
    if item.path.parent != HERE:
        return len(LONG_GROUPS) + 1, 0
    name = group(item)
    if name in LONG_GROUPS:
        return LONG_GROUPS.index(name), 0
    return len(LONG_GROUPS), LONG.index(item.path.name) if item.path.name in LONG else len(LONG)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Marks before xdist looks for them; the order behind that of chance."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
            name = group(item)
            if name and item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(name))
    yield
    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """After the last test of a group its clusters are closed."""
    yield
    if nextitem is None or group(nextitem) != group(item):
        for clusters in _running:
            clusters.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[SharedClusters]:
    with SharedClusters(brokers=3) as running:
        _running.append(running)
        yield running
        _running.remove(running)


@pytest.fixture(scope="module")
def cluster(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared({"auto_create_topics": False})


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared({})
    yield running
    clusters.put_right(running)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test of this run has."""
    return f"topic-{next(_numbers)}"
