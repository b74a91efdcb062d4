"""Find sockets of this process that other code opened, and set one option.

In: nothing, or descriptors. Out: descriptors. For programs that run inside another host, as Spark's
Python workers. Must not: close a socket or keep one open: descriptors are only borrowed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LISTING = Path("/proc/self/fd")
_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""The option's number on Linux; None elsewhere."""


def tcp_connections() -> tuple[int, ...]:
    """Return the descriptors of established TCP connections, if the system lists them."""
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
    """Acknowledge the next data on these connections when it is read, not 40 ms later.

    The kernel resets this option later (tcp(7), TCP_QUICKACK). Closed sockets and other files are
    ignored.
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
