"""Test GSSAPI authentication (RFC 4752) with a fake context; interop tests use a real KDC."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.unit.network.sasl.conversations import BROKER, talk

from odradek.common.errors import ServerNotTrustedError, TokenError
from odradek.network.sasl.gssapi import MOST_STEPS, Gssapi


class FakeContext:
    """A security context with prepared tokens, complete after the last; wraps with a prefix."""

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self.left = list(tokens)
        self.heard: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        return not self.left

    def step(self, token: bytes | None) -> bytes | None:
        self.heard.append(token)
        return self.left.pop(0)

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"sealed:"):
            raise ServerNotTrustedError("not sealed")
        return message.removeprefix(b"sealed:")

    def wrap(self, message: bytes) -> bytes:
        return b"sealed:" + message


def test_client_and_broker_authenticate_and_the_client_chooses_no_security_layer() -> None:
    context = FakeContext([b"ticket", None])
    sent = talk(Gssapi({BROKER: context}.__getitem__), [b"proof", b"sealed:\x07\x00\xff\xff", b""])
    assert sent == [b"ticket", b"", b"sealed:\x01\x00\x00\x00"]
    assert context.heard == [None, b"proof"]


def test_a_context_that_is_complete_after_one_step_authenticates() -> None:
    sent = talk(Gssapi(lambda _: FakeContext([b"ticket"])), [b"sealed:\x01\x00\x00\x00", b""])
    assert sent == [b"ticket", b"sealed:\x01\x00\x00\x00"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([b"plain"], "not sealed"),
        ([b"sealed:\x06\x00\xff\xff"], "requires a SASL security layer"),
        ([b"sealed:\x01"], "security layers has 1 bytes"),
        ([b"sealed:\x01\x00\x00\x00", b"more"], "sent 4 bytes"),
    ],
)
def test_a_broker_that_violates_the_protocol_is_rejected(answers: list[bytes], said: str) -> None:
    with pytest.raises(ServerNotTrustedError, match=said):
        talk(Gssapi(lambda _: FakeContext([b"ticket"])), answers)


def test_a_broker_that_requests_too_many_steps_is_rejected() -> None:
    context = FakeContext([b"x"] * (MOST_STEPS + 1))
    with pytest.raises(ServerNotTrustedError, match="didn't finish"):
        talk(Gssapi(lambda _: context), [b"y"] * MOST_STEPS)


def test_a_timeout_names_the_key_distribution_centre() -> None:
    conversation = Gssapi(lambda _: FakeContext([])).conversation(BROKER, random.Random(1))
    next(conversation)
    with pytest.raises(
        TokenError, match="the Kerberos key distribution centre .KDC. didn't answer"
    ):
        conversation.throw(TimeoutError())
