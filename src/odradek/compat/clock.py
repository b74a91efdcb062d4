"""Provide the facades with the clock that a test's frozen time (freezegun) doesn't stop.

In: nothing. Out: monotonic seconds. Must not: be used for a date.
"""

from odradek.runtime.system_clock import monotonic, monotonic_clock

__all__ = ["monotonic", "monotonic_clock"]
