"""Checkers of each run: invariants, owners and offsets of groups, histories of transactions.

In: events, calls and results of clients, the cluster's logs. Out: nothing, or a `Violation`.
"""
