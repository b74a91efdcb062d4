"""Loops in virtual time for tests that are coroutines, whoever runs them.

In: a test of pytest that may ask for `kafka_simulation`. Out: the loop factories that
pytest-asyncio asks its hook for. Must not: import pytest-asyncio or anyio, or change a test that
doesn't ask for the fixture.
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
    """What is looked at of a test."""

    @property
    def fixturenames(self) -> list[str]:
        """The names of its fixtures, and of theirs."""


def loop_factories(item: AsksForFixtures) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What pytest-asyncio's hook `pytest_asyncio_loop_factories` shall give for a test.

    A loop in virtual time for a test that asks for `kafka_simulation`, itself or by its fixtures;
    asyncio's own for all others. Each test needs a loop of its own (`loop_scope="function"`, the
    default).
    """
    if FIXTURE in item.fixturenames:
        return {FIXTURE: _new_loop}
    return {"asyncio": asyncio.new_event_loop}


def _new_loop() -> VirtualLoop:
    simulation = latest_simulation()
    if simulation is None:
        raise ConfigurationError(EARLY)
    return simulation.new_loop()
