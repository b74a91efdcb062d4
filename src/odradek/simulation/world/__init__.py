"""Time, names, links and hosts of the virtual world, and traces of clients.

In: a seed, effects of engines. Out: inputs of engines at virtual times.
"""
