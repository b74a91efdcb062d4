"""Brokers that send arbitrary SASL challenges: the authentication ends, with a typed error."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.volume import examples

from odradek.common.errors import AuthenticationError, ServerNotTrustedError
from odradek.common.secret import Secret
from odradek.common.types import Address
from odradek.network.sasl.mechanism import Credentials, Mechanism, WorkerCall
from odradek.network.sasl.oauthbearer import Oauthbearer
from odradek.network.sasl.plain import Plain
from odradek.network.sasl.scram import MOST_ITERATIONS, Scram

WHERE = Address("broker", 9093)
ALICE = Credentials("alice", Secret("xyzzy-plugh-17"))
MOST = 4
"""The number of tokens in the longest exchange."""
MECHANISMS: tuple[Callable[[], Mechanism], ...] = (
    lambda: Plain(ALICE),
    lambda: Scram("SCRAM-SHA-256", ALICE),
    lambda: Scram("SCRAM-SHA-512", ALICE),
    lambda: Oauthbearer(lambda: "some.token.", lambda: 0.0),
)

salts = st.one_of(
    st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode()),
    st.text("AB=+/ \n\0", max_size=12),
)
counts = st.one_of(
    st.sampled_from(("4096", "4095", "0", "-1", "1e9", "٤٠٩٦", "", str(MOST_ITERATIONS + 1))),
    st.integers().map(str),
)


@st.composite
def challenges(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Return challenges for SCRAM's first message that are nearly valid, or not at all."""
    salt, count = draw(salts), draw(counts)
    ours, more = draw(st.booleans()), draw(st.text("abc,=", max_size=8))
    order = draw(st.permutations(("r", "s", "i")))
    end = draw(st.sampled_from(("", ",e=x", ",", "\0")))

    def answer(sent: bytes) -> bytes:
        nonce = sent.decode("utf-8", "replace").rpartition("r=")[2] if ours else ""
        values = {"r": nonce + more, "s": salt, "i": count}
        return (",".join(f"{name}={values[name]}" for name in order) + end).encode()

    return answer


def say(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _: data


finals = st.binary(max_size=64).map(lambda b: b"v=" + base64.b64encode(b))
refusals = st.sampled_from((b"e=other-error", b'{"status":"x"}', b"{", b"[" * 9000, b"\xff\xfe"))
answers = st.one_of(
    st.binary(max_size=64).map(say), finals.map(say), refusals.map(say), challenges()
)


@pytest.mark.parametrize("make", MECHANISMS, ids=["PLAIN", "SHA-256", "SHA-512", "OAUTHBEARER"])
def test_authentication_ends_with_a_typed_error_for_any_challenges_of_a_broker(
    make: Callable[[], Mechanism],
) -> None:
    @given(script=st.lists(answers, min_size=MOST, max_size=MOST), seed=st.integers(0, 99))
    @settings(max_examples=examples(60))
    def check(script: list[Callable[[bytes], bytes]], seed: int) -> None:
        talk = make().conversation(WHERE, random.Random(seed))
        heard: Any = None
        turns = iter(script)
        try:
            while True:
                wanted = talk.send(heard)
                if isinstance(wanted, WorkerCall):
                    heard = wanted.function(*wanted.arguments)
                else:
                    # raises StopIteration if the client outlasts the script of challenges
                    heard = next(turns)(wanted)
        except AuthenticationError:
            pass
        except StopIteration:
            assert make().name in ("PLAIN", "OAUTHBEARER"), "a broker proved what it can't know"

    check()


@given(signature=st.binary(max_size=70))
@settings(max_examples=examples(40))
def test_no_invented_signature_is_accepted(signature: bytes) -> None:
    talk = Scram("SCRAM-SHA-256", ALICE).conversation(WHERE, random.Random(1))
    first: Any = next(talk)
    nonce = first.decode().rpartition("r=")[2]
    talk.send(f"r={nonce}more,s=c2FsdA==,i=4096".encode())
    with pytest.raises(ServerNotTrustedError):
        talk.send(b"v=" + base64.b64encode(signature))
