"""Read a file with lists of revoked certificates (CRL).

In: the PEM file of `ssl.crl.location`. Out: lists loaded into a TLS context, and OpenSSL's flag.
Must not: load certificates from the file, which OpenSSL would trust as authorities.
"""

from __future__ import annotations

import ssl

from odradek.common.errors import ConfigurationError
from odradek.runtime.tls.stores import CERTIFICATES, StoreSource, pem_blocks, read_file

OPTION = "ssl.crl.location"
LIST = "X509 CRL"


def take_revoked(context: ssl.SSLContext, path: str) -> ssl.VerifyFlags:
    """Load the lists of a file; return the flag that checks only a broker's own certificate.

    OpenSSL refuses a certificate if its issuer's list is missing. If the whole chain were checked,
    all brokers would be refused if the list of an offline root authority is missing.
    """
    blocks = [*pem_blocks(read_file(StoreSource(OPTION, path, None)).decode("latin-1"))]
    if any(kind in CERTIFICATES for kind, _ in blocks):
        raise ConfigurationError(
            f"{OPTION}: {path}: it contains a certificate, which would become a trusted authority: "
            "leave only lists of revoked certificates (-----BEGIN X509 CRL) in this file, and set "
            "authorities with ssl.ca.location"
        )
    if all(kind != LIST for kind, _ in blocks):
        raise ConfigurationError(
            f"{OPTION}: {path}: it contains no list of revoked certificates (-----BEGIN X509 CRL)"
        )
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{OPTION}: {path}: a list of revoked certificates is invalid: {error}"
        ) from None
    return ssl.VERIFY_CRL_CHECK_LEAF
