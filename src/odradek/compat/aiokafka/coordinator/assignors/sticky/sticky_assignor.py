"""aiokafka's class for the assignor `sticky`.

In: nothing. Out: a class for `partition_assignment_strategy`. Must not: assign; Odradek's assignor
of that name does.
"""

from __future__ import annotations

from odradek.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Assigns partitions evenly, and moves as few as possible."""

    name = "sticky"
