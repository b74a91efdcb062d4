"""PLAIN: one token."""

from __future__ import annotations

import pytest
from tests.unit.network.sasl.conversations import talk

from odradek.common.errors import CredentialsRefusedError, ServerNotTrustedError
from odradek.common.secret import Secret
from odradek.network.sasl.mechanism import Credentials
from odradek.network.sasl.plain import Plain


def test_the_token() -> None:
    assert talk(Plain(Credentials("käthe", Secret("pä=ß,"))), [b""]) == ["\0käthe\0pä=ß,".encode()]


def test_a_zero_character_can_not_be_sent() -> None:
    with pytest.raises(CredentialsRefusedError, match="zero") as caught:
        talk(Plain(Credentials("u", Secret("planted\0secret"))), [b""])
    assert "planted" not in str(caught.value)


def test_a_broker_has_nothing_to_add() -> None:
    with pytest.raises(ServerNotTrustedError, match="5 bytes"):
        talk(Plain(Credentials("u", Secret("p"))), [b"hello"])
