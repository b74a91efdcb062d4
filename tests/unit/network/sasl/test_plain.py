"""Test SASL PLAIN, which sends a single token."""

from __future__ import annotations

import pytest
from tests.unit.network.sasl.conversations import talk

from odradek.common.errors import CredentialsRefusedError
from odradek.common.secret import Secret
from odradek.network.sasl.mechanism import Credentials
from odradek.network.sasl.plain import Plain


def test_the_token_contains_user_and_password() -> None:
    assert talk(Plain(Credentials("käthe", Secret("pä=ß,"))), [b""]) == ["\0käthe\0pä=ß,".encode()]


def test_a_nul_character_is_rejected_and_not_shown() -> None:
    with pytest.raises(CredentialsRefusedError, match="NUL characters") as caught:
        talk(Plain(Credentials("u", Secret("planted\0secret"))), [b""])
    assert "planted" not in str(caught.value)


def test_additional_bytes_of_the_broker_are_ignored_as_in_other_clients() -> None:
    assert len(talk(Plain(Credentials("u", Secret("p"))), [b"welcome"])) == 1
