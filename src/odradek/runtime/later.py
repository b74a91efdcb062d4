"""Something to be done after a while: for rooms outside any engine.

In: seconds and an action. Out: nothing. Must not: be used by an engine, which is handed its time;
or keep the interpreter from ending: the thread is a daemon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def later(seconds: float, action: Callable[[], None]) -> None:
    """Have an action run in a thread of its own."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
