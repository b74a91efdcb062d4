"""The tests' clock, which distinguishes a call that ends late from a busy machine."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.own_time import ends_at, held

COUNTED = Path("/proc/self/schedstat").exists()


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_clock_reports_a_call_that_returns_late_or_early() -> None:
    with ends_at(0.05):
        time.sleep(0.05)
    with pytest.raises(AssertionError, match=r"0\.\d+ s instead of 0\.01 s"), ends_at(0.01):
        time.sleep(0.4)
    with pytest.raises(AssertionError, match=r"after 0\.\d+ s already"), ends_at(5.0):
        pass
    with ends_at(0.05, soonest=0.0):
        pass


@pytest.mark.slow
@pytest.mark.skipif(not COUNTED, reason="only Linux counts how long a thread waits for its turn")
def test_time_spent_waiting_for_a_processor_or_collecting_garbage_is_subtracted() -> None:
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        begin = time.monotonic()
        with held() as away:
            spin(0.2)
        took = time.monotonic() - begin
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert took - 0.2 - 0.05 <= away.total
    assert away.queued <= took + 0.05
    with held() as away:
        gc.collect()
    assert away.collecting > 0.0
