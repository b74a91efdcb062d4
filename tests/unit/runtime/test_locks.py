"""Test that no exception of a signal handler leaves a client's lock held."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest

from odradek.runtime.locks import new_lock

ALARMS = 2000


class Alarm(BaseException):
    """The exception that the signal handler raises."""


@pytest.fixture
def alarms() -> Iterator[random.Random]:
    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield random.Random(1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_exception_of_a_signal_handler_never_leaves_the_lock_held(alarms: random.Random) -> None:
    """CPython 3.14 may run a signal handler between the end of `__enter__` and the block."""
    lock, rang, until = new_lock(), 0, time.monotonic() + 30
    while rang < ALARMS and time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, alarms.uniform(20e-6, 200e-6))
            while True:
                with lock, lock:
                    pass
        except Alarm:
            rang += 1
            assert not lock.is_mine(), f"after {rang} signals"
    assert rang == ALARMS


def test_an_exception_in_the_block_releases_the_lock() -> None:
    lock = new_lock()
    with pytest.raises(Alarm), lock:
        with lock:
            assert lock.is_mine()
        assert lock.is_mine()
        raise Alarm
    assert not lock.is_mine()
