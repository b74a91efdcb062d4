"""Create a client's SASL mechanism with the system's clock, random bytes, tokens and tickets.

In: a configuration and an I/O host (thread or event loop). Out: the mechanism that all connections
of the client use, or None. Modules that a mechanism needs are imported only for that mechanism.
Must not: fetch a token or ticket, which happens when a connection is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odradek.common.config import Config
from odradek.network.host import Host
from odradek.network.sasl.factory import SaslOutsiders, mechanism_for
from odradek.network.sasl.mechanism import Mechanism


def mechanism(config: Config, host: Host, *, real: bool) -> Mechanism | None:
    """Return a client's SASL mechanism; in simulations, nonces come from the client's generator."""
    outsiders = SaslOutsiders(
        wall_clock=host.wall_clock,
        random_bytes=_random_bytes if real else None,
        tokens=partial(_tokens, host),
        msk_iam=_msk_iam,
        gssapi=_gssapi,
    )
    return mechanism_for(config, outsiders)


def _random_bytes(count: int) -> bytes:
    from odradek.runtime.system_random import random_bytes

    return random_bytes(count)


def _tokens(host: Host, config: Config) -> Callable[[], object]:
    from odradek.runtime.credentials.token_functions import token_function
    from odradek.runtime.hosts.asyncio_host import AsyncioHost

    return token_function(config, lambda: host.loop if isinstance(host, AsyncioHost) else None)


def _msk_iam(config: Config) -> Mechanism:
    from odradek.runtime.credentials.msk_iam_credentials import msk_iam_mechanism

    return msk_iam_mechanism(config)


def _gssapi(config: Config) -> Mechanism:
    from odradek.runtime.credentials.kerberos import gssapi_mechanism

    return gssapi_mechanism(config)
