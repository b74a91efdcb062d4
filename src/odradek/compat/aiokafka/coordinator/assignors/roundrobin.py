"""aiokafka's class for the assignor `roundrobin`.

In: nothing. Out: a class for `partition_assignment_strategy`. Must not: assign; Odradek's assignor
of that name does.
"""

from __future__ import annotations

from odradek.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Assigns one partition to each member in turn."""

    name = "roundrobin"
