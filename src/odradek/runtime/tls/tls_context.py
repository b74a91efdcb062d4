"""Create TLS contexts from the configuration, and recreate them when a file changes.

In: a `Config`. Out: `TlsContexts.context()`, called for each connection, so that certificates that
are rotated on disk are used from the next connection on (`file_contexts`). Must not: write a key to
disk, except for `key_log`.

Chain and host name are verified unless an option disables it; TLS 1.2 is the minimum.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret
from odradek.runtime.private_files import warn_of_readers
from odradek.runtime.tls.ciphers import NOT_SUITES, is_tls13, openssl_name
from odradek.runtime.tls.file_contexts import FileContexts, TlsSource
from odradek.runtime.tls.key_log import key_log_path, log_keys, warn_of_key_log
from odradek.runtime.tls.revocations import take_revoked
from odradek.runtime.tls.stores import (
    StoreSource,
    certificates_of,
    checked_key,
    own_key,
    read_file,
    tidy_pem,
    trusted,
)

logger = logging.getLogger("odradek")

FILES = (
    "ssl.truststore.location",
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.crl.location",
)
VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS = frozenset(("SSLV2HELLO", "SSLV3", "TLSV1", "TLSV1.0", "TLSV1.1"))


def tls_source(config: Config) -> TlsSource | None:
    """Return the function that returns TLS contexts; None if the protocol has no TLS.

    Files are read at once, so that the client's constructor raises their errors.
    """
    if not config["security.protocol"].endswith("SSL"):
        return None
    contexts = TlsContexts(config)
    contexts.context()
    logged = key_log_path(config["ssl.keylog.file"])
    if logged is not None:
        warn_of_key_log(logged)
    return contexts.context


def https_source(config: Config) -> TlsSource:
    """Return the function that returns contexts for HTTPS to a token endpoint.

    The system's trust store is read each time, because its changes can't be detected.
    """
    path, build = config["https.ca.location"], partial(https_context, config)
    return build if path is None else FileContexts([path], build).context


def https_context(config: Config) -> ssl.SSLContext:
    """Return a context for HTTPS to a token endpoint: the system's trust, or `https.ca.*`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    _trust(context, config, "https.ca.location", "https.ca.pem")
    return context


class TlsContexts(FileContexts):
    """The TLS context of one client's connections to brokers."""

    def __init__(self, config: Config) -> None:
        files = [config[name] for name in FILES if config[name] is not None]
        super().__init__(files, lambda: build(config), config["ssl.context"])


def build(config: Config) -> ssl.SSLContext:
    """Create a context; raise `ConfigurationError` for invalid options or files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = _versions(context, config)
    context.check_hostname = bool(config["ssl.endpoint.identification.algorithm"])
    # RFC 9525: only names in subjectAltName are compared, because an authority's name constraints
    # don't apply to the common name.
    context.hostname_checks_common_name = False
    if not config["enable.ssl.certificate.verification"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if _trust(context, config, "ssl.truststore.location", "ssl.truststore.certificates"):
        # As in Java, each certificate in the store is trusted, even a broker's own certificate or
        # an intermediate authority.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if (path := config["ssl.crl.location"]) is not None:
        context.verify_flags |= take_revoked(context, path)
    _take_key(context, config)
    logged = key_log_path(config["ssl.keylog.file"])
    if logged is not None:
        log_keys(context, logged)
    return context


# Versions and ciphers


def _versions(context: ssl.SSLContext, config: Config) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Set the cipher suites; return the lowest and highest TLS version that they allow."""
    enabled = [name.upper() for name in config["ssl.enabled.protocols"]]
    unknown = [name for name in enabled if name not in VERSIONS and name not in OLD_VERSIONS]
    if unknown:
        raise ConfigurationError(
            f"ssl.enabled.protocols: {unknown[0]} is unknown; use TLSv1.2 and TLSv1.3"
        )
    found = [VERSIONS[name] for name in enabled if name in VERSIONS]
    if not found:
        raise ConfigurationError(
            "ssl.enabled.protocols must contain TLSv1.2 or TLSv1.3; older versions aren't supported"
        )
    if len(found) < len(enabled):
        logger.warning("ssl.enabled.protocols: versions below TLSv1.2 aren't supported")
    lowest, highest = min(found), max(found)
    if config["ssl.protocol"] == "TLSV1.2":
        highest = ssl.TLSVersion.TLSv1_2
    tls12, tls13 = True, True
    suites = config["ssl.cipher.suites"]
    if suites:
        tls12, tls13 = _set_ciphers(context, suites)
    if not tls13:
        highest = ssl.TLSVersion.TLSv1_2
    if not tls12:
        lowest = ssl.TLSVersion.TLSv1_3
    if lowest > highest:
        raise ConfigurationError(
            "ssl.enabled.protocols, ssl.protocol and ssl.cipher.suites exclude every version of TLS"
        )
    return lowest, highest


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...] | str) -> tuple[bool, bool]:
    """Set the suites; return whether some are of TLS 1.2, and whether some are of TLS 1.3.

    Python's `ssl` can't select among the three suites of TLS 1.3, which are all strong.
    """
    if isinstance(suites, str):
        _hand_over(context, suites)
        return True, True
    new = [name for name in suites if is_tls13(name)]
    rest = [name for name in suites if name not in new and name not in NOT_SUITES]
    own: list[str] = []
    for name in rest:
        found = openssl_name(name)
        try:
            context.set_ciphers(found or "")
        except ssl.SSLError:
            logger.warning("ssl.cipher.suites: %s isn't supported by %s", name, ssl.OPENSSL_VERSION)
        else:
            own.append(found or "")
    if not own and not new:
        raise ConfigurationError(
            f"ssl.cipher.suites: {ssl.OPENSSL_VERSION} supports none of {', '.join(suites)}"
        )
    if own:
        _hand_over(context, ":".join(own))
    return bool(own), bool(new)


def _hand_over(context: ssl.SSLContext, text: str) -> None:
    try:
        context.set_ciphers(text)
    except ssl.SSLError as error:
        raise ConfigurationError(f"ssl.cipher.suites: OpenSSL rejects {text!r}: {error}") from None


# Trusted certificates


def _trust(context: ssl.SSLContext, config: Config, location: str, inline: str) -> bool:
    """Load the trusted certificates; return whether options name them (else: the system's)."""
    path, text = config[location], config[inline]
    if path is None and text is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return False
    if path is not None and Path(path).is_dir():
        context.load_verify_locations(capath=path)
        return True
    if path is None:
        found, where = certificates_of(text, inline), inline
    else:
        password = config[location.replace(".location", ".password")]
        found = trusted(StoreSource(location, path, password))
        where = f"{location}: {path}"
    for number, certificate in enumerate(found, 1):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            raise ConfigurationError(f"{where}: certificate {number} is invalid") from None
    return True


# This client's certificate


def _take_key(context: ssl.SSLContext, config: Config) -> None:
    where = next((n for n in _KEY_PLACES if config[n] is not None), None)
    if where is None:
        return
    both = tidy_pem(_key_and_chain(config))
    password: Secret | None = config["ssl.key.password"]
    asked = False

    def reveal() -> str:
        nonlocal asked
        asked = True
        if password is None:  # otherwise OpenSSL would ask in the terminal
            raise ConfigurationError(
                f"{_place(config, where)}: the private key is encrypted: set ssl.key.password"
            )
        return password.reveal()

    try:
        with _readable(both) as path:
            context.load_cert_chain(path, password=reveal)
        return
    except ConfigurationError:
        raise
    except (OSError, ValueError, TypeError) as error:
        mismatch = "MISMATCH" in str(error).upper()
    if mismatch:
        what = (
            "the first certificate doesn't match the private key (the client's own certificate "
            "must come first)"
        )
    elif asked:
        what = (
            "the private key can't be decrypted: ssl.key.password is wrong, or the key is corrupt"
        )
    else:
        what = "private key and certificates can't be read: they are corrupt or truncated"
    raise ConfigurationError(f"{_place(config, where)}: {what}")


_KEY_PLACES = (
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
)


def _place(config: Config, option: str) -> str:
    """Return the option's name for messages, with the path if its value is a file."""
    return f"{option}: {config[option]}" if option.endswith(".location") else option


def _key_and_chain(config: Config) -> Secret:
    """Return key and certificates as one PEM text, from whichever options contain them."""
    store = config["ssl.keystore.location"]
    if store is not None:
        warn_of_readers("ssl.keystore.location", store)
        return own_key(
            StoreSource(
                "ssl.keystore.location",
                store,
                config["ssl.keystore.password"],
                config["ssl.key.password"],
            )
        )
    chain_file, key_file = config["ssl.certificate.location"], config["ssl.key.location"]
    key: Secret | None = config["ssl.keystore.key"]
    if key_file is not None:
        warn_of_readers("ssl.key.location", key_file)
        source = StoreSource("ssl.key.location", key_file)
        key = checked_key(source, read_file(source))
    if chain_file is None:
        chain = config["ssl.keystore.certificate.chain"]
        return Secret(f"{'' if key is None else key.reveal()}\n{chain}\n")
    source = StoreSource("ssl.certificate.location", chain_file)
    if key is None:
        warn_of_readers("ssl.certificate.location", chain_file)
        return checked_key(source, read_file(source))  # one file contains key and certificates
    certificates = read_file(source).decode("utf-8", "replace")
    return Secret(f"{key.reveal()}\n{certificates}\n")


@contextmanager
def _readable(both: Secret) -> Iterator[str]:
    """Yield the path of a temporary file with a key, which is in memory if possible.

    Python's `ssl` only reads keys from files.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        number = os.memfd_create("odradek", os.MFD_CLOEXEC)
        with os.fdopen(number, "wb") as file:
            file.write(both.reveal().encode())
            file.flush()
            yield f"/proc/self/fd/{number}"
        return
    with tempfile.NamedTemporaryFile() as file:  # only this user can read it
        file.write(both.reveal().encode())
        file.flush()
        yield file.name
