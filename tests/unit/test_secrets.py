"""No secret is shown in an error, nor by a traceback with the local variables of our frames.

The search for planted secrets (`tests/planted_secrets.py`) also checks these tests.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import logging
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.planted_secrets import watch, with_locals

import odradek
from odradek.common.config import Config
from odradek.common.errors import AuthenticationError, ConfigurationError, CredentialsRefusedError
from odradek.common.secret import Secret
from odradek.common.types import Address
from odradek.network.effects import OutgoingRequest
from odradek.network.sasl.mechanism import (
    Conversation,
    Credentials,
    HiddenBytes,
    Mechanism,
    WorkerCall,
)
from odradek.network.sasl.oauthbearer import Oauthbearer
from odradek.network.sasl.plain import Plain
from odradek.network.sasl.scram import Scram
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

PASSWORD = "xyzzy-plugh-17"  # noqa: S105 - the secret that mustn't be seen
TOKEN = "eyJhbGciOi.xyzzyplugh17.c2lnbmF0dXJl"  # noqa: S105
WHERE = Address("broker", 9093)
SALT, ITERATIONS = b"salt of a user", 4096
SALTED = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
SHOWN = (
    PASSWORD,
    TOKEN,
    "xyzzy",
    base64.b64encode(PASSWORD.encode()).decode(),
    base64.b64encode(SALTED).decode(),
    repr(SALTED)[2:20],
    repr(hmac.digest(SALTED, b"Client Key", "sha256"))[2:20],
)
Answer = Callable[[bytes], bytes | Exception]


def nothing_shown(text: str) -> None:
    assert [s for s in SHOWN if s in text] == []


def refused_by(conversation: Conversation, *answers: Answer) -> Exception:
    """Authenticate with a broker that sends these responses; return the resulting error."""
    with pytest.raises(AuthenticationError) as caught:
        _talk(conversation, list(answers))
    return caught.value


def _talk(conversation: Conversation, answers: list[Answer]) -> None:
    sent: Any = next(conversation)
    while True:
        try:
            heard: Any = answers.pop(0)(sent) if not isinstance(sent, WorkerCall) else _run(sent)
        except IndexError:
            pytest.fail("the mechanism continues")
        try:
            if isinstance(heard, Exception):
                sent = conversation.throw(heard)
            else:
                sent = conversation.send(heard)
        except StopIteration:
            return


def _run(outside: WorkerCall) -> Any:
    try:
        return outside.function(*outside.arguments)
    except Exception as error:
        return error


def scram() -> Scram:
    return Scram("SCRAM-SHA-256", Credentials("alice", Secret(PASSWORD)))


def challenge(nonce: str = "", iterations: int = ITERATIONS) -> Answer:
    def answer(first: bytes) -> bytes:
        ours = first.decode().partition("r=")[2]
        salt = base64.b64encode(SALT).decode()
        return f"r={nonce or ours + 'more'},s={salt},i={iterations}".encode()

    return answer


def say(answer: bytes) -> Answer:
    return lambda _: answer


def refuse(_: bytes) -> Exception:
    return CredentialsRefusedError("the broker says no")


def repeat(sent: bytes) -> bytes:
    return sent


def refuse_loudly(sent: bytes) -> Exception:
    error = CredentialsRefusedError(f"the broker says no to {bytes(sent).decode()}")
    watch.found.clear()  # ignore the broker's text; check the client's errors
    return error


def token_of(given: object) -> Oauthbearer:
    return Oauthbearer(lambda: given, lambda: 1e9)


@pytest.mark.parametrize(
    ("mechanism", "answers"),
    [
        (lambda: Plain(Credentials("alice", Secret(PASSWORD))), [refuse]),
        (lambda: Plain(Credentials("alice", Secret(PASSWORD + "\0"))), []),
        (scram, [refuse]),
        (scram, [say(b"nonsense")]),
        (scram, [challenge("another nonce")]),
        (scram, [challenge(iterations=1)]),
        (scram, [challenge(), refuse]),
        (scram, [challenge(), say(b"e=invalid-proof")]),
        (scram, [challenge(), say(b"v=" + base64.b64encode(b"wrong"))]),
        (lambda: token_of(TOKEN), [say(b'{"status":"invalid_token"}'), refuse]),
        (lambda: token_of(TOKEN), [say(b'{"status":"invalid_token"}'), say(b"")]),
        (lambda: token_of(TOKEN), [refuse]),
        (lambda: Plain(Credentials("alice", Secret(PASSWORD))), [refuse_loudly]),
        (lambda: token_of(TOKEN), [refuse_loudly]),
        (lambda: token_of(TOKEN), [repeat, refuse]),
        (lambda: token_of((TOKEN, 5.0)), []),
        (lambda: token_of((TOKEN, TOKEN)), []),
        (lambda: token_of(f"{TOKEN} with spaces"), []),
        (lambda: token_of(TOKEN.encode() + b"\n"), []),
        (lambda: token_of({"token": TOKEN}), []),
        (lambda: token_of((TOKEN, 2e9, "alice", {"auth": "no"})), []),
    ],
)
def test_errors_of_rejected_logins_hide_secrets(
    mechanism: Callable[[], Mechanism], answers: list[Answer]
) -> None:
    error = refused_by(mechanism().conversation(WHERE, random.Random(1)), *answers)
    nothing_shown(str(error))
    nothing_shown(repr(error))
    nothing_shown(with_locals(error))


def test_authentication_messages_hide_secrets() -> None:
    request = SaslAuthenticateRequest(HiddenBytes(f"\0alice\0{PASSWORD}".encode()))
    nothing_shown(repr(request))
    nothing_shown(repr(OutgoingRequest(request, 2, 7, "client")))


GOOD = {
    "bootstrap.servers": "localhost:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": PASSWORD,
}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.parametrize(
    "changes",
    [
        {"sasl.mechanism": "SCRAM-MD5"},
        {"security.protocol": "SASL"},
        {"sasl.username": None},
        {"sasl.pasword": PASSWORD},
        {"sasl_password": PASSWORD, "linger.ms": "soon"},
        {"sasl.password": PASSWORD.encode() + b"\xff"},
        {"sasl.password": [PASSWORD]},
        {"sasl.jaas.config": f'{JAAS} username="alice" password="{PASSWORD}'},
        {"sasl.jaas.config": f'{JAAS} username="alice" password="{PASSWORD}"'},
        {"sasl.jaas.config": f'com.example.MyModule required password="{PASSWORD}";'},
        {"sasl.jaas.config": f'{JAAS} sometimes password="{PASSWORD}";'},
        {"sasl.jaas.config": f'{JAAS} pasword="{PASSWORD}";', "sasl.password": None},
        {"security.protocol": "SASL_SSL", "ssl.keystore.key": PASSWORD},
        {"security.protocol": "SASL_SSL", "ssl.truststore.certificates": "nonsense"},
        {"security.protocol": "SASL_SSL", "ssl.key.password": PASSWORD, "ssl.keystore.type": "X"},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_errors_of_wrong_configurations_hide_secrets(changes: dict[str, Any]) -> None:
    given = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(ConfigurationError) as caught:
        odradek.Admin(given).close()
    nothing_shown(str(caught.value))
    nothing_shown(with_locals(caught.value))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "sasl.username": None,
            "sasl.password": None,
            "sasl.jaas.config": f'{JAAS} username="alice" password="{PASSWORD}";',
        },
        {
            "security.protocol": "PLAINTEXT"
        },  # a warning says that the SASL and TLS settings have no effect
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://localhost:1/token",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
        },
    ],
    ids=["password", "jaas", "plaintext", "oidc"],
)
def test_valid_configurations_hide_secrets(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    given = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with caplog.at_level(logging.DEBUG):
        with odradek.Producer(given) as producer:
            shown = [repr(producer), str(producer.explain()), repr(producer.explain().to_dict())]
        config = Config("admin", given)
    for text in (*shown, repr(config), str(config), caplog.text):
        nothing_shown(text)
    for other in (pickle.loads(pickle.dumps(Secret(PASSWORD))), copy.deepcopy(Secret(PASSWORD))):  # noqa: S301
        nothing_shown(f"{other} {other!r}")
        assert other.reveal() == PASSWORD
