"""Test that a secret in the text of a server's error is hidden in any encoding."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

from odradek.common.secret import HIDDEN, Secret
from odradek.common.secret_redaction import redact_secret

TEXT = "s3cret/with:signs+and ü~"
WAYS = {
    "plain": TEXT,
    "percent": quote(TEXT, safe=""),
    "percent in small letters": quote(TEXT, safe="").lower(),
    "form": quote_plus(TEXT),
    "json": json.dumps(TEXT)[1:-1],
    "hex": TEXT.encode().hex().upper(),
    "base64": b64encode(TEXT.encode()).decode(),
    "base64 for URLs": urlsafe_b64encode(TEXT.encode()).decode().rstrip("="),
    "PLAIN": b64encode(f"\0alice\0{TEXT}".encode()).decode(),
    "basic": b64encode(f"id:{TEXT}".encode()).decode(),
    "in the middle": b64encode(f"n,,\x01auth=Bearer {TEXT}\x01x=y\x01".encode()).decode(),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_encoded_secret_is_hidden(way: str) -> None:
    said = redact_secret(f"no: '{WAYS[way]}' is wrong", Secret(TEXT))
    assert said == f"no: '{HIDDEN}' is wrong"


def test_words_that_are_not_secrets_remain() -> None:
    words = "Authentication failed: Invalid username or password, dGVzdA== %20 61"
    assert redact_secret(words, Secret(TEXT)) == words
    assert redact_secret(words, Secret("")) == words
    assert redact_secret("a b", Secret("xy")) == "a b"
