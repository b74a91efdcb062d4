"""Real clusters that the tests of a pytest run share: start, repair and close them.

In: options of `LocalCluster`. Out: running clusters, repaired after each test that has caused
faults. Must not: know pytest.
"""

from __future__ import annotations

import itertools
import re
from contextlib import ExitStack
from typing import Any, Self

from odradek.testing.errors import ClusterStartError
from odradek.testing.local_cluster import LocalCluster

_numbers = itertools.count(1)
NAME_LENGTH = 100
TOPIC_TIMEOUT = 30.0


class SharedClusters:
    """Clusters that tests share, one for each set of options."""

    def __init__(self, *, brokers: int = 3, version: str | None = None) -> None:
        self._defaults: dict[str, Any] = {"brokers": brokers}
        if version is not None:
            self._defaults["version"] = version
        self._running: dict[str, LocalCluster] = {}
        self._failed: dict[str, ClusterStartError] = {}
        self._brokers: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all clusters; a later request starts a new one."""
        self._running.clear()
        self._brokers.clear()
        self._ids.clear()
        self._stack.close()

    def start(self, options: dict[str, Any]) -> LocalCluster:
        """Start a cluster, which is closed by `close()` at the latest."""
        settled = {**self._defaults, **{k: v for k, v in options.items() if v is not None}}
        cluster = self._stack.enter_context(LocalCluster(**settled))
        self._brokers[id(cluster)] = settled["brokers"]
        self._ids[id(cluster)] = cluster.cluster_id
        return cluster

    def shared(self, options: dict[str, Any]) -> LocalCluster:
        """Return the cluster with these options that all tests share."""
        key = repr(sorted({**self._defaults, **options}.items()))
        if key in self._failed:  # another start would fail, too
            raise self._failed[key]
        if key not in self._running:
            try:
                self._running[key] = self.start(options)
            except ClusterStartError as error:
                self._failed[key] = error
                raise
        return self._running[key]

    def put_right(self, cluster: LocalCluster) -> None:
        """Undo a test's faults in the cluster; if that fails, the next test gets a new cluster."""
        try:
            if cluster.cluster_id != self._ids[id(cluster)]:
                cluster.restore()
            for i in cluster.running:
                cluster.resume(i)
            for i in range(self._brokers[id(cluster)]):
                if i not in cluster.running:
                    cluster.start(i)
        except Exception:
            self._running = {k: c for k, c in self._running.items() if c is not cluster}
            cluster.close()
            raise


def make_topic(cluster: LocalCluster, test: str, partitions: int = 3) -> str:
    """Create a topic with a unique name that contains the test's name."""
    from odradek.api.admin import Admin
    from odradek.clients.admin.admin_arguments import NewTopic

    plain = re.sub(r"[^a-zA-Z0-9._-]+", "-", test)[:NAME_LENGTH].strip("-.")
    name = f"{plain}-{next(_numbers)}"
    # Users of a secured cluster may not have the permission, so use the inner listener.
    with Admin(cluster.inner_config()) as admin:
        replicas = min(3, len(cluster.broker_addresses))
        admin.create_topics([NewTopic(name, partitions, replicas)], timeout=TOPIC_TIMEOUT)
    return name
