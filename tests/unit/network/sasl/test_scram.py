"""Test SCRAM: the RFCs' examples, and messages of brokers that must be rejected."""

from __future__ import annotations

import random
from base64 import b64decode

import pytest
from tests.unit.network.sasl.conversations import BROKER, talk

from odradek.common.errors import CredentialsRefusedError, ServerNotTrustedError
from odradek.common.secret import Secret
from odradek.network.sasl.mechanism import Credentials, WorkerCall
from odradek.network.sasl.scram import KEPT, MOST_ITERATIONS, Scram, read_challenge

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_7677() -> Scram:
    credentials = Credentials("user", Secret("pencil"))
    return Scram("SCRAM-SHA-256", credentials, random_bytes=lambda _: b64decode(NONCE))


def test_the_messages_equal_those_of_the_example_in_rfc_7677() -> None:
    sent = talk(rfc_7677(), [FIRST, FINAL])
    assert sent == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        (
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ),
    ]


def test_a_salted_password_is_cached_until_the_credentials_change() -> None:
    scram = rfc_7677()
    assert talk(scram, [FIRST, FINAL]) == talk(scram, [FIRST, FINAL])
    assert len(scram._salted) == 1
    scram.use(Credentials("user", Secret("another")))
    assert scram.credentials.password == Secret("another")
    with pytest.raises(ServerNotTrustedError, match="signature"):
        talk(scram, [FIRST, FINAL])
    assert len(scram._salted) == 0, "a failed password isn't cached"
    scram.use(Credentials("user", Secret("pencil")))
    for n in range(KEPT + 3):
        scram._salted[b"%d" % n, 4096] = b""
    talk(scram, [FIRST, FINAL])
    assert len(scram._salted) == KEPT


@pytest.mark.parametrize(
    ("name", "token", "sent"),
    [
        ("a,b=c", False, b"n,,n=a=2Cb=3Dc,r="),
        ("Käthe", False, "n,,n=Käthe,r=".encode()),
        ("id", True, b"n,,n=id,r="),
    ],
)
def test_the_first_message_contains_the_escaped_name_and_a_new_nonce(
    name: str, token: bool, sent: bytes
) -> None:
    """A user name is escaped, nonces differ, and a delegation token is marked as a token."""
    scram = Scram("SCRAM-SHA-512", Credentials(name, Secret("x")), delegation_token=token)
    rng = random.Random(1)
    first, other = (next(scram.conversation(BROKER, rng)) for _ in range(2))
    assert first != other
    assert isinstance(first, bytes)
    assert first.startswith(sent)
    assert len(first) > len(sent) + 20
    assert first.endswith(b",tokenauth=true") == token


def test_a_password_hash_of_many_iterations_is_computed_in_another_thread() -> None:
    conversation = rfc_7677().conversation(BROKER, random.Random(1))
    next(conversation)
    wanted = conversation.send(FIRST.replace(b"i=4096", b"i=65536"))
    assert isinstance(wanted, WorkerCall)
    assert "pencil" not in repr(wanted)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=ours,s=AAAA,i=4096", "nonce"),
        (b"r=ours1,s=,i=4096", "salt"),
        (b"r=ours1,s=!!!!,i=4096", "salt"),
        (b"r=ours1,s=" + b"A" * 4000 + b",i=4096", "salt"),
        (b"r=ours1,s=AAAA,i=4095", "4095"),
        (b"r=ours1,s=AAAA,i=1", "iterations"),
        (b"r=ours1,s=AAAA,i=-5", "iterations"),
        (b"r=ours1,s=AAAA,i=%d" % (MOST_ITERATIONS + 1), "iterations"),
        (b"r=ours1,s=AAAA,i=" + b"9" * 5000, "iterations"),
        ("r=ours1,s=AAAA,i=٤٠٩٦".encode(), "iterations"),
        (b"m=ext,r=ours1,s=AAAA,i=4096", "malformed"),
        (b"r=ours1,s=AAAA", "malformed"),
        (b"", "malformed"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_a_malformed_or_insecure_challenge_is_rejected(message: bytes, says: str) -> None:
    with pytest.raises(ServerNotTrustedError, match=says) as caught:
        read_challenge(message, "ours")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"v=AAAA", b"v=!", b"x=1", FINAL[:-2] + b"A=", b"\xff"]
)
def test_a_broker_without_a_valid_server_signature_is_rejected(final: bytes) -> None:
    with pytest.raises(ServerNotTrustedError):
        talk(rfc_7677(), [FIRST, final])


def test_a_rejection_in_the_final_message_raises_credentials_refused() -> None:
    with pytest.raises(CredentialsRefusedError, match="invalid-proof"):
        talk(rfc_7677(), [FIRST, b"e=invalid-proof"])
