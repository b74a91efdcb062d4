"""Something to be done after a while, unless it is called off: for rooms outside any engine.

In: seconds and an action. Out: how to call it off. Must not: be used by an engine, which is handed
its time; or keep the interpreter from ending: the thread is a daemon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def later(seconds: float, action: Callable[[], None]) -> Callable[[], None]:
    """Have an action run in a thread of its own; give what calls it off.

    It may be under way already when it is called off: both sides must agree on who was first.
    """
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer.cancel
