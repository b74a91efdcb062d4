"""Fetch records, one request at a time for each broker, and buffer them for the caller.

In: positions, Fetch responses. Out: records in the order of their arrival, new positions.
"""
