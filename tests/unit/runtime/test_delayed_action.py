"""Test actions that run after a delay in their own thread."""

from __future__ import annotations

import threading

from odradek.runtime.delayed_action import later


def test_a_delayed_action_runs_in_a_daemon_thread() -> None:
    done = threading.Event()
    threads: list[threading.Thread] = []

    def action() -> None:
        threads.append(threading.current_thread())
        done.set()

    later(0.0, action)
    assert done.wait(10)
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon
