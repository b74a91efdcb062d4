"""The part of the clients' calls that runs in the caller, outside of the engine's steps.

In: a user's arguments, an engine, a host. Out: flows that run in the caller (`caller_flow`). A
sync, an asyncio and a simulated caller run the same flows, and differ in how they wait. Must not:
know threads, take a lock, read a clock, or block.
"""
