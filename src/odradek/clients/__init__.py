"""The engines of producer, consumer and admin client: their protocol logic, without I/O.

In: public calls of the sync and asyncio clients; responses and connections from `network`; cluster
snapshots from `metadata`. Out: requests, results of calls, events. Must not: read a clock.
"""
