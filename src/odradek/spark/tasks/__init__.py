"""The part of a query that runs in Python workers of executors: read one range as Arrow batches.

In: a range of one partition. Out: Arrow batches.
"""
