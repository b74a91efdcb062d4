"""Spark over what clients tell: tables of events, and fleets in shards."""
