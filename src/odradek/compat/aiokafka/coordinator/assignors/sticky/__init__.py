"""The sticky way to divide a group's partitions."""
