"""Define the interface of a simulated client's I/O host, for the simulation and its checkers.

In: nothing. Out: the protocol that `SimulatedHost` implements, and also the asyncio I/O host with
which `odradek.testing` runs a client in a simulation. Must not know how an I/O host works.
"""

from __future__ import annotations

from typing import Protocol

from odradek.common.events import EventLog
from odradek.network.host import LoopHost
from odradek.simulation.world.link import LinkProfile, Mode, Watcher
from odradek.simulation.world.trace import Trace


class ClientHost(LoopHost, Protocol):
    """The I/O host of one simulated client: it runs the client's engine."""

    name: str
    mode: Mode
    profile: LinkProfile
    """Behaviour of the client's connections from now on."""
    watcher: Watcher | None
    trace: Trace
    events: EventLog | None
    """Events of the engine; None before an engine is attached."""
    worker_delay: float
    """Duration in virtual seconds of a `Call` with where="worker"."""
    steps: int

    @property
    def closed(self) -> bool:
        """Whether the I/O host was closed."""

    def limit_steps(self, in_a_second: int, timed: int) -> None:
        """Limit the engine's steps per virtual second: all steps, and those only due to a timer."""

    def freeze(self, on: bool = True) -> None:
        """Stop the client's process as by SIGSTOP, or resume it; inputs are delayed until then."""
