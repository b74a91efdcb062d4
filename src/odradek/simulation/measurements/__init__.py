"""Measurements of recoveries and fleets, compared with the rules of other clients."""
