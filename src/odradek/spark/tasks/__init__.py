"""What runs in the Python workers of executors: one range of one partition, as Arrow batches."""
