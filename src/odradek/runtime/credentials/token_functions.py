"""Create the function that returns OAUTHBEARER's tokens from a configuration.

In: a function of the user (in any form that clients accept), a token server, or AWS credentials.
Out: a function without arguments, for worker threads; concurrent calls share one result.
`network/sasl/oauthbearer` reads the result of a user's function and reports its errors. Must not:
contact a server before it is called.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, TokenError
from odradek.common.secret import Secret
from odradek.network.sasl.oauthbearer import Token
from odradek.runtime.credentials.allowed_sources import allowed_file, allowed_url
from odradek.runtime.credentials.jwt_assertion import (
    AssertionSettings,
    assertion_in,
    assertion_of,
    encoded,
)
from odradek.runtime.credentials.oidc import (
    CLIENT_CREDENTIALS,
    JWT_BEARER,
    TokenServer,
    TokenTimeouts,
    basic,
    from_file,
    token_of,
)
from odradek.runtime.credentials.provider_loop import result_in
from odradek.runtime.credentials.single_flight import SingleFlight
from odradek.runtime.tls.tls_context import https_source

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("odradek")

TokenFunction = Callable[[], object]
ClientLoop = Callable[[], "asyncio.AbstractEventLoop | None"]

SHARE_OF_SETUP = 0.6
"""Share of the connection's setup timeout that the token server may use.

The server's error is then known before the setup times out, even if jitter shortens the timeout by
a fifth.
"""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
UNSECURED_LIFETIME = 3600.0
"""Default lifetime of an unsecured token in seconds, as in Java."""


def token_function(config: Config, loop: ClientLoop = lambda: None) -> TokenFunction:
    """Return this client's token function; raise if no option says where tokens come from.

    `loop` returns the client's event loop, if there is one: a user's coroutines run in it.
    """
    return SingleFlight(_function(config, loop))


def _function(config: Config, loop: ClientLoop) -> TokenFunction:
    provider = config["sasl.oauthbearer.token.provider"]
    if provider is not None:
        return user_function(provider, config["sasl.oauthbearer.config"], loop)
    method = config["sasl.oauthbearer.method"]
    if method == "aws_msk_iam":
        from odradek.runtime.credentials.msk_iam_credentials import msk_iam_tokens

        return msk_iam_tokens(config)
    if method == "unsecured":
        return unsecured(config["sasl.oauthbearer.unsecured"] or {}, time.time)
    if config["sasl.oauthbearer.token.endpoint.url"]:
        return oidc(config)
    raise ConfigurationError(
        "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.provider (a function that "
        "returns tokens), or sasl.oauthbearer.token.endpoint.url with "
        "sasl.oauthbearer.client.credentials.client.id and .client.secret"
    )


def user_function(provider: Any, argument: Secret | None, loop: ClientLoop) -> TokenFunction:
    """Return a function without arguments for a user's function or object with `token()`.

    The user's function may take a string (confluent-kafka's `oauth_cb`) or be a coroutine function.
    """

    def awaited(given: Any) -> object:
        return result_in(loop(), given) if inspect.isawaitable(given) else given

    if callable(getattr(provider, "token", None)):
        return lambda: _contained(lambda: _of_object(provider, awaited))
    if _takes_text(provider):
        text = argument
        return lambda: _contained(lambda: awaited(provider(text.reveal() if text else None)))
    return lambda: _contained(lambda: awaited(provider()))


def _contained(function: TokenFunction) -> object:
    """Call a function; convert SystemExit or a cancellation that it raises to a `TokenError`."""
    try:
        return function()
    except Exception:
        raise
    except BaseException as error:
        raise TokenError(f"the token function raised {type(error).__name__}") from error


def _of_object(provider: Any, awaited: Callable[[Any], object]) -> object:
    """Return the token and extensions of a provider object, as in kafka-python and aiokafka."""
    given = awaited(provider.token())
    method = getattr(provider, "extensions", None)
    extensions = awaited(method()) if callable(method) else None
    if extensions and isinstance(given, str):
        return (given, None, "", extensions)
    return given


def _takes_text(provider: Callable[..., Any]) -> bool:
    """Return whether a function has a required positional parameter."""
    try:
        parameters = inspect.signature(provider).parameters.values()
    except (TypeError, ValueError):
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in by_place and p.default is p.empty for p in parameters)


def oidc(config: Config) -> TokenFunction:
    """Return a function that fetches tokens from `sasl.oauthbearer.token.endpoint.url`.

    The URL is that of a server or of a file.
    """
    url = allowed_url(config["sasl.oauthbearer.token.endpoint.url"])
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return lambda: from_file(path)
    if parts.username is not None:
        raise ConfigurationError(
            "sasl.oauthbearer.token.endpoint.url can't contain a user and a password: set "
            "sasl.oauthbearer.client.credentials.client.id and .client.secret"
        )
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        logger.warning(
            "sasl.oauthbearer.token.endpoint.url uses http: an attacker on the network can read "
            "this client's secret and its tokens; use https"
        )
    server = TokenServer(
        url,
        TokenTimeouts(
            config["socket.connection.setup.timeout.ms"] * SHARE_OF_SETUP,
            config["sasl.login.connect.timeout.ms"],
            config["sasl.login.read.timeout.ms"],
        ),
        ExponentialBackoff(
            config["sasl.login.retry.backoff.ms"], config["sasl.login.retry.backoff.max.ms"]
        ),
        random.Random(),
        https_source(config),
    )
    form, authorization = _grant(config)

    def fetch() -> Token:
        # One expression, because tracebacks would show a variable that contains the response.
        return token_of(server.post(form, authorization), server.place, time.time())

    return fetch


def _grant(config: Config) -> tuple[Callable[[], Mapping[str, str]], Secret | None]:
    """Return a function that creates the form data of each attempt, and the auth header."""
    named = {name: config[f"sasl.oauthbearer.{name}"] for name in ("scope", "audience")}
    more = {name: value for name, value in named.items() if value}
    settings = _assertion_settings(config)
    ready = config["sasl.oauthbearer.assertion.file"]
    if ready is not None:
        path = Path(allowed_file("sasl.oauthbearer.assertion.file", ready))
        return lambda: {**more, **_signed(assertion_in(path))}, None
    if settings is not None:
        return lambda: {**more, **_signed(assertion_of(settings, time.time()))}, None
    client_id = config["sasl.oauthbearer.client.credentials.client.id"]
    secret = config["sasl.oauthbearer.client.credentials.client.secret"]
    if client_id is None or secret is None:
        missing = "id" if client_id is None else "secret"
        raise ConfigurationError(
            f"sasl.oauthbearer.client.credentials.client.{missing} is missing: "
            "sasl.oauthbearer.token.endpoint.url needs it"
        )
    header = basic(client_id, secret, url_encode=bool(config["sasl.oauthbearer.header.urlencode"]))
    return lambda: {"grant_type": CLIENT_CREDENTIALS, **more}, header


def _signed(assertion: Secret) -> dict[str, str]:
    return {"grant_type": JWT_BEARER, "assertion": assertion.reveal()}


def _assertion_settings(config: Config) -> AssertionSettings | None:
    key_file = config["sasl.oauthbearer.assertion.private.key.file"]
    key_pem = config["sasl.oauthbearer.assertion.private.key.pem"]
    if key_file is None and key_pem is None:
        return None
    if key_file is not None:
        key_file = allowed_file("sasl.oauthbearer.assertion.private.key.file", key_file)
    claims = {
        name: config[f"sasl.oauthbearer.assertion.claim.{name}"] for name in ("iss", "sub", "aud")
    }
    return AssertionSettings(
        key_file,
        config["sasl.oauthbearer.assertion.private.key.passphrase"],
        key_pem,
        config["sasl.oauthbearer.assertion.algorithm"],
        {name: value for name, value in claims.items() if value is not None},
        config["sasl.oauthbearer.assertion.claim.exp.seconds"],
        config["sasl.oauthbearer.assertion.claim.nbf.seconds"],
        bool(config["sasl.oauthbearer.assertion.claim.jti.include"]),
    )


def unsecured(settings: Mapping[str, str], wall_clock: Callable[[], float]) -> TokenFunction:
    """Return a function for unsigned tokens, for tests of brokers that accept them (KIP-255).

    The settings are Java's unsecuredLogin…: StringClaim_x, NumberClaim_x, ListClaim_x (its first
    character is the separator), LifetimeSeconds.
    """
    claims: dict[str, Any] = {}
    for name, text in settings.items():
        kind, _, claim = name.partition("_")
        if kind == "StringClaim":
            claims[claim] = text
        elif kind == "NumberClaim":
            claims[claim] = _number(name, text)
        elif kind == "ListClaim":
            claims[claim] = text[1:].split(text[:1]) if len(text) > 1 else []
    lifetime = _number("LifetimeSeconds", settings.get("LifetimeSeconds", UNSECURED_LIFETIME))

    def fetch() -> Token:
        # Rounded down to a millisecond, as brokers round, and reject a token from the future.
        now = math.floor(wall_clock() * 1000) / 1000
        body = {**claims, "iat": now, "exp": now + lifetime}
        parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "none"}, body)]
        return Token(Secret(".".join([*parts, ""])), now + lifetime)

    return fetch


def _number(name: str, value: str | float) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(
            f"sasl.oauthbearer.unsecured: {name} must be a number, not {value!r}"
        ) from None
