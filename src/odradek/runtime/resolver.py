"""Resolve host names to IPs in daemon threads, because `getaddrinfo` can't be interrupted.

In: host, port and a callback for the result. Out: the IPs as texts in the order of the response,
without duplicates, or the error. Must not: cache (R-CS-6: every connection attempt resolves the
name again), or choose an IP. A thread whose result is late is abandoned. While a thread resolves a
name, other requests for the name wait for it, so that a dead name server costs few threads.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from odradek.runtime.locks import new_lock

Answer = list[str] | BaseException
SocketAddress = tuple[str, int] | tuple[str, int, int, int]


def numeric_address(ip: str, port: int) -> tuple[socket.AddressFamily, SocketAddress]:
    """Return the family and socket address of an IP address, including an IPv6 scope.

    This contacts no name server. The host is passed on as bytes: for a str, Python would import its
    IDNA codec in the connecting thread. Raises `OSError` for an invalid address.
    """
    family, _, _, _, address = socket.getaddrinfo(
        ip.encode(errors="replace"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    return family, address  # type: ignore[return-value]  # typeshed allows for AF_UNIX and others


def is_numeric(host: str) -> bool:
    """Return whether the text is an IP address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False


def look_up(host: str, port: int) -> list[str]:
    """Return the IPs from the system's resolver, which may block for any time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts: dict[str, None] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            texts[str(address[0])] = None
    return list(texts)


class Resolver:
    """The name resolutions in progress for one client."""

    def __init__(self, query: Callable[[str, int], list[str]] = look_up) -> None:
        self._query = query
        self._lock = new_lock()
        self._waiting: dict[tuple[str, int], list[Callable[[Answer], None]]] = {}

    def resolve(self, host: str, port: int, deliver: Callable[[Answer], None]) -> None:
        """Resolve a name, and call `deliver` with the IPs or the error, in another thread."""
        with self._lock:
            waiting = self._waiting.get((host, port))
            if waiting is not None:
                waiting.append(deliver)
                return
            self._waiting[host, port] = [deliver]
        try:
            threading.Thread(
                target=self._run, args=(host, port), name=f"odradek-dns-{host}", daemon=True
            ).start()
        except RuntimeError as error:  # no thread can be started
            self._answer(host, port, error)

    def _run(self, host: str, port: int) -> None:
        try:
            answer: Answer = self._query(host, port)
        except (OSError, UnicodeError, ValueError) as error:
            answer = error
        self._answer(host, port, answer)

    def _answer(self, host: str, port: int, answer: Answer) -> None:
        with self._lock:
            waiting = self._waiting.pop((host, port))
        for deliver in waiting:
            deliver(answer)
