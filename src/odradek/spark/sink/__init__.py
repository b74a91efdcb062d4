"""Rows to topics: at least once, or exactly once in a transaction for each task."""
