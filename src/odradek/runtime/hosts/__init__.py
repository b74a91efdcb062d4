"""I/O hosts, which run engines over sockets: in a caller's thread, a daemon thread or a loop.

In: an engine's effects (I/O operations to do). Out: what happened, as the engine's inputs.
"""
