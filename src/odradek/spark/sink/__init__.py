"""Write rows to topics: at least once, or exactly once in a transaction for each task.

In: rows of a query. Out: acknowledged records.
"""
