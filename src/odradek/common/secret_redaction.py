"""Remove a secret from a text of a server that repeats the secret, plain or encoded.

In: the text of a broker or a token server, and a secret that was sent to it. Out: the text, with
`[hidden]` for the secret in these forms: plain, percent-encoded, escaped for JSON or Python,
hexadecimal, and within Base64 of a longer text. Must not: keep a secret.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from odradek.common.secret import HIDDEN, Secret

MIN_ENCODED_LENGTH = 6
"""Minimum length of a Base64 or hexadecimal text to search for.

Shorter texts occur by chance.
"""
_ENCODED = re.compile(r"([A-Za-z0-9+/_\-]+=*)")
"""Regular expression that splits a text into words that may be Base64, and the rest."""


def redact_secret(words: str, secret: Secret) -> str:
    """Return the text with the secret and all its encoded forms replaced by `[hidden]`."""
    text = secret.reveal()
    if not text:
        return words
    for form in sorted(plain_forms(text), key=len, reverse=True):
        words = re.sub(re.escape(form), HIDDEN, words, flags=re.IGNORECASE * (form != text))
    for piece in _base64_forms(text.encode("utf-8", "surrogatepass")):
        if len(piece) >= MIN_ENCODED_LENGTH and piece in words:
            parts = _ENCODED.split(words)
            words = "".join(HIDDEN if piece in part else part for part in parts)
    return words


def plain_forms(text: str) -> set[str]:
    """Return a text, and its forms that are escaped or hexadecimal."""
    data = text.encode("utf-8", "surrogatepass")
    found = {text, quote(data, safe=""), quote(data), quote_plus(data)}
    found |= {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    if len(data.hex()) >= MIN_ENCODED_LENGTH:
        found.add(data.hex())
    return found


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the Base64 characters that depend only on the data, for each position modulo 3."""
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]
