"""Recoveries and fleets in figures, beside the rules of other clients."""
