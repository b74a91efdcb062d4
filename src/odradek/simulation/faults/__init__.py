"""Faults as data: verbs, their arguments, and how one is carried out in a world."""
