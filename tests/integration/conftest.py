"""Start real brokers for the integration tests: one cluster without faults, one for faults.

The tests with other clients (tests/interop) use the same clusters, as parts of the same suite.
`cluster` has one broker: tests use their own topics (`topic`) and don't change the broker.
`mortal_cluster` has three: tests kill, freeze, move and replace its brokers, and the fixture
restores them after each test. Tests that need replicas use it too.

On a small machine idle brokers slow down other tests. So modules are grouped by the clusters that
they share: a group runs in one process, and its clusters are stopped after it. pytest-xdist's own
loadgroup finds no groups with pytest 9.1 and newer (it then starts each cluster in every process);
so the groups are defined here by module names.
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
# Modules by the clusters that they share, the longest group first, so that no process is left with
# a long group at the end. A module that isn't listed is its own group.
GROUPS = {
    "hurt": (
        *("admin", "admin_calls", "outages", "local_cluster", "misrouted_connections"),
        *("written_once", "compat_confluent"),
    ),
    "whole": (
        *("group_consumer", "console", "copy", "porting"),
        *("producer", "consumer", "leaks", "simulated_groups", "event_topic"),
        *("slow_answers", "topics_command", "readme"),
        *("transactions", "simulated_transactions", "recreated_topics"),
    ),
    "other clients": (
        *("interop/reads_other_clients", "interop/other_clients_read"),
        "interop/other_clients_read_arrow",
        *("interop/mixed_groups", "interop/mixed_consumer_groups", "interop/transactions"),
        *("interop/recompression", "interop/same_partitions", "interop/console_tools"),
        *("interop/admin_answers", "interop/group_tools", "interop/traces", "interop/fake_cluster"),
        *("interop/group_changes", "frozen_members"),
    ),
    "guarded": ("secure_recovery", "missing_permissions", "admin_security"),
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
# A process is assigned the next group when it starts the last test of a group, so the last test
# must be short.
LONG = ("test_no_record_is_lost_duplicated_or_out_of_order", "test_commands_with_a_paused_broker")


def module(path: PurePath) -> str:
    """Return a test file's name in `GROUPS`: `producer`, `interop/transactions`."""
    name = path.stem.removeprefix("test_")
    return name if path.parent.name == HERE.name else f"{path.parent.name}/{name}"


def group(path: PurePath) -> str:
    """Return the group whose clusters the tests of a file use."""
    name = module(path)
    return _PLACES[name][1] if name in _PLACES else name


def rank(item: pytest.Item) -> tuple[int, str, bool]:
    """Return a test's position in the order; groups stay together."""
    if item.path.parent not in (HERE, HERE.parent / "interop"):
        return len(GROUPS) + 1, "", False
    name = module(item.path)
    place, name = _PLACES.get(name, (len(GROUPS), name))
    return place, name, item.name not in LONG


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign whole groups to processes, the next one when the last test of a group starts."""
    if config.getvalue("dist") != "loadgroup":
        return None
    base: Any = importlib.import_module("xdist.scheduler").LoadScopeScheduling

    class ByGroups(base):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(PurePath(nodeid.partition("::")[0]))

        def _reschedule(self, node: Any) -> None:
            # The base class assigns the next group when two tests are left, perhaps minutes early.
            if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    config.option.loadscopereorder = False  # otherwise xdist sorts by numbers of tests
    return ByGroups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Sort tests by group after the random order was set."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
    yield
    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Stop the clusters of a group after its last test."""
    yield
    if nextitem is None or group(nextitem.path) != group(item.path):
        for clusters in _running:
            clusters.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[SharedClusters]:
    """Share clusters with tests/interop, whose conftest has this fixture too."""
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
    """Return a topic name that no other test of this run uses."""
    return f"topic-{next(_numbers)}"
