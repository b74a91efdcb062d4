"""Test which token function the options select, and token functions of users."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
import warnings
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256
from tests.token_server import CLIENT_ID, CLIENT_SECRET, TokenServer, decoded

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, TokenError
from odradek.common.secret import Secret
from odradek.network.sasl.oauthbearer import Token, read_token
from odradek.runtime.credentials import provider_loop
from odradek.runtime.credentials.allowed_sources import ALLOWED_FILES, ALLOWED_URLS
from odradek.runtime.credentials.jwt_assertion import AssertionSettings, assertion_of
from odradek.runtime.credentials.token_functions import token_function, unsecured

BASE = {
    "bootstrap.servers": "localhost:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
}
ASKING = {
    "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
    "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
}


def function(**options: Any) -> Callable[[], object]:
    return token_function(Config("consumer", {**BASE, **options}))


def given(provider: object) -> Token:
    return read_token(function(**{"sasl.oauthbearer.token.provider": provider})())


def own(**options: Any) -> Callable[[], object]:
    """Return odradek's token function for these `sasl.oauthbearer` options."""
    return function(**{f"sasl.oauthbearer.{n.replace('__', '.')}": v for n, v in options.items()})


def fetched(fetch: Callable[[], object]) -> tuple[Token, Any]:
    """Call a token function; return the token and its claims."""
    token = fetch()
    assert isinstance(token, Token)
    return token, decoded(token.value.reveal().split(".")[1])


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with TokenServer() as running:
        yield running


class KafkaPythonProvider:
    def token(self) -> str:
        return "theirs"

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "one"}


class AiokafkaProvider:
    async def token(self) -> str:
        return "theirs"


def test_token_functions_of_all_supported_forms_are_accepted() -> None:
    assert given(lambda: ("mine", 99.0)) == Token(Secret("mine"), 99.0)
    assert given(lambda: "mine") == Token(Secret("mine"))
    # confluent-kafka passes a text and expects token, expiry time, principal and extensions.
    answer = ("theirs", 99.0, "me", {"traceId": "7"})
    asked: list[str | None] = []

    def oauth_cb(config: str | None) -> tuple[Any, ...]:
        asked.append(config)
        return answer

    options = {"oauth_cb": oauth_cb, "sasl.oauthbearer.config": "scope=a"}
    assert read_token(function(**options)()) == Token(Secret("theirs"), 99.0, {"traceId": "7"})
    assert asked == ["scope=a"]
    assert given(KafkaPythonProvider()) == Token(Secret("theirs"), None, {"logicalCluster": "one"})
    assert given(AiokafkaProvider()) == Token(Secret("theirs"))
    assert given(lambda config=None: ("mine", 1.0 if config is None else 2.0)).expires_at == 1.0


class KeptSession:
    """A provider whose HTTP session can be used only in one event loop, as with aiohttp."""

    def __init__(self) -> None:
        self.opened: asyncio.AbstractEventLoop | None = None

    async def token(self) -> str:
        loop = asyncio.get_running_loop()
        self.opened = self.opened or loop
        if self.opened is not loop or self.opened.is_closed():
            raise RuntimeError("the session belongs to another event loop")
        await asyncio.sleep(0)
        return "kept"


def test_a_token_coroutine_runs_in_the_event_loop_of_an_asyncio_client() -> None:
    async def program() -> asyncio.AbstractEventLoop:
        loop, provider = asyncio.get_running_loop(), KeptSession()
        provider.opened = loop
        config = Config("producer", {**BASE, "sasl.oauthbearer.token.provider": provider})
        fetch = token_function(config, lambda: loop)
        for _ in range(2):
            assert read_token(await asyncio.to_thread(fetch)) == Token(Secret("kept"))
        return loop

    assert asyncio.run(program()).is_closed()


def test_token_coroutines_of_blocking_clients_share_one_event_loop_that_stays_open() -> None:
    provider = KeptSession()
    fetch = function(**{"sasl.oauthbearer.token.provider": provider.token})
    for _ in range(3):
        assert read_token(fetch()) == Token(Secret("kept"))
    first = provider.opened

    async def simulated() -> None:  # called in the loop's own thread, as in simulations
        loop = asyncio.get_running_loop()
        config = Config("producer", {**BASE, "sasl.oauthbearer.token.provider": provider})
        assert read_token(token_function(config, lambda: loop)()) == Token(Secret("kept"))

    asyncio.run(simulated())
    assert provider.opened is first
    assert first is not None
    assert not first.is_closed()


def test_a_token_coroutine_for_a_closed_event_loop_is_closed() -> None:
    """The program's event loop may be closed between two connection attempts."""
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"), warnings.catch_warnings():
        warnings.simplefilter("error")
        coroutine = KeptSession().token()
        provider_loop.result_in(loop, coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_a_token_coroutine_that_hangs_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_loop, "LONGEST_CALL", 0.01)
    cancelled = threading.Event()

    async def hanging() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "late"

    with pytest.raises(TimeoutError):
        given(hanging)
    assert cancelled.wait(10)


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (LookupError("vault is sealed"), LookupError, "vault is sealed"),
        (SystemExit(), TokenError, "the token function raised SystemExit"),
        (asyncio.CancelledError(), TokenError, "the token function raised CancelledError"),
    ],
)
def test_exceptions_of_a_token_function_are_raised(
    raised: BaseException, kind: type[Exception], said: str
) -> None:
    """`SystemExit` and `CancelledError` become a `TokenError`; others are raised unchanged."""

    def broken() -> str:
        raise raised

    with pytest.raises(kind, match=said):
        given(broken)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_coroutine_that_raises_system_exit_does_not_end_the_shared_loop(
    raised: BaseException,
) -> None:
    """The shared event loop also runs the coroutines of other clients."""

    async def exits() -> str:
        raise raised

    async def tasks_exit() -> str:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0)
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "still-here"

    with pytest.raises(TokenError, match=f"the token function raised {type(raised).__name__}"):
        given(exits)
    assert given(tasks_exit) == Token(Secret("still-here"))


OIDC = {"scope": "kafka", "client.id": CLIENT_ID, "client.secret": CLIENT_SECRET}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.oauthbearer.scope": "kafka", **ASKING},
        {"sasl.oauthbearer.method": "oidc"}
        | {f"sasl.oauthbearer.{name}": value for name, value in OIDC.items()},
        {
            "sasl.jaas.config": f'{MODULE} clientId="{CLIENT_ID}" '
            f'clientSecret="{CLIENT_SECRET}" scope="kafka";'
        },
    ],
    ids=["Kafka", "librdkafka", "JAAS"],
)
def test_oidc_options_are_accepted_by_the_names_of_kafka_librdkafka_and_jaas(
    server: TokenServer, options: dict[str, Any]
) -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": server.url()}
    token, claims = fetched(function(**url, **options))
    assert token.expires_at is not None
    assert claims["sub"] == CLIENT_ID
    assert server.forms[-1] == {"grant_type": "client_credentials", "scope": "kafka"}


@pytest.mark.parametrize("named", [True, False], ids=["option", "JAAS"])
def test_the_audience_is_sent_to_the_token_server(server: TokenServer, named: bool) -> None:
    """Auth0 rejects token requests without an audience."""
    given = {"sasl.oauthbearer.token.endpoint.url": server.url()}
    if named:
        given |= {"sasl.oauthbearer.audience": "kafka://orders", **ASKING}
    else:
        given["sasl.jaas.config"] = (
            f'{MODULE} clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" '
            'oauth.audience="kafka://orders";'
        )
    fetched(function(**given))
    form = {"grant_type": "client_credentials", "audience": "kafka://orders"}
    assert server.forms[-1] == form


def test_oidc_without_a_secret_is_rejected_at_once() -> None:
    url = "https://127.0.0.1/token"
    with pytest.raises(ConfigurationError, match=r"client\.id"):
        own(token__endpoint__url=url)
    with pytest.raises(ConfigurationError, match=r"client\.secret"):
        own(token__endpoint__url=url, client__credentials__client__id="me")


def test_a_client_secret_sent_without_tls_causes_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for url in ("http://localhost/token", "https://far.test/token", "http://far.test/token"):
        assert caplog.records == []
        function(**ASKING, **{"sasl.oauthbearer.token.endpoint.url": url})
    assert "use https" in caplog.text


def test_a_token_may_be_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a token"
    monkeypatch.setenv(ALLOWED_FILES, str(path))
    path.write_text("opaque")
    assert own(token__endpoint__url=path.as_uri())() == Token(Secret("opaque"))


def test_tokens_of_aws_msk_iam_can_be_used_with_oauthbearer() -> None:
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    aws = {"region": "eu-west-1", "access.key.id": "AKID", "secret.access.key": "s"}
    options = {f"sasl.aws.msk.iam.{name}": value for name, value in aws.items()}
    token = function(**{"sasl.login.callback.handler.class": handler, **options})()
    assert isinstance(token, Token)
    text = token.value.reveal()
    url = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert url.startswith(b"https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")


def test_unsecured_tokens_contain_the_configured_claims() -> None:
    jaas = (
        f'{MODULE} unsecuredLoginStringClaim_sub="alice" '
        'unsecuredLoginNumberClaim_n="7" unsecuredLoginListClaim_scope=",a,b";'
    )
    token, claims = fetched(function(**{"sasl.jaas.config": jaas}))
    header, _, signature = token.value.reveal().split(".")
    assert decoded(header) == {"alg": "none"}
    assert signature == ""
    assert claims["exp"] == token.expires_at == claims["iat"] + 3600
    assert (claims["sub"], claims["n"], claims["scope"]) == ("alice", 7, ["a", "b"])


@pytest.mark.parametrize("now", [1_700_000_000.9996, 1_700_000_000.123, 1_700_000_001.0])
def test_the_issue_time_of_an_unsecured_token_is_never_in_the_future(now: float) -> None:
    """A broker compares `Math.round(1000 * iat)` with its clock in whole milliseconds."""
    _, claims = fetched(unsecured({"StringClaim_sub": "alice"}, lambda: now))
    assert int(now * 1000) - 1 <= round(claims["iat"] * 1000) <= int(now * 1000)


def pem(key: Any, hidden: Any = serialization.NoEncryption()) -> bytes:  # noqa: B008  no state
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    made: bytes = key.private_bytes(*forms, hidden)
    return made


def test_a_token_is_requested_with_a_signed_assertion(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = tmp_path / "key.pem"
    monkeypatch.setenv(ALLOWED_FILES, str(path))
    path.write_bytes(pem(key, serialization.BestAvailableEncryption(b"phrase")))
    given = {"iss": "us", "sub": "alice", "aud": "them", "jti__include": "true"}
    _, claims = fetched(
        own(
            token__endpoint__url=server.url(),
            assertion__private__key__file=str(path),
            assertion__private__key__passphrase="phrase",  # noqa: S106  of a test key
            **{f"assertion__claim__{name}": value for name, value in given.items()},
        )
    )
    assert claims["sub"] == "alice"
    form = server.forms[-1]
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    message, _, signature = form["assertion"].rpartition(".")
    key.public_key().verify(
        urlsafe_b64decode(signature + "=="), message.encode(), padding.PKCS1v15(), SHA256()
    )
    header, body = map(decoded, message.split("."))
    assert header == {"alg": "RS256", "typ": "JWT"}
    assert (body["iss"], body["sub"], body["aud"]) == ("us", "alice", "them")
    assert body["exp"] - body["iat"] == 300
    assert body["iat"] - body["nbf"] == 60
    assert len(body["jti"]) == 36
    assert "authorization" not in server.headers[-1]


def test_an_assertion_can_be_signed_with_an_elliptic_curve_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    settings = AssertionSettings(None, None, Secret(pem(key).decode()), "ES256", {"sub": "a"})
    message, _, signature = assertion_of(settings, 1000.0).reveal().rpartition(".")
    raw = urlsafe_b64decode(signature + "==")
    assert len(raw) == 64
    r, s = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    key.public_key().verify(utils.encode_dss_signature(r, s), message.encode(), ec.ECDSA(SHA256()))
    assert json.dumps(decoded(message.split(".")[1])) == (
        '{"sub": "a", "iat": 1000, "exp": 1300, "nbf": 940}'
    )
    wrong = AssertionSettings(None, None, Secret(pem(key).decode()), "RS256")
    with pytest.raises(TokenError, match="doesn't fit the algorithm RS256"):
        assertion_of(wrong, 1000.0)


def test_an_unreadable_assertion_or_key_raises_a_token_error(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv(ALLOWED_FILES, str(ready))
    fetch = own(token__endpoint__url=server.url(), assertion__file=str(ready))
    with pytest.raises(TokenError, match=r"ready can't be read"):
        fetch()
    ready.write_text("")
    with pytest.raises(TokenError, match=r"ready is empty"):
        fetch()
    ready.write_text(server.token("bob"))
    assert fetched(fetch)[1]["sub"] == "bob"
    ready.write_text("no key")
    broken = own(token__endpoint__url=server.url(), assertion__private__key__file=str(ready))
    with pytest.raises(TokenError, match=r"private key can't be read"):
        broken()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("token.endpoint.url", "file://{}"),
        ("assertion.file", "{}"),
        ("assertion.private.key.file", "{}"),
    ],
)
def test_files_named_by_settings_must_be_allowed_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    path = tmp_path / "shadow"
    path.write_text("root:hash")
    name = f"sasl.oauthbearer.{option}"
    options = {"sasl.oauthbearer.token.endpoint.url": "https://evil.example/token"}
    options[name] = value.format(path)
    monkeypatch.delenv(ALLOWED_FILES, raising=False)
    with pytest.raises(ConfigurationError, match=f"{name}: reading .*{ALLOWED_FILES}="):
        function(**options)
    monkeypatch.setenv(ALLOWED_FILES, f"{tmp_path}/other, {tmp_path}")
    with pytest.raises(ConfigurationError, match="reading .* isn't allowed"):
        function(**options)
    monkeypatch.setenv(ALLOWED_FILES, f"/nothing, {tmp_path}//shadow")
    function(**options)


def test_a_token_server_that_is_not_allowed_is_not_called(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"sasl.oauthbearer.token.endpoint.url": server.url("/t?key=hush"), **ASKING}
    monkeypatch.setenv(ALLOWED_URLS, "")
    with pytest.raises(ConfigurationError, match=ALLOWED_URLS) as caught:
        function(**options)
    assert "hush" not in str(caught.value)
    monkeypatch.setenv(ALLOWED_URLS, f"https://login.example.com/token,{server.url('/t?key=hush')}")
    assert isinstance(function(**options)(), Token)
