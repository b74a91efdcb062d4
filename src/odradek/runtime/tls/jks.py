"""Read JKS, Java's file format for stores of keys and certificates.

In: a file's bytes, the passwords of the store and of its key. Out: a `Store`. Must not: need Java,
or have a password or key in a local variable when it raises an error.

A store consists of magic, version, entries, and a SHA-1 digest of the password, a constant and all
bytes before it. Keys are encrypted with a stream that SHA-1 creates from password and salt, as in
Java's class `KeyProtector`; this is weak, but JKS has no other encryption.
"""

from __future__ import annotations

import hashlib
import hmac

from odradek.common.secret import Secret
from odradek.runtime.tls.store_contents import (
    KeyEntry,
    Store,
    StoreError,
    WrongPasswordError,
    key_pem,
    pem,
)

MAGIC = b"\xfe\xed\xfe\xed"
KEY, CERTIFICATE = 1, 2
DIGEST = 20
SALT = 20
_WHITENER = b"Mighty Aphrodite"
_PROTECTION = bytes.fromhex("2b060104012a02110101")
"""Object identifier of Java's key protection, 1.3.6.1.4.1.42.2.17.1.1, in DER."""
SEQUENCE, OBJECT_IDENTIFIER, OCTETS = 0x30, 0x06, 0x04


class _Reader:
    """Reader of big-endian values from bytes; raises `StoreError` if bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if count > len(self._data) - self._at:
            raise StoreError("it is truncated or has wrong lengths")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        """Return an unsigned number."""
        return int.from_bytes(self.take(size))

    def text(self) -> str:
        """Return the next string, which follows its length."""
        return self.take(self.number(2)).decode("utf-8", "replace")

    def der(self, tag: int) -> bytes:
        """Return the content of the next DER value."""
        if self.number(1) != tag:
            raise StoreError("a private key isn't in its expected place")
        length = self.number(1)
        if length & 0x80:
            length = self.number(length & 0x7F)
        return self.take(length)

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self._data) - self._at


def read_jks(
    data: bytes, password: Secret | None, key_password: Secret | None, *, for_trust: bool = False
) -> Store:
    """Read a store. Without a password, its digest isn't checked, and keys can't be read.

    With `for_trust`, no key is decrypted. As in Java, the certificate of a key is trusted, but the
    authorities that signed it aren't.
    """
    if password is not None and not _intact(data, password):
        raise WrongPasswordError("the store's password is wrong, or the file was modified")
    reader = _Reader(data[:-DIGEST])
    reader.take(len(MAGIC))
    version = reader.number(4)
    if version not in (1, 2):
        raise StoreError(f"JKS version {version} isn't supported")
    certificates: list[bytes] = []
    keys: list[KeyEntry] = []
    for _ in range(reader.number(4)):
        tag = reader.number(4)
        alias = reader.text()
        reader.take(8)  # skip the creation time
        if tag == CERTIFICATE:
            certificates.append(_certificate(reader, version))
        elif tag == KEY:
            protected = reader.take(reader.number(4))
            chain = [_certificate(reader, version) for _ in range(reader.number(4))]
            if for_trust:
                certificates += chain[:1]
                continue
            secret = key_password if key_password is not None else password
            keys.append(KeyEntry(alias, _key(protected, secret), "".join(map(pem, chain))))
        else:
            raise StoreError(f"it contains an entry of unknown kind {tag}")
    if reader.left:
        raise StoreError(f"it has {reader.left} unexpected bytes after its entries")
    return Store(tuple(certificates), tuple(keys))


def _certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.text() if version == 2 else "X.509"
    if kind != "X.509":
        raise StoreError("it contains a certificate that isn't X.509")
    return reader.take(reader.number(4))


def _utf16(password: Secret) -> bytes:
    return password.reveal().encode("utf-16-be", "surrogatepass")


def _intact(data: bytes, password: Secret) -> bool:
    digest = hashlib.sha1(_utf16(password), usedforsecurity=False)
    digest.update(_WHITENER)
    digest.update(data[:-DIGEST])
    return hmac.compare_digest(digest.digest(), data[-DIGEST:])


def _key(protected: bytes, password: Secret | None) -> Secret:
    """Decrypt a private key, and return it as PEM."""
    if password is None:
        raise WrongPasswordError("it contains a private key, but no password was set")
    info = _Reader(_Reader(protected).der(SEQUENCE))
    algorithm = _Reader(info.der(SEQUENCE))
    if algorithm.der(OBJECT_IDENTIFIER) != _PROTECTION:
        raise StoreError("a private key is encrypted with an unsupported algorithm")
    sealed = info.der(OCTETS)
    if len(sealed) < SALT + DIGEST:
        raise StoreError("a private key is truncated")
    plain = _decrypted(sealed, password)
    if plain is None:
        raise WrongPasswordError("the private key's password is wrong", of_key=True)
    return plain


def _decrypted(sealed: bytes, password: Secret) -> Secret | None:
    secret = _utf16(password)
    body, check, block = sealed[SALT:-DIGEST], sealed[-DIGEST:], sealed[:SALT]
    stream = bytearray()
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    found = hashlib.sha1(secret + plain, usedforsecurity=False).digest()
    return key_pem(plain) if hmac.compare_digest(found, check) else None
