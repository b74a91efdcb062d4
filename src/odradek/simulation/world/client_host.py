"""Define the interface of a client's host for a world, its checkers and its runs.

In: nothing. Out: the protocol that `SimulatedHost` implements, and the asyncio host that
`odradek.testing` puts into a world. Must not know how a host works.
"""

from __future__ import annotations

from typing import Protocol

from odradek.common.events import EventLog
from odradek.network.host import LoopHost
from odradek.simulation.world.link import LinkProfile, Mode, Watcher
from odradek.simulation.world.trace import Trace


class ClientHost(LoopHost, Protocol):
    """The host of one client in a world."""

    name: str
    mode: Mode
    profile: LinkProfile
    """Behaviour of the client's connections from now on."""
    watcher: Watcher | None
    trace: Trace
    events: EventLog | None
    """Events of the engine, once there is an engine."""
    worker_delay: float
    """Seconds that a `Call` with where="worker" takes."""
    steps: int

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def limit_steps(self, in_a_second: int, timed: int) -> None:
        """Set the limits of steps in a virtual second, and of those caused by a deadline alone."""

    def freeze(self, on: bool = True) -> None:
        """Stop the client's process as by SIGSTOP, or resume it; inputs are delayed until then."""
