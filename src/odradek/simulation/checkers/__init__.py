"""Check each run: invariants, ledgers of groups, and histories of transactions."""
