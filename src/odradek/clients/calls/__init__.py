"""The caller's half of the clients: all that a call decides outside of the engine's steps.

In: a user's arguments, an engine, a host. Out: flows that run in the caller (`caller_flow`), which
a sync, an asyncio and a simulated caller carry out alike: they differ in how they wait. Must not:
know of threads, take a lock, read a clock, or wait.
"""
