"""Coordinators of groups and transactions: their shards and their state machines."""
