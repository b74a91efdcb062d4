"""Fetches: one at a time for each broker, and their records until they are returned."""
