"""Define the content of a store: keys and certificates, and why it can't be read.

In: certificates and keys as DER. Out: a `Store`, PEM. Must not read files.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from odradek.common.secret import Secret


class StoreError(Exception):
    """A fault of a key or trust store; its text is the end of a sentence."""


class WrongPasswordError(StoreError):
    """A password doesn't open the store, or its key."""

    def __init__(self, what: str, *, of_key: bool = False) -> None:
        super().__init__(what)
        self.of_key = of_key


class KeyEntry(NamedTuple):
    """A private key with its certificates, its own first."""

    alias: str
    key: Secret
    chain: str


class Store(NamedTuple):
    """Contents of a key or trust store."""

    certificates: tuple[bytes, ...]
    keys: tuple[KeyEntry, ...]


def pem(certificate: bytes) -> str:
    """Return a certificate as PEM."""
    return _armoured(certificate, "CERTIFICATE")


def key_pem(key: bytes) -> Secret:
    """Return an unencrypted key (PKCS8) as PEM."""
    return Secret(_armoured(key, "PRIVATE KEY"))


def _armoured(data: bytes, what: str) -> str:
    return f"-----BEGIN {what}-----\n{base64.encodebytes(data).decode()}-----END {what}-----\n"
