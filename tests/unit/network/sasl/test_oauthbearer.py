"""Test OAUTHBEARER: tokens of users' functions, their period of use, and rejected tokens."""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from tests.unit.network.sasl.conversations import BROKER, talk

from odradek.common.errors import CredentialsRefusedError, TokenError, TokenExpiredError
from odradek.common.secret import Secret
from odradek.network.sasl.mechanism import WorkerCall
from odradek.network.sasl.oauthbearer import (
    LONGEST_TOKEN,
    Oauthbearer,
    Refresh,
    Token,
    end_of_jwt,
    read_token,
)


class Issuer:
    """A token server that returns a new token at each call, or raises `error` if it is set."""

    def __init__(self, lifetime: float | None = 3600.0) -> None:
        self.now = 1000.0
        self.lifetime = lifetime
        self.asked = 0
        self.error: Exception | None = None

    def __call__(self) -> object:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return f"token-{self.asked}", None if self.lifetime is None else self.now + self.lifetime

    def mechanism(self, **more: Any) -> Oauthbearer:
        return Oauthbearer(self, lambda: self.now, **more)


def jwt(claims: object) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def test_the_first_message_contains_the_configured_sasl_extensions() -> None:
    mechanism = Issuer().mechanism(extensions={"logicalCluster": "lkc-1", "traceId": "7 x"})
    assert talk(mechanism, [b""]) == [
        b"n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01traceId=7 x\x01\x01"
    ]


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a b": "x"}, {"a": "x\x01y"}, {"a": ""}])
def test_invalid_sasl_extensions_are_rejected(extensions: dict[str, str]) -> None:
    with pytest.raises(TokenError, match="extension"):
        talk(Issuer().mechanism(extensions=extensions), [b""])


def test_a_token_is_reused_until_most_of_its_lifetime_is_over() -> None:
    issuer = Issuer()
    mechanism = issuer.mechanism()
    talk(mechanism, [b""])
    issuer.now += 0.79 * 3600
    talk(mechanism, [b""])
    assert issuer.asked == 1
    issuer.now += 0.07 * 3600
    assert b"token-2" in talk(mechanism, [b""])[0]


def test_concurrent_connections_share_one_token() -> None:
    issuer = Issuer()
    mechanism = issuer.mechanism()

    def start() -> tuple[Any, WorkerCall]:
        conversation = mechanism.conversation(BROKER, random.Random(1))
        wanted = next(conversation)
        assert isinstance(wanted, WorkerCall)
        return conversation, wanted

    (first, early), (second, late) = start(), start()
    given = early.function(*early.arguments)
    # The second call starts when the first has its token, but before the engine gets that token.
    assert late.function(*late.arguments) is given
    for conversation in (first, second):
        assert b"token-1" in conversation.send(given)
    assert issuer.asked == 1
    with pytest.raises(CredentialsRefusedError):
        talk(mechanism, [b'{"status":"invalid_token"}', b""])
    assert b"token-2" in talk(mechanism, [b""])[0]  # the rejected token-1 isn't sent again


def test_a_token_without_lifetime_is_requested_for_each_connection() -> None:
    issuer = Issuer(lifetime=None)
    mechanism = issuer.mechanism()
    for asked in (1, 2):
        talk(mechanism, [b""])
        assert issuer.asked == asked


def test_a_token_is_used_until_it_expires_if_the_token_server_fails() -> None:
    issuer = Issuer()
    mechanism = issuer.mechanism()
    talk(mechanism, [b""])
    issuer.now += 3500
    issuer.error = OSError("down")
    assert b"token-1" in talk(mechanism, [b""])[0]
    issuer.now += 101
    with pytest.raises(TokenError, match="OSError") as caught:
        talk(mechanism, [b""])
    assert isinstance(caught.value.__cause__, OSError)


def test_a_timeout_of_the_token_function_becomes_a_token_error() -> None:
    conversation = Issuer().mechanism().conversation(BROKER, random.Random(1))
    assert isinstance(next(conversation), WorkerCall)
    with pytest.raises(TokenError, match="before the timeout"):
        conversation.throw(TimeoutError("no answer in time"))


def test_an_expired_token_is_not_sent() -> None:
    with pytest.raises(TokenExpiredError, match="5 s ago"):
        talk(Issuer(lifetime=-5.0).mechanism(), [b""])


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b'{"status":"invalid_token"}', CredentialsRefusedError, "invalid_token"),
        (b'{"status":"x","scope":"kafka"}', CredentialsRefusedError, "'kafka' is required"),
        (b'{"status":"token expired"}', TokenExpiredError, "expired"),
        (b"\xff" * 5000, CredentialsRefusedError, "refused"),
        (b"[" * 100_000, CredentialsRefusedError, "refused"),
        (b"." * 297 + b"token-1", CredentialsRefusedError, "refused"),
        (b'{"status":"' + b"." * 297 + b'token-1"}', CredentialsRefusedError, "refused"),
    ],
)
def test_a_rejected_token_is_acknowledged_and_forgotten(
    answer: bytes, kind: type[Exception], says: str
) -> None:
    issuer = Issuer()
    mechanism = issuer.mechanism()
    conversation = mechanism.conversation(BROKER, random.Random(1))
    next(conversation)
    conversation.send(issuer())
    assert conversation.send(answer) == b"\x01"
    with pytest.raises(kind, match=says) as caught:
        conversation.throw(CredentialsRefusedError("the broker says: no"))
    assert len(str(caught.value)) < 1000
    assert "token-1" not in str(caught.value)
    assert ".tok" not in str(caught.value)  # not even the token's beginning is shown
    assert b"token-2" in talk(mechanism, [b""])[0]


class KafkaPythonProvider:
    """A token provider of kafka-python."""

    def token(self) -> str:
        return "abc"


@pytest.mark.parametrize(
    ("given", "end", "extensions"),
    [
        ("abc", None, {}),
        (b"abc", None, {}),
        (KafkaPythonProvider(), None, {}),
        (("abc", 17), 17.0, {}),
        (("abc", 1_900_000_000), 1_900_000_000, {}),
        (("abc", 1_900_000_000_000), 1_900_000_000, {}),  # milliseconds, as in Java
        (("abc", 17.5, "user"), 17.5, {}),
        (("abc", 17, "user", {"k": "v"}), 17.0, {"k": "v"}),
        (Token(Secret("abc"), 3.0), 3.0, {}),
        (Secret("abc"), None, {}),
    ],
)
def test_token_functions_may_return_a_token_in_any_known_form(
    given: object, end: float | None, extensions: object
) -> None:
    token = read_token(given)
    assert (token.value.reveal(), token.expires_at, token.extensions) == ("abc", end, extensions)


@pytest.mark.parametrize(
    "given",
    [None, "", 17, (), ("a",) * 5, "planted\x01", "planted secret", ("planted", "soon"),
     ("planted", float("nan")), ("planted", True), "x" * (LONGEST_TOKEN + 1), ("",)],
)  # fmt: skip
def test_an_invalid_token_is_not_shown_in_the_error(given: object) -> None:
    with pytest.raises(TokenError) as caught:
        read_token(given)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "token",
    [jwt({"exp": True}), jwt({"exp": "12345"}), jwt([1]), jwt({}), "a.b.c", "opaque",
     "e30." + "W1" * 100_000 + ".x"],
)  # fmt: skip
def test_the_expiry_time_of_a_token_is_only_read_from_a_valid_jwt(token: str) -> None:
    assert end_of_jwt(jwt({"exp": 12345})) == 12345.0
    assert end_of_jwt(token) is None


def test_a_token_is_refreshed_before_it_expires_but_not_before_the_minimum_period() -> None:
    rng = random.Random(1)
    for _ in range(100):
        assert Refresh().due(0.0, 1000.0, rng) <= 700, "at least 300 s before it expires"
        assert 8.0 <= Refresh().due(0.0, 10.0, rng) <= 8.5, "a short lifetime: by the share only"
        assert Refresh(min_period=900, buffer=10).due(0.0, 1000.0, rng) >= 900
