"""Time limits for tests; they only end tests that hang."""

HANG_S = 300.0
"""Seconds that a test waits for a process that it started.

A process takes several times as long on a busy machine as on an idle one. pytest's own limit is
longer, so that a failure shows the output.
"""
