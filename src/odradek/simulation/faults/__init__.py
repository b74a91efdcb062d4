"""Faults as data: their kinds and arguments, and how one is injected into a world.

In: a schedule's faults. Out: calls of the world and the cluster.
"""
