"""Time limits of tests that only end hangs."""

HANG_S = 300.0
"""Seconds that a test waits for a process that it started.

On a busy machine, it takes several times as long as on an idle one. pytest's own limit is longer,
so that a failure shows the output.
"""
