"""Faults as data: their kinds and arguments, and how one is injected into a world."""
