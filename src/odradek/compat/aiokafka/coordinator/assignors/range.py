"""The assignor `range`, by aiokafka's class.

In: nothing. Out: a class to give as `partition_assignment_strategy`. Must not: assign;
this package's assignor of that name does.
"""

from __future__ import annotations

from odradek.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Partitions are divided topic by topic, in runs."""

    name = "range"
