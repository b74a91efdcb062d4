"""What tests and the demo need: real Kafka brokers on loopback, and a front door before them.

In: a number of brokers and a Kafka version. Out: `LocalCluster`, its `bootstrap_servers` and the
verbs that hurt it. Must not: be imported by anything that a user's program needs, nor import
anything but the standard library, pytest and the rooms below.
"""

from odradek.testing.broker_set import TimelineEvent
from odradek.testing.errors import ClusterStartError, JarsError, JavaNotFoundError, ToolError
from odradek.testing.front_door import FrontDoor
from odradek.testing.java import ensure_java_environment, java_home
from odradek.testing.local_cluster import LocalCluster

__all__ = [
    "ClusterStartError",
    "FrontDoor",
    "JarsError",
    "JavaNotFoundError",
    "LocalCluster",
    "TimelineEvent",
    "ToolError",
    "ensure_java_environment",
    "java_home",
]
