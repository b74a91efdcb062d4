"""Create a TLS context from three PEM files, for servers that aren't brokers.

In: files with authorities, with a certificate and with its key. Out: a TLS context. Must not: omit
the verification of chain or host name.
"""

from __future__ import annotations

import ssl

from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret


def pem_context(
    authorities: str | None, certificate: str | None, key: str | None, password: Secret | None
) -> ssl.SSLContext:
    """Return a TLS context; without a file of authorities, it trusts the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if authorities is not None:
            context.load_verify_locations(authorities)
        else:
            context.load_default_certs()
        if certificate is not None:
            context.load_cert_chain(certificate, key, lambda: password.reveal() if password else "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        raise ConfigurationError(
            "ssl.ca.location, ssl.certificate.location or ssl.key.location can't be used: "
            f"{reason}. They must be PEM files; an encrypted key needs ssl.key.password"
        ) from None
    return context
