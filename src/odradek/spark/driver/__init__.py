"""The part of a query that runs once, on the driver: start, log ends, next batch.

In: options, checkpoints, metadata. Out: ranges of offsets for the tasks.
"""
