"""Convert names of cipher suites from Java's (IANA) to OpenSSL's.

In: the value of `ssl.cipher.suites`. Out: OpenSSL's name for a suite of TLS 1.2; whether a suite is
of TLS 1.3. Must not: judge which suites are secure; OpenSSL's security level refuses broken suites.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?:TLS|SSL)_(?:(?P<exchange>\w+)_WITH_)?(?P<cipher>\w+)")
_EXCHANGES = {
    "RSA": "",
    "ECDHE_RSA": "ECDHE-RSA-",
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
}
_BLOCK = re.compile(
    r"(?P<family>AES|ARIA|CAMELLIA)_(?P<bits>128|256)_(?P<mode>CBC|GCM|CCM_8|CCM)(?:_(?P<mac>SHA\d*))?"
)
NOT_SUITES = frozenset(("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV"))
"""Entries of Java's lists that aren't suites but signals, which OpenSSL always sends."""


def openssl_name(name: str) -> str | None:
    """Return OpenSSL's name of a TLS 1.2 suite, given Java's or OpenSSL's; None if unknown."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name if re.fullmatch(r"[A-Z0-9-]+", name) and "-" in name else None
    exchange, cipher = match["exchange"], match["cipher"]
    if exchange is None or exchange not in _EXCHANGES:
        return None
    if cipher == "CHACHA20_POLY1305_SHA256":
        return f"{_EXCHANGES[exchange]}CHACHA20-POLY1305"
    block = _BLOCK.fullmatch(cipher)
    if block is None:
        return None
    family, bits, mode, mac = block.group("family", "bits", "mode", "mac")
    middle = "" if mode == "CBC" else f"-{mode.replace('_', '')}"
    prefix = _EXCHANGES[exchange]
    if family == "ARIA" and exchange == "ECDHE_RSA":
        prefix = "ECDHE-"  # OpenSSL omits "RSA" here
    return f"{prefix}{family}{bits}{middle}{f'-{mac}' if mac else ''}"


def is_tls13(name: str) -> bool:
    """Return whether a suite is of TLS 1.3, which its name shows (it contains no key exchange)."""
    return name.startswith("TLS_") and "_WITH_" not in name and name not in NOT_SUITES
