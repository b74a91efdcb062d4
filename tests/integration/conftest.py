"""Real brokers for the integration tests: a cluster that stays whole, and one to hurt.

The tests with other clients (tests/interop) go the same way, as parts of the same suite.

`cluster` has one broker: tests use topics of their own (`topic`) and do nothing to the broker.
`mortal_cluster` has three: tests kill, freeze, move and replace its brokers, and the fixture
restores them after each test. Tests that need replicas use it, too.

Idle brokers cost as much as busy tests on a small machine. So tests go by groups of modules that
share clusters: a group runs in one process, and its clusters end with it. pytest-xdist's own
loadgroup looks for groups where pytest 9.1 and newer doesn't keep them (it then starts each cluster
in every process); so the groups are made of the modules' names here.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Generator, Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest

from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

HERE = Path(__file__).parent
_numbers = itertools.count()
_running: list[SharedClusters] = []
# Modules by the clusters that they share, in the order in which processes take them: the longest
# first, so that no process waits for another one's at the end. A module without a name here is a
# group of its own.
GROUPS = {
    "hurt": (
        *("admin", "admin_calls", "outages", "local_cluster", "misled", "written_once"),
        "compat_confluent",
    ),
    "whole": (
        *("group_consumer", "console", "copy", "porting"),
        *("producer", "consumer", "leaks", "simulated_groups", "event_topic"),
        *("slow_answers", "topics_command", "readme"),
        *("transactions", "simulated_transactions", "recreated_topics"),
    ),
    "other clients": (
        *("interop/they_write", "interop/we_write", "interop/columns_we_write"),
        *("interop/mixed_groups", "interop/mixed_consumer_groups", "interop/transactions"),
        *("interop/recompression", "interop/same_partitions", "interop/console_tools"),
        *("interop/admin_answers", "interop/group_tools", "interop/traces", "interop/fake_cluster"),
        *("interop/group_changes", "frozen_members"),
    ),
    "guarded": ("secure_recovery", "rights", "admin_security"),
    "settings": ("interop/secure_settings",),
    "programs": ("confluent_programs",),
    "releases": ("releases", "interop/oldest_release"),
    "plugin": ("testing_plugin",),
    "plug-ins": ("interop/async_plugins",),
    "aiokafka": ("compat_aiokafka",),
    "pushes": ("interop/metrics_push",),
    "schemas": ("interop/schema_interop", "interop/local_registry"),
    "started": ("cluster_command",),
    "no java": ("no_java",),
    "doctor": ("doctor_secured",),
    "explain": ("explain_command",),
    "trap": ("doctor_command",),
    "fake": ("fake_cluster", "admin_commands"),
    "peers": ("hostile_peers",),
    "changes": ("secure_changes",),
    "errors": ("security_errors",),
}
_PLACES = {
    module: (place, name)
    for place, (name, modules) in enumerate(GROUPS.items())
    for module in modules
}
# A process takes the next group when it begins the last test of one, so that is no long one.
LONG = ("test_nothing_is_lost_doubled_or_out_of_order", "test_with_a_paused_broker")


def module(path: PurePath) -> str:
    """What `GROUPS` calls a file of tests: `producer`, `interop/transactions`."""
    name = path.stem.removeprefix("test_")
    return name if path.parent.name == HERE.name else f"{path.parent.name}/{name}"


def group(path: PurePath) -> str:
    """The tests that share clusters with those of this file."""
    name = module(path)
    return _PLACES[name][1] if name in _PLACES else name


def rank(item: pytest.Item) -> tuple[int, str, bool]:
    """The place of a test in the order; groups stay together."""
    if item.path.parent not in (HERE, HERE.parent / "interop"):
        return len(GROUPS) + 1, "", False
    name = module(item.path)
    place, name = _PLACES.get(name, (len(GROUPS), name))
    return place, name, item.name not in LONG


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole groups go to processes; the next one when the last test of one begins."""
    if config.getvalue("dist") != "loadgroup":
        return None
    base: Any = importlib.import_module("xdist.scheduler").LoadScopeScheduling

    class ByGroups(base):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(PurePath(nodeid.partition("::")[0]))

        def _reschedule(self, node: Any) -> None:
            # Theirs already gives out the next group when two tests are left, perhaps minutes.
            if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    config.option.loadscopereorder = False  # it would sort by the numbers of tests
    return ByGroups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """The groups are ordered after the random order was made."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
    yield
    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """After the last test of a group its clusters are closed."""
    yield
    if nextitem is None or group(nextitem.path) != group(item.path):
        for clusters in _running:
            clusters.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[SharedClusters]:
    """Clusters that both folders share; each of their conftests has this fixture."""
    if _running:
        yield _running[0]
        return
    with SharedClusters(brokers=3) as running:
        _running.append(running)
        yield running
        _running.remove(running)


@pytest.fixture(scope="module")
def cluster(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared({"brokers": 1})


@pytest.fixture
def mortal_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    running = clusters.shared({})
    yield running
    clusters.put_right(running)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test of this run has."""
    return f"topic-{next(_numbers)}"
