"""Which host a client runs on: one of a test's, or the usual one.

In: a configuration. Out: a host. Must not: open or start anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from odradek.common.config import Config
from odradek.network.host import Host

if TYPE_CHECKING:
    from odradek.runtime.tls.tls_context import TlsSource

HostSource = Callable[[Config], Host | None]
"""Gives a client's host, or None where the usual one shall be made."""
_sources: list[HostSource] = []


@contextmanager
def hosts_from(source: HostSource) -> Iterator[None]:
    """Let clients that are made meanwhile get their hosts from `source`.

    So code that makes its own clients can be tested in a simulation as it is, wherever it has the
    classes from: `odradek.testing` does so. The latest source is asked first.
    """
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)


def only_here(host: Host) -> HostSource:
    """A host for clients that this thread makes; other threads' get theirs as ever."""
    own = get_ident()
    return lambda config: host if get_ident() == own else None


def host_from_sources(config: Config) -> Host | None:
    """What the latest source that wants this client gives."""
    for source in reversed(_sources):
        host = source(config)
        if host is not None:
            return host
    return None


def _tls(config: Config) -> TlsSource | None:
    """Without TLS `ssl` isn't even imported."""
    if not config["security.protocol"].endswith("SSL"):
        return None
    from odradek.runtime.tls.tls_context import tls_source

    return tls_source(config)


def loop_host(config: Config) -> Host:
    """Work is done in the event loop of whoever calls."""
    from odradek.runtime.hosts.asyncio_host import AsyncioHost

    return AsyncioHost(tls=_tls(config))


def usual_host(config: Config, *, in_thread: bool) -> Host:
    """Work is done in the caller's thread, or in a thread of its own, which goes on by itself."""
    tls = _tls(config)
    if in_thread:
        from odradek.runtime.hosts.thread_host import ThreadHost

        return ThreadHost(tls=tls)
    from odradek.runtime.hosts.selector_host import SelectorHost

    return SelectorHost(tls=tls)
