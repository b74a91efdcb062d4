"""Monotonic clock for the compat packages, which freezegun doesn't stop in a program's tests.

In: nothing. Out: monotonic seconds. Must not: be used for dates.
"""

from odradek.runtime.system_clock import monotonic, monotonic_clock

__all__ = ["monotonic", "monotonic_clock"]
