"""Which URLs and files a client may take credentials from: the operator's word, not the settings'.

In: a URL or a file that a configuration names, and the environment of this process. Out: the same,
or a `ConfigurationError` with the cure. Whoever writes settings may not be whom the machine belongs
to (Spark's options, files that others send): a line there could have a local file sent to a server
of the same line (CVE-2025-27817). So files are opened only where `ODRADEK_ALLOWED_FILES` names
them, and where `ODRADEK_ALLOWED_URLS` is set no other token server is asked; Kafka's system
properties `…oauthbearer.allowed.files` and `.allowed.urls` do the same. Must not: let a
configuration widen either, or open anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from odradek.common.errors import ConfigurationError

ALLOWED_URLS = "ODRADEK_ALLOWED_URLS"
"""Token endpoints and schema registries, with commas between; not set: any http(s) URL. Empty:
none."""
ALLOWED_FILES = "ODRADEK_ALLOWED_FILES"
"""Files with tokens, assertions and the keys that sign those, as absolute paths with commas
between; not set: none."""
_PORTS = {"http": 80, "https": 443}
URL_OPTION = "sasl.oauthbearer.token.endpoint.url"


def allowed_url(url: str, environment: Mapping[str, str] | None = None) -> str:
    """An http(s) URL of a token server that may be asked, or a `file:` URL that may be read."""
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
    """An http(s) URL of a server of another kind that may be asked, without a `/` at its end."""
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        where = "" if parts is None else f", not {shown(url)!r}"
        raise ConfigurationError(f"{option} must be an http or https URL{where}")
    listed = _listed(ALLOWED_URLS, environment)
    base = url.rstrip("/")
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
    """A file with a token, an assertion or its key, if the operator of this process names it."""
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
    """A URL without what may be secret in it: user, password, query, fragment."""
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
    """A URL in its parts; None where it has none, or characters that URLs can't have."""
    if not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _same(url: str) -> tuple[object, ...] | None:
    """What two spellings of one URL have in common."""
    parts = _split(url)
    if parts is None:
        return None
    user = parts.netloc.rpartition("@")[0]
    port = parts.port or _PORTS.get(parts.scheme)
    return parts.scheme, user, parts.hostname, port, parts.path or "/", parts.query
