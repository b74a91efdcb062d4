"""Consumers: positions, offsets, fetches, and the records that are returned to the caller.

In: assignments and seeks, Fetch responses. Out: records or columns. Must not: decode records in the
engine's step; the caller of `poll()` decodes them.
"""
