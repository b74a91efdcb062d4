"""Things that are done after a while, in a thread of their own."""

from __future__ import annotations

import threading

from odradek.runtime.later import later


def test_the_action_runs_in_a_daemon_thread() -> None:
    done = threading.Event()
    threads: list[threading.Thread] = []

    def action() -> None:
        threads.append(threading.current_thread())
        done.set()

    later(0.0, action)
    assert done.wait(10)
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon


def test_what_was_called_off_is_not_done() -> None:
    done: list[int] = []
    before = threading.active_count()
    call_off = later(3600.0, lambda: done.append(1))
    waiting = [t for t in threading.enumerate() if isinstance(t, threading.Timer)]
    call_off()
    for thread in waiting:
        thread.join(10)
    assert threading.active_count() <= before
    assert done == []
