"""Run an action after a delay, for packages that have no engine.

In: seconds and an action. Out: nothing. Must not: be used by an engine, which gets the time as an
argument, or keep the interpreter from exiting (the thread is a daemon).
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def later(seconds: float, action: Callable[[], None]) -> None:
    """Run an action after a number of seconds, in a daemon thread."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
