"""Faults as data: their kinds and arguments, and how a fault is injected into a simulation.

In: a schedule's faults. Out: calls of the simulation's `World` and of the cluster.
"""
