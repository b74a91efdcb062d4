"""Create loops in virtual time for tests that are coroutines, with any plugin that runs them.

In: a test of pytest that may use `kafka_simulation`. Out: the loop factories that pytest-asyncio
requests from its hook. Must not: import pytest-asyncio or anyio, or change a test that doesn't use
the fixture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.common.errors import ConfigurationError
from odradek.testing.simulated import latest_simulation
from odradek.testing.virtual.virtual_loop import VirtualLoop

FIXTURE = "kafka_simulation"
EARLY = (
    "an async fixture runs before kafka_simulation, which starts virtual time. Add "
    "kafka_simulation to the fixture's arguments."
)


class AsksForFixtures(Protocol):
    """Attributes of pytest's test items that this module uses."""

    @property
    def fixturenames(self) -> list[str]:
        """Names of the test's fixtures, including indirect ones."""


def loop_factories(item: AsksForFixtures) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop factories for pytest-asyncio's hook `pytest_asyncio_loop_factories`.

    A test that uses `kafka_simulation`, directly or through a fixture, gets an event loop in
    virtual time; all other tests get asyncio's own loop. Each test must have a separate loop
    (`loop_scope="function"`, the default).
    """
    if FIXTURE in item.fixturenames:
        return {FIXTURE: _new_loop}
    return {"asyncio": asyncio.new_event_loop}


def _new_loop() -> VirtualLoop:
    simulation = latest_simulation()
    if simulation is None:
        raise ConfigurationError(EARLY)
    return simulation.new_loop()
