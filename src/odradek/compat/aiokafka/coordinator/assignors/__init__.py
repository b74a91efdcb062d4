"""Ways to divide a group's partitions, for the argument `partition_assignment_strategy`."""
