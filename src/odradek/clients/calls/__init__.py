"""The part of public calls that runs in the user's thread or task, not in the client's engine.

In: a user's arguments, an engine, its I/O host (thread or event loop). Out: generators (flows, see
`caller_flow`). Sync, asyncio and simulated callers run the same flows, and differ in how they wait.
Must not: know threads, take a lock, read a clock, or block.
"""
