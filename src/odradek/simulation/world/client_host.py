"""Define the host of a client as a world, its checkers and its runs see it.

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
    """Behaviour of its connections from now on."""
    watcher: Watcher | None
    trace: Trace
    events: EventLog | None
    """The engine's events, once there is an engine."""
    worker_delay: float
    """Seconds that a `Call` with where="worker" takes."""
    steps: int

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def limit_steps(self, in_a_second: int, timed: int) -> None:
        """Report a hot loop at more steps in a virtual second, or more by deadlines alone."""

    def freeze(self, on: bool = True) -> None:
        """Stop the client's process like SIGSTOP, or resume it: inputs wait for it."""
