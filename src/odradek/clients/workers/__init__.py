"""Process records concurrently, in order by key, and commit what is finished.

In: records of a consumer, a user's function. Out: processed records, retries, dead letters,
commits.
"""
