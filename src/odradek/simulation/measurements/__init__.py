"""Measurements of recoveries and of many clients, with Odradek's and other clients' rules.

In: a fault, a number of brokers or clients, a strategy. Out: times and counts.
"""
