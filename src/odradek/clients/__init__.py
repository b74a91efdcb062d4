"""The engines of producer, consumer and admin client.

In: calls of the facades; responses and connections from `network`, snapshots from `metadata`. Out:
requests, results of calls, events. Must not: do I/O, or read a clock.
"""
