"""aiokafka's class for the assignor `range`.

In: nothing. Out: a class for `partition_assignment_strategy`. Must not: assign; Odradek's assignor
of that name does.
"""

from __future__ import annotations

from odradek.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Assigns consecutive partitions of each topic to a member."""

    name = "range"
