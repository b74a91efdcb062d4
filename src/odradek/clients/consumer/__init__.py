"""Reading: positions, offsets, fetches, and the records that are handed to the caller.

In: assignments and seeks, fetch answers. Out: records or columns. Must not: decode in the engine's
step: records are decoded by the caller of `poll()`.
"""
