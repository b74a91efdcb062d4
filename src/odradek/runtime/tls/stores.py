"""Read files with keys and certificates: PEM, PKCS12 and JKS, recognized by their content.

In: an option's name, the file that it names, and passwords. Out: a `Store`: certificates as DER,
keys as PEM. Must not: raise anything but a `ConfigurationError`, whatever a file contains, or put a
secret into an error.

The content determines the format, not `ssl.*store.type`: Java's `keytool` has written PKCS12 for
years into files that are called .jks, and Java reads them by their content.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from odradek.common.errors import ConfigurationError
from odradek.common.extras import require_extra
from odradek.common.secret import Secret
from odradek.runtime.tls.store_contents import Store, StoreError, WrongPasswordError

logger = logging.getLogger("odradek")

LARGEST = 16 << 20
"""Maximum size of a store in bytes, in case that a wrong file is configured."""
OTHERS_MAGIC = {b"\xce\xce\xce\xce": "JCEKS"}
_EDGE = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
CERTIFICATES = frozenset(("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"))
"""Kinds of PEM blocks that contain a certificate."""
_HEADERS = re.compile(r"\s*Proc-Type:\s*(\S+)\s+DEK-Info:\s*(\S+)\s")
_KEY_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----")
_told: set[str] = set()
"""Key files for which this process has logged a warning."""


@dataclass(frozen=True, slots=True)
class StoreSource:
    """The options of a key or trust store, with their values."""

    option: str
    """Name of the option, such as `ssl.truststore.location`, for messages."""
    path: str
    password: Secret | None = None
    key_password: Secret | None = None

    @property
    def password_option(self) -> str:
        """Name of the option for the store's password."""
        return self.option.removesuffix(".location") + ".password"

    def problem(self, what: str) -> ConfigurationError:
        """Return an error about this file."""
        return ConfigurationError(f"{self.option}: {self.path}: {what}")


def tidy_pem(text: Secret) -> Secret:
    """Return PEM with the line breaks that OpenSSL needs, and without text between blocks.

    Java also accepts a block in one line, as used in properties files and environment variables.
    """
    return Secret("".join(_tidy_block(what, body) for what, body in pem_blocks(text.reveal())))


def pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and body of each PEM block, in one pass over the text.

    To search the end of each block separately would take quadratic time if ends are missing.
    """
    kind, start = "", 0
    for edge in _EDGE.finditer(text):
        if edge[1] == "BEGIN":
            kind, start = edge[2], edge.end()
        elif edge[2] == kind or {edge[2], kind} <= CERTIFICATES:
            yield kind, text[start : edge.start()]
            kind = ""


def _tidy_block(what: str, body: str) -> str:
    """Return a PEM block with usual line breaks; leave a block with unusual headers unchanged."""
    headers = _HEADERS.match(body)
    if headers is not None:
        body = body[headers.end() :]
    elif ":" in body:
        return f"-----BEGIN {what}-----{body}-----END {what}-----\n"
    encoded = "".join(body.split())
    lines = [encoded[at : at + 64] for at in range(0, len(encoded), 64)]
    before = [] if headers is None else [f"Proc-Type: {headers[1]}", f"DEK-Info: {headers[2]}", ""]
    return "\n".join([f"-----BEGIN {what}-----", *before, *lines, f"-----END {what}-----", ""])


def certificates_of(text: str, where: str) -> list[bytes]:
    """Return the certificates in a PEM text, as DER; other blocks and text are skipped."""
    found: list[bytes] = []
    bodies = (body for kind, body in pem_blocks(text) if kind in CERTIFICATES)
    for number, body in enumerate(bodies, 1):
        try:
            found.append(base64.b64decode("".join(body.split()), validate=True))
        except (binascii.Error, ValueError):
            raise ConfigurationError(f"{where}: certificate {number} isn't valid PEM") from None
    if not found:
        raise ConfigurationError(f"{where}: it contains no certificate (-----BEGIN CERTIFICATE)")
    return found


def read_file(source: StoreSource) -> bytes:
    """Read a whole file; if that fails, raise a `ConfigurationError` with option and path."""
    try:
        path = Path(source.path)
        if not stat.S_ISREG(path.stat().st_mode):
            raise source.problem("it isn't a regular file")
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise source.problem(f"it can't be read: {reason}") from None
    if len(data) > LARGEST:
        raise source.problem(f"it is larger than {LARGEST >> 20} MiB")
    if not data:
        raise source.problem("it is empty")
    return data


def is_pem(source: StoreSource, data: bytes) -> bool:
    """Return whether the bytes are PEM; raise for file formats that aren't supported."""
    if OTHERS_MAGIC.get(data[:4]):
        raise source.problem(
            f"it is a {OTHERS_MAGIC[data[:4]]} store, which isn't supported. Convert it with: "
            "keytool -importkeystore … -deststoretype PKCS12"
        )
    return b"-----BEGIN " in data


def read_store(source: StoreSource, data: bytes, *, for_trust: bool = False) -> Store:
    """Parse a PKCS12 or JKS store; with `for_trust`, read only its certificates."""
    problem: str
    try:
        return _read(source, data, for_trust=for_trust)
    except WrongPasswordError as error:
        option = "ssl.key.password" if error.of_key else source.password_option
        given = source.key_password or source.password if error.of_key else source.password
        problem = str(error) if given is not None else "it needs a password"
        problem += f" (option {option})"
    except StoreError as error:
        problem = str(error)
    raise source.problem(problem)


def _read(source: StoreSource, data: bytes, *, for_trust: bool) -> Store:
    from odradek.runtime.tls.jks import MAGIC, read_jks

    if data[:4] == MAGIC:
        return read_jks(data, source.password, source.key_password, for_trust=for_trust)
    if data[:1] != b"\x30":
        raise StoreError("it is neither PEM nor PKCS12 nor JKS")
    require_extra("odradek.runtime.tls.pkcs12")
    from odradek.runtime.tls.pkcs12 import read_pkcs12

    return read_pkcs12(data, source.password, for_trust=for_trust)


def trusted(source: StoreSource) -> list[bytes]:
    """Return the trusted certificates of a store, as DER."""
    data = read_file(source)
    if is_pem(source, data):
        return certificates_of(_pem_text(data), f"{source.option}: {source.path}")
    # As in Java, a key's certificate is trusted, and the key's password isn't needed.
    found = read_store(source, data, for_trust=True).certificates
    if not found:
        raise source.problem("it contains no certificate")
    return list(dict.fromkeys(found))


def _pem_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def own_key(source: StoreSource) -> Secret:
    """Return this client's key and certificates, as one PEM text; the key may be encrypted."""
    data = read_file(source)
    if is_pem(source, data):
        if source.password is not None:
            raise ConfigurationError(
                f"{source.password_option} can't be used with PEM; set ssl.key.password if the "
                "key is encrypted"
            )
        return checked_key(source, data)
    store = read_store(source, data)
    if not store.keys:
        raise source.problem("it contains no private key")
    if len(store.keys) > 1:
        logger.warning(
            "%s: %s: it contains %d private keys; the first, %r, is used",
            *(source.option, source.path, len(store.keys), store.keys[0].alias),
        )
    entry = store.keys[0]
    return Secret(entry.key.reveal() + entry.chain)


def checked_key(source: StoreSource, data: bytes) -> Secret:
    """Return a PEM file's content if it has a key; warn once if all users can read the file."""
    text = Secret(_pem_text(data))
    kind = _KEY_BLOCK.search(text.reveal())
    if kind is None:
        raise source.problem("it contains no private key (-----BEGIN … PRIVATE KEY-----)")
    encrypted = "ENCRYPTED" in kind[1] or "Proc-Type: 4,ENCRYPTED" in text.reveal()
    if not encrypted and source.path not in _told:
        _warn_of_mode(source)
    return text


def _warn_of_mode(source: StoreSource) -> None:
    if os.name == "posix" and Path(source.path).stat().st_mode & stat.S_IROTH:
        _told.add(source.path)
        logger.warning(
            "%s: %s contains an unencrypted private key that every user of this machine can "
            "read: run chmod o-r",
            *(source.option, source.path),
        )
