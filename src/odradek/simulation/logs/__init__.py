"""Logs of partitions, the topics that contain them, and the leader of each partition.

In: batches, elections. Out: bytes and offsets for responses.
"""
