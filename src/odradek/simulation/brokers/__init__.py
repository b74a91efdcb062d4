"""Simulated brokers: a handler for each API, topics, logs, SASL, and what may go wrong."""
