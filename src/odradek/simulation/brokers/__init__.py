"""Simulated brokers: a handler for each API, SASL, and faults."""
