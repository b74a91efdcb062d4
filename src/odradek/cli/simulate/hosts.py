"""Read `--host`: which I/O host (thread or event loop that runs a client) a simulation uses.

In: a name. Out: the function that creates such I/O hosts; an unknown name is a usage error. Must
not: import an I/O host to print help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from odradek.simulation.world.world import HostMaker

SIMULATED, ASYNCIO, MOODY = "simulated", "asyncio", "moody-asyncio"
HOSTS = (
    f"{SIMULATED}; {ASYNCIO}, the host of the asyncio clients, on simulated sockets and "
    f"timers; {MOODY}, the same with partial reads and writes and early timers"
)


def host_maker(name: str) -> HostMaker | None:
    """Return the function that creates I/O hosts; None for the simulation's default."""
    if name == SIMULATED:
        return None
    from odradek.testing.virtual.world_host import MoodyAsyncioHost, WorldAsyncioHost

    if name == ASYNCIO:
        return WorldAsyncioHost
    if name == MOODY:
        return MoodyAsyncioHost
    raise typer.BadParameter(f"--host must be one of {SIMULATED}, {ASYNCIO}, {MOODY}, not {name!r}")


def flag(name: str) -> str:
    """Return ` --host NAME` for a command line; an empty text for the default."""
    return "" if name == SIMULATED else f" --host {name}"
