"""Checkers of each run: invariants, ledgers of groups, and histories of transactions.

In: events, calls and results of clients, the cluster's logs. Out: nothing, or a `Violation`.
"""
