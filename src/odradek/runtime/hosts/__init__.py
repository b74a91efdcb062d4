"""Hosts, which run engines over sockets: in the caller's thread, a daemon thread or an event loop.

In: an engine's effects, callers' flows. Out: the engine's inputs, results for callers.
"""
