"""Simulated brokers: a handler for each API, SASL, and faults.

In: requests from simulated connections. Out: responses, or the end of the connection.
"""
