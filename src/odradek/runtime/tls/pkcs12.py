"""Read PKCS12 stores (`.p12`, `.pfx`) with `cryptography`, because Python's `ssl` can't.

In: a file's bytes, the store's password. Out: a `Store`. Must not: be imported before a PKCS12
store has to be read, as importing `cryptography` takes a while.
"""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from odradek.common.secret import Secret
from odradek.runtime.tls.pkcs12_keys import without_keys
from odradek.runtime.tls.store_contents import KeyEntry, Store, StoreError, WrongPasswordError, pem


def read_pkcs12(data: bytes, password: Secret | None, *, for_trust: bool = False) -> Store:
    """Read a store: its certificates, and its key with the key's certificates.

    With `for_trust`, only certificates are returned, so that a key with another password is no
    problem.
    """
    try:
        return _read(data, password, for_trust=for_trust)
    except WrongPasswordError:
        others = without_keys(data, password) if for_trust and password is not None else None
        if others is None:
            raise
    return _read(others, password, for_trust=True)


def _read(data: bytes, password: Secret | None, *, for_trust: bool) -> Store:
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.reveal().encode())
    except UnsupportedAlgorithm as error:
        raise StoreError(
            f"it is encrypted with an unsupported algorithm ({error}); convert it with keytool or "
            "openssl pkcs12"
        ) from None
    except (ValueError, TypeError, OverflowError) as error:
        if "password" in str(error).lower():
            raise WrongPasswordError("its password is wrong, or the file is corrupt") from None
        raise StoreError("it is corrupt or truncated") from None
    others = [c.certificate.public_bytes(Encoding.DER) for c in found.additional_certs]
    if found.key is None or for_trust:
        own = [] if found.cert is None else [found.cert.certificate.public_bytes(Encoding.DER)]
        return Store((*own, *others), ())
    if found.cert is None:
        raise StoreError("it contains a private key without the matching certificate")
    chain = [found.cert.certificate.public_bytes(Encoding.DER), *others]
    name = found.cert.friendly_name or b""
    key = Secret(
        found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    )
    return Store(
        tuple(chain), (KeyEntry(name.decode("utf-8", "replace"), key, "".join(map(pem, chain))),)
    )
