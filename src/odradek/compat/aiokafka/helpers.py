"""aiokafka's helper for TLS.

In: certificate files. Out: an `ssl.SSLContext` for the argument `ssl_context`. Must not: open a
connection, or log its arguments.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from os import PathLike

Path = str | bytes | PathLike[str] | PathLike[bytes]
Password = str | bytes | bytearray


def create_ssl_context(
    *,
    cafile: Path | None = None,
    capath: Path | None = None,
    cadata: str | bytes | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: Callable[[], Password] | Password | None = None,
) -> ssl.SSLContext:
    """Return a context that trusts these CAs (`cadata`: PEM or DER), by default the system's.

    `certfile` and `keyfile`, with its `password`, are this client's own certificate. Host names are
    checked. Raises what `ssl` raises.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
