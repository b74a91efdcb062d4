"""The engines of producer, consumer and admin: everything they decide, without I/O.

In: calls of the facades, snapshots, replies. Out: requests, futures, buffered records.
Must not: read a clock, block, or call user code outside `engine.call`.
"""
