"""A clock that a test has frozen (freezegun) doesn't freeze a client, neither then nor later."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.time_limits import HANG_S

from odradek.runtime.hosts.engine_host import monotonic_clock, wall_clock

PROGRAM = """
import asyncio, time

real = time.monotonic, time.time
time.monotonic, time.time = (lambda: 7.0), (lambda: 1e9)  # as freezegun replaces them

import odradek

nowhere = {"bootstrap.servers": "127.0.0.1:1"}
made = [odradek.Producer(nowhere), odradek.Consumer(nowhere), odradek.Admin(nowhere)]


async def program():
    made.append(odradek.AsyncProducer(nowhere))


time.monotonic, time.time = real
asyncio.run(program())
made.append(odradek.Producer(nowhere))
for client in made:
    host = client._host
    began = host.now()
    assert abs(began - time.monotonic()) < 60, "the clock is frozen"
    assert abs(host.wall_clock() - time.time()) < 60, "the date is frozen"
    while host.now() == began:
        pass
print("it goes")
"""


def test_modules_that_are_imported_while_time_is_frozen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.stdout == "it goes\n", done.stderr


def test_a_clock_that_is_not_frozen_is_used_itself() -> None:
    """Without a Python call in between: a producer needs it for each record."""
    assert monotonic_clock() is time.monotonic
    assert wall_clock() is time.time
