"""Create the mechanism with which a client authenticates.

In: a configuration, and functions with side effects (clock, token servers, Kerberos) that the
client passes. Out: a mechanism, or None without SASL. Must not: fetch credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError
from odradek.network.sasl.mechanism import Credentials, Mechanism
from odradek.network.sasl.oauthbearer import Oauthbearer, Refresh
from odradek.network.sasl.plain import Plain
from odradek.network.sasl.scram import HASHES, Scram

SASL_PROTOCOLS = frozenset(("SASL_PLAINTEXT", "SASL_SSL"))


@dataclass(frozen=True, slots=True)
class SaslOutsiders:
    """Functions that mechanisms need and that read the clock, the network or random numbers."""

    wall_clock: Callable[[], float]
    random_bytes: Callable[[int], bytes] | None = None
    """Function that returns random bytes for nonces; None: use the client's generator."""
    tokens: Callable[[Config], Callable[[], object]] | None = None
    """Function that returns the function that fetches tokens for OAUTHBEARER.

    The result is the user's function, or a function that contacts a token server (KIP-768).
    """
    msk_iam: Callable[[Config], Mechanism] | None = None
    gssapi: Callable[[Config], Mechanism] | None = None


def mechanism_for(config: Config, outsiders: SaslOutsiders) -> Mechanism | None:
    """Return the mechanism that the configuration names; None without SASL."""
    if config["security.protocol"] not in SASL_PROTOCOLS:
        return None
    name: str = config["sasl.mechanism"]
    if name == "PLAIN":
        return Plain(_credentials(config, name))
    if name in HASHES:
        return Scram(
            name,
            _credentials(config, name),
            delegation_token=bool(config["sasl.scram.tokenauth"]),
            random_bytes=outsiders.random_bytes,
        )
    if name == "OAUTHBEARER":
        return _oauthbearer(config, outsiders)
    makers = {"AWS_MSK_IAM": outsiders.msk_iam, "GSSAPI": outsiders.gssapi}
    make = makers.get(name)
    if make is None:
        raise ConfigurationError(f"sasl.mechanism={name} isn't supported here")
    return make(config)


def _credentials(config: Config, mechanism: str) -> Credentials:
    username, password = config["sasl.username"], config["sasl.password"]
    if username is None or password is None:
        missing = "sasl.username" if username is None else "sasl.password"
        raise ConfigurationError(
            f"{missing} is missing: sasl.mechanism={mechanism} needs sasl.username and "
            "sasl.password (or sasl.jaas.config)"
        )
    return Credentials(username, password)


def _oauthbearer(config: Config, outsiders: SaslOutsiders) -> Mechanism:
    fetch: Callable[[], object] | None = config["sasl.oauthbearer.token.provider"]
    if outsiders.tokens is not None:
        fetch = outsiders.tokens(config)
    if fetch is None:
        raise ConfigurationError(
            "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.provider (a function), or "
            "sasl.oauthbearer.token.endpoint.url with client id and secret"
        )
    refresh = Refresh(
        config["sasl.login.refresh.window.factor"],
        config["sasl.login.refresh.window.jitter"],
        config["sasl.login.refresh.min.period.seconds"],
        config["sasl.login.refresh.buffer.seconds"],
    )
    extensions = config["sasl.oauthbearer.extensions"]
    return Oauthbearer(fetch, outsiders.wall_clock, extensions=extensions, refresh=refresh)
