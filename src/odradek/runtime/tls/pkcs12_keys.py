"""Remove the private keys from a PKCS12 store of which only the certificates are needed.

In: a store whose key has a separate password; the store's password. Out: the bytes of a store
without keys, with a new digest, or None if that is impossible. `cryptography` reads a store only
with all its keys, and so can't read a store with two passwords; Java reads no keys of a truststore.
Must not: accept content that the store's digest doesn't confirm.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from odradek.common.secret import Secret

SEQUENCE, OBJECT_IDENTIFIER, OCTETS, INTEGER, TAGGED = 0x30, 0x06, 0x04, 0x02, 0xA0
DATA = bytes.fromhex("2a864886f70d010701")
KEY_BAGS = frozenset(bytes.fromhex(f"2a864886f70d010c0a010{n}") for n in (1, 2))
"""Types of entries with a key, plain or encrypted (object identifiers in DER)."""
HASHES = {
    bytes.fromhex("2b0e03021a"): ("sha1", 64),
    bytes.fromhex("608648016503040201"): ("sha256", 64),
    bytes.fromhex("608648016503040203"): ("sha512", 128),
}
"""Hash functions of a store's digest, with their block sizes, by object identifier."""
MOST_ITERATIONS = 5_000_000
FOR_MAC = 3
"""Number for the purpose "MAC" of a derived key (RFC 7292, B.3)."""


def without_keys(data: bytes, password: Secret) -> bytes | None:
    """Return the store without its keys; None if its digest is wrong or it isn't PKCS12."""
    try:
        return _rebuilt(data, password)
    except (ValueError, IndexError):
        return None


def _rebuilt(data: bytes, password: Secret) -> bytes | None:
    version, (_, content), (_, mac) = list(_values(_only(data, SEQUENCE)))
    kind, (_, explicit) = list(_values(content))
    (_, digest_info), (_, salt), *counted = list(_values(mac))
    iterations = int.from_bytes(counted[0][1]) if counted else 1
    (_, algorithm), (_, digest) = list(_values(digest_info))
    name, block = HASHES.get(next(_values(algorithm))[1], ("", 0))
    if kind[1] != DATA or not name or not 0 < iterations <= MOST_ITERATIONS:
        return None
    safe = _only(explicit, OCTETS)
    key = _mac_key(name, block, password, salt, iterations)
    if not hmac.compare_digest(hmac.digest(key, safe, name), digest):
        return None
    left = _der(SEQUENCE, b"".join(_without(part) for part in _values(_only(safe, SEQUENCE))))
    new = _der(SEQUENCE, _der(SEQUENCE, algorithm) + _der(OCTETS, hmac.digest(key, left, name)))
    numbers = b"".join(_der(*one) for one in counted)
    return _der(
        SEQUENCE,
        _der(*version)
        + _der(SEQUENCE, _der(*kind) + _der(TAGGED, _der(OCTETS, left)))
        + _der(SEQUENCE, new + _der(OCTETS, salt) + numbers),
    )


def _without(part: tuple[int, bytes]) -> bytes:
    """Return a section of the store without its keys; encrypted sections are kept unchanged."""
    kind, *rest = list(_values(part[1]))
    if kind[1] != DATA or not rest:
        return _der(*part)
    bags = _values(_only(_only(rest[0][1], OCTETS), SEQUENCE))
    kept = [_der(*bag) for bag in bags if next(_values(bag[1]))[1] not in KEY_BAGS]
    inside = _der(OCTETS, _der(SEQUENCE, b"".join(kept)))
    return _der(SEQUENCE, _der(*kind) + _der(TAGGED, inside))


def _mac_key(name: str, block: int, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Derive the key of the MAC (RFC 7292, B.2), which is as long as a digest."""
    text = password.reveal().encode("utf-16-be", "surrogatepass") + b"\0\0"
    found = bytes([FOR_MAC]) * block + _filled(salt, block) + _filled(text, block)
    for _ in range(iterations):
        found = hashlib.new(name, found, usedforsecurity=False).digest()
    return found


def _filled(text: bytes, block: int) -> bytes:
    """Repeat bytes until they fill whole blocks."""
    size = -(-len(text) // block) * block
    return (text * (size // max(1, len(text)) + 1))[:size]


# DER


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each DER value; raise `ValueError` if a value is truncated."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size])
            at += size
            if not size:
                raise ValueError("it has a length that isn't valid DER")
        if length > len(data) - at:
            raise ValueError("it is truncated")
        yield tag, data[at : at + length]
        at += length


def _only(data: bytes, tag: int) -> bytes:
    """Return the content of a single DER value; raise `ValueError` if it has another tag."""
    ((found, content),) = _values(data)
    if found != tag:
        raise ValueError("it has an unexpected structure")
    return content


def _der(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    size = (len(content).bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + len(content).to_bytes(size) + content
