"""The assignor `sticky`, by aiokafka's class.

In: nothing. Out: a class to give as `partition_assignment_strategy`. Must not: assign;
this package's assignor of that name does.
"""

from __future__ import annotations

from odradek.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Partitions are divided evenly, and as little moved as can be."""

    name = "sticky"
