"""Test programs with Kafka: simulated clusters for pytest, and real Kafka brokers on loopback.

    from odradek.testing import FakeCluster, LocalCluster

The fixtures `kafka_simulation` and `kafka_cluster` need no import: pytest finds them. Clusters have
the property `bootstrap_servers`, and methods that inject faults.

Names are loaded on first use, because pytest imports this package in every run of every project
that has Odradek installed.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
