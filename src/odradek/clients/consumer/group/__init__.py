"""Groups: both protocols of membership, commits, and the callbacks of a rebalance.

In: subscriptions, offsets to commit, responses of the coordinator. Out: assigned partitions,
committed offsets, callbacks for the caller to run.
"""
