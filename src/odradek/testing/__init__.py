"""Test programs with Kafka: simulated clusters for pytest, and real Kafka brokers on loopback.

In: a number of brokers and a Kafka version. Out: the fixtures `kafka_simulation` and
`kafka_cluster` (in `plugin`, which pytest finds), `LocalCluster` and `FakeCluster`, with their
`bootstrap_servers` and methods that cause faults. Must not: be imported by anything that a user's
program needs, or import anything but the standard library, pytest and the lower packages.

Names are loaded on first use: pytest imports this package in every run of every project that has
Odradek installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.testing.brokers.authority import Authority as Authority
    from odradek.testing.brokers.authority import KeyAndCertificate as KeyAndCertificate
    from odradek.testing.brokers.broker_set import TimelineEvent as TimelineEvent
    from odradek.testing.brokers.front_door import FrontDoor as FrontDoor
    from odradek.testing.errors import ClusterStartError as ClusterStartError
    from odradek.testing.errors import JarsError as JarsError
    from odradek.testing.errors import JavaNotFoundError as JavaNotFoundError
    from odradek.testing.errors import ToolError as ToolError
    from odradek.testing.fake.fake_cluster import FakeCluster as FakeCluster
    from odradek.testing.java import ensure_java_environment as ensure_java_environment
    from odradek.testing.java import java_home as java_home
    from odradek.testing.local_cluster import LocalCluster as LocalCluster
    from odradek.testing.registry import LocalRegistry as LocalRegistry
    from odradek.testing.simulated import KafkaSimulation as KafkaSimulation
    from odradek.testing.virtual.async_tests import loop_factories as loop_factories
    from odradek.testing.virtual.virtual_loop import VirtualLoop as VirtualLoop

_HOME = {
    "Authority": "odradek.testing.brokers.authority",
    "ClusterStartError": "odradek.testing.errors",
    "FakeCluster": "odradek.testing.fake.fake_cluster",
    "FrontDoor": "odradek.testing.brokers.front_door",
    "KeyAndCertificate": "odradek.testing.brokers.authority",
    "JarsError": "odradek.testing.errors",
    "JavaNotFoundError": "odradek.testing.errors",
    "KafkaSimulation": "odradek.testing.simulated",
    "LocalCluster": "odradek.testing.local_cluster",
    "LocalRegistry": "odradek.testing.registry",
    "TimelineEvent": "odradek.testing.brokers.broker_set",
    "ToolError": "odradek.testing.errors",
    "VirtualLoop": "odradek.testing.virtual.virtual_loop",
    "ensure_java_environment": "odradek.testing.java",
    "java_home": "odradek.testing.java",
    "loop_factories": "odradek.testing.virtual.async_tests",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'odradek.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = [*_HOME]  # all are text
