"""Define the proxy between a client and its brokers, from `proxy.url`.

In: a URL such as `socks5h://user:password@proxy:1080`. Out: a `Proxy`, whose password is a
`Secret`. Must not: show the original URL, resolve a name, or open a connection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.common.errors import ConfigurationError
from odradek.common.options.values import reads
from odradek.common.secret import NotText, Secret, hidden
from odradek.common.types import Address

SOCKS5, SOCKS5H, HTTP = "socks5", "socks5h", "http"
SOCKS_PORT = 1080
NO_PASSWORD = Secret("")
LONGEST = 255
"""Maximum length of a user name or a password in bytes (SOCKS5, RFC 1929)."""


class Proxy(NamedTuple):
    """A proxy: kind (`socks5`, `socks5h`, or `http` for CONNECT), address and credentials."""

    scheme: str
    address: Address
    user: str = ""
    password: Secret = NO_PASSWORD

    @property
    def resolves(self) -> bool:
        """Whether the proxy resolves the brokers' names."""
        return self.scheme != SOCKS5

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"


def may_hold_password(value: object) -> bool:
    """Return whether a value of `proxy.url` may contain a password, so that it mustn't be shown."""
    return not isinstance(value, str) or "@" in value


@reads("secret URL", "scheme://user:password@host:port with socks5, socks5h or http", str)
def proxy_url(name: str, value: Any) -> Proxy:
    """Read the URL; errors don't show it, because it may contain a password."""
    if isinstance(value, Proxy):
        return value
    given = hidden(value) if may_hold_password(value) else value
    if not isinstance(given, Secret | str):
        kind = given.kind if isinstance(given, NotText) else "None"
        raise ConfigurationError(f"{name} must be a string, not {kind}")
    found = _read(given)
    if isinstance(found, str):
        raise ConfigurationError(
            f"{name}: {found}. Expected for example socks5h://host:1080 or "
            "http://user:password@host:3128"
        )
    return found


def _read(given: Secret | str) -> Proxy | str:
    """Return the proxy, or an error text; the caller raises it, as this frame has secrets."""
    from urllib.parse import unquote, urlsplit  # imported late: most clients don't need it

    try:
        parts = urlsplit((given if isinstance(given, str) else given.reveal()).strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
        user, password = unquote(parts.username or ""), NO_PASSWORD
        if parts.password:
            password = Secret(unquote(parts.password))
    except ValueError:
        return "not a URL"
    if scheme == "https":
        return "proxies over TLS aren't supported in this release; use http://"
    if scheme not in (SOCKS5, SOCKS5H, HTTP):
        return "the scheme must be socks5, socks5h or http"
    if not host:
        return "the URL has no host"
    if port is None and scheme == HTTP:
        return "the URL has no port"
    if parts.path.strip("/") or parts.query or parts.fragment:
        return "the URL must end after the port (write / and @ in a password as %2F and %40)"
    if password and not user:
        return "the URL has a password but no user"
    if user and scheme == HTTP and ":" in user:
        return "an HTTP proxy can't receive a user name with a colon"
    if scheme != HTTP and user:
        if not password:
            return "a SOCKS5 proxy needs a password with the user"
        if max(len(user.encode()), len(password.reveal().encode())) > LONGEST:
            return f"a SOCKS5 proxy can't receive a user or password of more than {LONGEST} bytes"
    return Proxy(scheme, Address(host, SOCKS_PORT if port is None else port), user, password)
