"""What tests and the demo need: real Kafka brokers on loopback, and a front door before them.

In: a number of brokers and a Kafka version. Out: `LocalCluster`, its `bootstrap_servers` and the
verbs that hurt it. Must not: be imported by anything that a user's program needs, nor import
anything but the standard library, pytest and the rooms below.
"""

from odradek.testing.front_door import FrontDoor
from odradek.testing.java import JavaNotFoundError, ensure_java_environment, java_home
from odradek.testing.local_cluster import ClusterStartError, LocalCluster, TimelineEvent

__all__ = [
    "ClusterStartError",
    "FrontDoor",
    "JavaNotFoundError",
    "LocalCluster",
    "TimelineEvent",
    "ensure_java_environment",
    "java_home",
]
