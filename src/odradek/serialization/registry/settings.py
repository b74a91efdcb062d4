"""Settings of a registry client, with the names of Confluent's clients.

In: a mapping. Out: `RegistrySettings`. Must not: contact a registry, or show a credential.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret
from odradek.runtime.credentials.allowed_sources import allowed_server, shown
from odradek.runtime.rest_client import NoCredentialsError

URL = "schema.registry.url"
SYNONYMS = {"url": URL}
"""Names that confluent-kafka for Python uses."""
SECRETS = ("basic.auth.user.info", "bearer.auth.token", "ssl.key.password")
TEXTS = (
    URL,
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
)
SOURCES = {
    "basic.auth.credentials.source": ("USER_INFO", "basic.auth.user.info"),
    "bearer.auth.credentials.source": ("STATIC_TOKEN", "bearer.auth.token"),
}
"""Credential source settings of other clients: the supported value, and our setting for it."""
NUMBERS = {
    "request.timeout.ms": 10_000.0,
    "default.api.timeout.ms": 30_000.0,
    "retry.backoff.ms": 100.0,
    "retry.backoff.max.ms": 1_000.0,
    "cache.latest.ttl.sec": 300.0,
    "cache.capacity": 1_000.0,
}
"""Numeric settings and defaults; timeouts are shorter than Kafka's, because records wait."""


@dataclass(frozen=True)
class RegistrySettings:
    """Checked settings of a registry client."""

    urls: tuple[str, ...]
    user_info: Secret | None = None
    token: Secret | Callable[[], object] | None = None
    cloud: tuple[tuple[str, str], ...] = ()
    """Headers with the cluster and identity pool of a token."""
    files: tuple[str | None, str | None, str | None] = (None, None, None)
    """PEM files: CA certificates, the client's certificate, the client's key."""
    key_password: Secret | None = None
    numbers: Mapping[str, float] = field(default_factory=dict, compare=False)

    def headers(self) -> dict[str, Secret]:
        """Return the headers that authenticate a request. Raises `NoCredentialsError`."""
        if self.user_info is not None:
            encoded = b64encode(self.user_info.reveal().encode()).decode()
            return {"Authorization": Secret(f"Basic {encoded}")}
        token = self.token
        if token is None:
            return {}
        found = Secret(_returned(token)) if not isinstance(token, Secret) else token
        made = {"Authorization": Secret(f"Bearer {found.reveal().strip()}")}
        return made | {name: Secret(value) for name, value in self.cloud}


def _returned(function: Callable[[], object]) -> str:
    """Call the program's function and return its token. Raises `NoCredentialsError`."""
    try:
        found = function()
    except Exception as error:  # any error of the program, for example of an identity provider
        raise NoCredentialsError(
            f"the function bearer.auth.token raised {type(error).__name__}"
        ) from error
    wrong = "no string"
    if isinstance(found, str) and found.strip():
        if _fits_header(found.strip()):
            return found
        wrong = _UNFIT
    del found  # keep the invalid token out of tracebacks that show local variables
    raise NoCredentialsError(f"the function bearer.auth.token returned {wrong}")


_UNFIT = "characters that an HTTP header can't contain"


def _fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable()


def with_secrets(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with secrets wrapped.

    Tracebacks that show local variables then hide them.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"the settings of a registry client must be a dict, not {type(given).__name__}"
        )
    return {
        name: Secret(value) if name in SECRETS and isinstance(value, str) else value
        for name, value in given.items()
    }


NAMES = (*TEXTS, *SECRETS, *SOURCES, *NUMBERS)
"""Names of all settings, without synonyms."""


def registry_settings(given: Mapping[str, Any]) -> RegistrySettings:
    """Check settings with wrapped secrets. Raises `ConfigurationError` for invalid ones."""
    there = [name for name, value in given.items() if value is not None]
    left = {SYNONYMS.get(name, name): given[name] for name in there}
    if len(left) < len(there):
        raise ConfigurationError(
            f"{URL} and {' or '.join(SYNONYMS)} can't be combined: they are synonyms"
        )
    texts = {name: _text(name, left.pop(name)) for name in TEXTS if name in left}
    secrets = {name: _secret(name, left.pop(name)) for name in SECRETS if name in left}
    numbers = NUMBERS | {name: _number(name, left.pop(name)) for name in NUMBERS if name in left}
    for name, (only, instead) in SOURCES.items():
        if left.pop(name, only) != only:
            raise ConfigurationError(f"{name} must be {only}, with {instead}")
    if left:
        raise ConfigurationError(
            f"{', '.join(sorted(map(str, left)))}: unknown setting of a registry client; the "
            f"settings are {', '.join(sorted(NAMES))}"
        )
    user, token = secrets.get("basic.auth.user.info"), secrets.get("bearer.auth.token")
    if user is not None and token is not None:
        raise ConfigurationError("basic.auth.user.info and bearer.auth.token can't be combined")
    certificate = texts.get("ssl.certificate.location")
    if texts.get("ssl.key.location") and certificate is None:
        raise ConfigurationError("ssl.key.location needs ssl.certificate.location")
    cloud = {
        "target-sr-cluster": texts.get("bearer.auth.logical.cluster"),
        "Confluent-Identity-Pool-Id": texts.get("bearer.auth.identity.pool.id"),
    }
    return RegistrySettings(
        _urls(texts.get(URL, "")),
        user if isinstance(user, Secret) else None,
        token,
        tuple((name, value) for name, value in cloud.items() if value is not None),
        (texts.get("ssl.ca.location"), certificate, texts.get("ssl.key.location")),
        key if isinstance(key := secrets.get("ssl.key.password"), Secret) else None,
        numbers,
    )


def _urls(text: str) -> tuple[str, ...]:
    """Return the URLs. Raises an error unless this process may connect to all of them (R-IN-2)."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    if not found:
        raise ConfigurationError(
            f"{URL} is missing: set it to one or more http(s) URLs, separated by commas"
        )
    urls = tuple(allowed_server(URL, one) for one in found)  # first: urlsplit may raise an error
    for one in urls:
        if "@" in urlsplit(one).netloc:
            raise ConfigurationError(
                f"{URL}: {shown(one)} contains a user name and password; use "
                "basic.auth.user.info=user:password instead"
            )
    return urls


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string, not {type(value).__name__}")
    if not value:
        raise ConfigurationError(f"{name} is empty: set it, or remove it")
    return value


def _secret(name: str, value: object) -> Secret | Callable[[], object]:
    if isinstance(value, Secret) and value:
        if name == "bearer.auth.token" and not _fits_header(value.reveal().strip()):
            raise ConfigurationError(f"{name} contains {_UNFIT}")
        if name != "basic.auth.user.info" or ":" in value.reveal():
            return value
    elif callable(value) and name == "bearer.auth.token":
        return value
    wanted = "user:password" if name == "basic.auth.user.info" else "a string"
    raise ConfigurationError(f"{name} must be {wanted}")


def _number(name: str, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise ConfigurationError(f"{name} must be a number >= 0")
    if name == "cache.capacity" and value < 1:
        raise ConfigurationError("cache.capacity must be at least 1")
    return float(value)
