"""Read a file with lists of revoked certificates (CRL), and decide which certificates are checked.

In: the file of `ssl.crl.location`, PEM. Out: lists in a TLS context, and OpenSSL's flag. Must not
trust anything: OpenSSL takes certificates in such a file for trusted authorities.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from contextlib import suppress

from odradek.common.errors import ConfigurationError
from odradek.runtime.tls.stores import CERTIFICATES, StoreSource, pem_blocks, read_file

OPTION = "ssl.crl.location"
LIST = "X509 CRL"
_VERSION = 2  # the tag of an integer


def take_revoked(context: ssl.SSLContext, path: str) -> ssl.VerifyFlags:
    """Load the lists of a file, and return the flag for the certificates that they allow to check.

    OpenSSL refuses a certificate whose issuer has no list. With the lists of one issuer only the
    broker's own certificate is checked; with those of several, all of its chain are.
    """
    blocks = [*pem_blocks(read_file(StoreSource(OPTION, path, None)).decode("latin-1"))]
    if any(kind in CERTIFICATES for kind, _ in blocks):
        raise ConfigurationError(
            f"{OPTION}: {path}: it contains a certificate, which would become a trusted authority: "
            "leave only lists of revoked certificates (-----BEGIN X509 CRL) in this file, and set "
            "authorities with ssl.ca.location"
        )
    issuers = {_issuer(body) for kind, body in blocks if kind == LIST}
    if not issuers:
        raise ConfigurationError(
            f"{OPTION}: {path}: it contains no list of revoked certificates (-----BEGIN X509 CRL)"
        )
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{OPTION}: {path}: a list of revoked certificates is invalid: {error}"
        ) from None
    return ssl.VERIFY_CRL_CHECK_CHAIN if len(issuers) > 1 else ssl.VERIFY_CRL_CHECK_LEAF


def _issuer(body: str) -> bytes:
    """Return the issuer's name in a list, as DER; of an invalid list anything."""
    with suppress(binascii.Error, ValueError, IndexError):
        der = base64.b64decode("".join(body.split()))
        _, at, _ = _value(der, 0)
        _, at, _ = _value(der, at)
        tag, _, end = _value(der, at)
        if tag == _VERSION:
            _, _, end = _value(der, end)
        _, start, end = _value(der, end)
        return der[start:end]
    return b""


def _value(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of a DER value, and where its content begins and ends."""
    length, start = der[at + 1], at + 2
    if length > 0x7F:  # the number of bytes of the length
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start])
    return der[at], start, start + length
