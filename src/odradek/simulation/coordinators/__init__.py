"""Coordinators of groups and transactions: their shards and their state machines.

In: requests from handlers, entries (key and value) of internal topics. Out: responses, entries.
"""
