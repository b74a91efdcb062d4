"""Define the content of a store (keys and certificates), and the errors of reading a store.

In: certificates and keys as DER. Out: a `Store`; PEM texts. Must not: read files.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from odradek.common.secret import Secret


class StoreError(Exception):
    """An error in a key or trust store; its text is the second part of a message."""


class WrongPasswordError(StoreError):
    """The password of a store or of its key is wrong."""

    def __init__(self, what: str, *, of_key: bool = False) -> None:
        super().__init__(what)
        self.of_key = of_key


class KeyEntry(NamedTuple):
    """A private key with its certificate chain, in PEM."""

    alias: str
    key: Secret
    chain: str


class Store(NamedTuple):
    """The contents of a key or trust store."""

    certificates: tuple[bytes, ...]
    keys: tuple[KeyEntry, ...]


def pem(certificate: bytes) -> str:
    """Return a DER certificate as PEM."""
    return _armoured(certificate, "CERTIFICATE")


def key_pem(key: bytes) -> Secret:
    """Return an unencrypted DER key (PKCS8) as PEM."""
    return Secret(_armoured(key, "PRIVATE KEY"))


def _armoured(data: bytes, what: str) -> str:
    return f"-----BEGIN {what}-----\n{base64.encodebytes(data).decode()}-----END {what}-----\n"
