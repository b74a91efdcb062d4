"""Consumers: positions, offsets, fetches, and the records that are returned to the caller.

In: assignments and seeks, Fetch responses. Out: records or columns. Must not decode in the engine's
step: records are decoded by the caller of `poll()`.
"""
