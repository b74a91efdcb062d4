"""The admin client: topics and cluster, one call at a time, each retried until its deadline.

In: calls of the facade. Out: descriptions. Must not: keep state between calls; metadata and
recovery are those of every client.
"""
