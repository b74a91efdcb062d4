"""Simulated brokers: a handler for each API, SASL, and what may go wrong."""
