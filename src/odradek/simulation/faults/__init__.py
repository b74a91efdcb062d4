"""Faults as data: their kinds and arguments, and how a fault is injected into a world.

In: a schedule's faults. Out: calls of the world and the cluster.
"""
