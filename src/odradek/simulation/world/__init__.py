"""Virtual time, simulated names and connections, I/O hosts for clients, and traces of clients.

In: a seed, effects of engines. Out: inputs of engines at virtual times.
"""
