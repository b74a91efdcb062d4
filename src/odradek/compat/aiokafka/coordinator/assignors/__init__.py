"""Assignors, for the argument `partition_assignment_strategy`."""
