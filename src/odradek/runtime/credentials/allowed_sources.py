"""Restrict URLs and files of credentials to what the operator of this process allows.

In: a URL or file in a configuration, and the environment variables of this process. Out: the URL or
path if it is allowed, else a `ConfigurationError` that says what to set. The author of a
configuration may not be the operator of the machine (Spark's options, files from other people), and
could send a local file to a server (CVE-2025-27817). So files are only opened if
`ODRADEK_ALLOWED_FILES` names them, and if `ODRADEK_ALLOWED_URLS` is set, no other token server is
contacted; Kafka has system properties `…oauthbearer.allowed.files` and `.allowed.urls` for this.
Must not: let a configuration extend these lists, or open a file or URL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from odradek.common.errors import ConfigurationError

ALLOWED_URLS = "ODRADEK_ALLOWED_URLS"
"""Variable with the allowed token endpoints and schema registries, separated by commas.

If it isn't set, any http(s) URL is allowed; if it is empty, no URL.
"""
ALLOWED_FILES = "ODRADEK_ALLOWED_FILES"
"""Variable with the allowed files (tokens, assertions, their keys): absolute paths, by commas.

If it isn't set, no file is allowed.
"""
_PORTS = {"http": 80, "https": 443}
URL_OPTION = "sasl.oauthbearer.token.endpoint.url"


def allowed_url(url: str, environment: Mapping[str, str] | None = None) -> str:
    """Return an allowed http(s) URL of a token server, or an allowed `file:` URL."""
    parts = _split(url)
    if parts is not None and parts.scheme == "file" and parts.netloc in ("", "localhost"):
        allowed_file(URL_OPTION, unquote(parts.path), environment)
        return url
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        where = "" if parts is None else f", not {shown(url)!r}"
        raise ConfigurationError(f"{URL_OPTION} must be an http, https or file URL{where}")
    listed = _listed(ALLOWED_URLS, environment)
    if listed is not None and _same(url) not in map(_same, listed):
        raise _not_allowed(URL_OPTION, url, "token servers")
    return url


def allowed_server(option: str, url: str, environment: Mapping[str, str] | None = None) -> str:
    """Return an allowed http(s) URL of another kind of server, without a trailing `/`."""
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        where = "" if parts is None else f", not {shown(url)!r}"
        raise ConfigurationError(f"{option} must be an http or https URL{where}")
    listed = _listed(ALLOWED_URLS, environment)
    base = urlunsplit(parts).rstrip("/")  # `urlsplit` returns lower case
    if listed is not None and _same(base) not in (_same(one.rstrip("/")) for one in listed):
        raise _not_allowed(option, url, "servers")
    return base


def _not_allowed(option: str, url: str, kind: str) -> ConfigurationError:
    return ConfigurationError(
        f"{option}: {shown(url)} isn't one of the {kind} in {ALLOWED_URLS}. The operator of this "
        "process can add it to that environment variable"
    )


def allowed_file(
    option: str, path: str | os.PathLike[str], environment: Mapping[str, str] | None = None
) -> str:
    """Return the path of a file with a token, an assertion or its key; raise if not allowed."""
    found = os.path.abspath(os.fspath(path))  # noqa: PTH100 - as text: `..` and `//` go, links stay
    listed = _listed(ALLOWED_FILES, environment) or ()
    if not any(os.path.isabs(one) and os.path.abspath(one) == found for one in listed):  # noqa: PTH100, PTH117
        raise ConfigurationError(
            f"{option}: reading {found} isn't allowed, because its content would be sent to a "
            f"server. The operator of this process can allow it: {ALLOWED_FILES}=<absolute paths, "
            "separated by commas>. Alternatives are a Python function that reads the file "
            "(sasl.oauthbearer.token.provider), or a key as text"
        )
    return found


def shown(url: str) -> str:
    """Return a URL without the parts that may be secret: user, password, query, fragment."""
    parts = _split(url)
    if parts is None:
        return "[hidden]"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _listed(variable: str, environment: Mapping[str, str] | None) -> tuple[str, ...] | None:
    text = (os.environ if environment is None else environment).get(variable)
    if text is None:
        return None
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if the URL is invalid."""
    if not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _same(url: str) -> tuple[object, ...] | None:
    """Return the normalised form of a URL, to compare URLs."""
    parts = _split(url)
    if parts is None:
        return None
    user = parts.netloc.rpartition("@")[0]
    port = parts.port or _PORTS.get(parts.scheme)
    return parts.scheme, user, parts.hostname, port, parts.path or "/", parts.query
