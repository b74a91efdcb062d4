"""Run in the Python workers of executors: read one range of one partition as Arrow batches."""
