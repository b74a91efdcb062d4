"""Choose the I/O host (thread or event loop) of a client: one set by a test, or the usual one.

In: a configuration. Out: a host. Must not: open a socket or start a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from odradek.common.config import Config
from odradek.network.host import Host

if TYPE_CHECKING:
    from odradek.runtime.tls.file_contexts import TlsSource

HostSource = Callable[[Config], Host | None]
"""Function that returns a client's host, or None for the usual host."""
_sources: list[HostSource] = []


@contextmanager
def hosts_from(source: HostSource) -> Iterator[None]:
    """Let `source` return the hosts of clients that are created within this block.

    With this, `odradek.testing` can run code that creates clients in a simulation, without changes
    to the code. In nested blocks, the innermost source is asked first.
    """
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)


def only_here(host: Host) -> HostSource:
    """Return a source that returns this host for clients created in the current thread."""
    own = get_ident()
    return lambda config: host if get_ident() == own else None


def host_from_sources(config: Config) -> Host | None:
    """Return the host from the innermost source that returns one for this client."""
    for source in reversed(_sources):
        host = source(config)
        if host is not None:
            return host
    return None


def _tls(config: Config) -> TlsSource | None:
    """Return the source of TLS contexts; None without TLS, so that `ssl` isn't imported."""
    if not config["security.protocol"].endswith("SSL"):
        return None
    from odradek.runtime.tls.tls_context import tls_source

    return tls_source(config)


def loop_host(config: Config) -> Host:
    """Return a host that works in the caller's event loop."""
    from odradek.runtime.hosts.asyncio_host import AsyncioHost

    return AsyncioHost(tls=_tls(config))


def usual_host(config: Config, *, in_thread: bool) -> Host:
    """Return a host that works in the caller's thread, or in a daemon thread."""
    tls = _tls(config)
    if in_thread:
        from odradek.runtime.hosts.thread_host import ThreadHost

        return ThreadHost(tls=tls)
    from odradek.runtime.hosts.selector_host import SelectorHost

    return SelectorHost(tls=tls)
