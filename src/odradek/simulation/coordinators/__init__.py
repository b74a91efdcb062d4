"""Coordinators of groups and transactions: their shards, their state machines and their APIs."""
