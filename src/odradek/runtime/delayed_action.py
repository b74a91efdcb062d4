"""Run an action after a delay, for packages outside any engine.

In: seconds and an action. Out: nothing. Must not be used by an engine, which takes the time as an
argument, or keep the interpreter from ending: the thread is a daemon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def later(seconds: float, action: Callable[[], None]) -> None:
    """Run an action later, in a daemon thread."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
