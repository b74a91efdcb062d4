"""Find TCP sockets that other code of this process has opened, and set one option on them.

In: nothing, or file descriptors. Out: file descriptors. For code that runs in another program's
process, as in Spark's Python workers. Must not: close a socket or keep a socket open.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LISTING = Path("/proc/self/fd")
_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""The number of the option TCP_QUICKACK on Linux; None elsewhere."""


def tcp_connections() -> tuple[int, ...]:
    """Return the descriptors of established TCP connections; none if the system lists none."""
    found = []
    with suppress(OSError):
        for entry in LISTING.iterdir():
            number = int(entry.name)
            # OSError: not a socket, such as the descriptor of this listing.
            with suppress(OSError), _borrowed(number) as known:
                tcp = known.type == socket.SOCK_STREAM
                if tcp and known.family in (socket.AF_INET, socket.AF_INET6):
                    known.getpeername()
                    found.append(number)
    return tuple(found)


def acknowledge_at_once(descriptors: Iterable[int]) -> None:
    """Let the kernel acknowledge the next received data at once, not 40 ms later.

    The kernel resets this option after a while (tcp(7), TCP_QUICKACK). Closed sockets and
    descriptors of other files are ignored.
    """
    for number in descriptors if _QUICK is not None else ():
        with suppress(OSError), _borrowed(number) as known:
            known.setsockopt(socket.IPPROTO_TCP, _QUICK or 0, 1)


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    known = socket.socket(fileno=descriptor)
    try:
        yield known
    finally:
        known.detach()
