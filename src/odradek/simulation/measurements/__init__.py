"""Measurements of recoveries and fleets, for Odradek and for the rules of other clients.

In: a fault, a number of brokers or clients, a strategy. Out: times and counts.
"""
