"""Convert the reason why a connection ended into an error with a message for users.

In: an exception, a text or None (closed by the peer), and the address. Out: a `KafkaError` with the
address, the cause and what to do. OpenSSL's errors are recognized by their attributes, because this
package imports no sockets. Must not: decide whether the address has failed, or guess: if the peer
closed the connection without an error, the cause remains unexplained (`probe` detects some causes).
"""

from __future__ import annotations

from odradek.common.errors import (
    CertificateExpiredError,
    CertificateUntrustedError,
    ClientCertificateRequiredError,
    ConnectionFailedError,
    ConnectionRefusedByPeerError,
    DisconnectedError,
    ExplainedError,
    HostNameMismatchError,
    KafkaError,
    NoMemoryError,
    PlaintextPortError,
    TlsError,
    TlsProtocolError,
)
from odradek.common.types import Address

_NAME_CODES = frozenset((62, 63, 64))
"""OpenSSL's verify codes for a certificate of another host name, e-mail address or IP."""
_TIME_CODES = {
    9: "the broker's certificate isn't valid yet",
    10: "the broker's certificate has expired",
}
_LIST_CODES = {
    3: "ssl.crl.location has no list of revoked certificates of an authority that signed the "
    "broker's certificate",
    8: "a list of revoked certificates has an invalid signature",
    11: "a list of revoked certificates isn't valid yet",
    12: "a list of revoked certificates has expired",
}
"""OpenSSL's verify codes for problems with lists of revoked certificates (CRL)."""
LIST_CURE = (
    "Put the current list of each authority into the file of ssl.crl.location: authorities publish "
    "a new one before the last expires."
)
REVOKED_CODE = 23
REVOKED = "the broker's certificate was revoked by its authority"
REVOKED_CURE = (
    "Don't trust this broker: its key may be stolen. It needs a new key and a new certificate."
)
_NO_TLS = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "BAD_RECORD_TYPE"))
"""OpenSSL's reasons if the peer's response isn't TLS."""
_NOTHING_IN_COMMON = {
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker refuses the TLS versions of this client",
    "UNSUPPORTED_PROTOCOL": "the broker only supports TLS versions that this client refuses",
    "NO_PROTOCOLS_AVAILABLE": "broker and client have no TLS version in common",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the broker requires stronger ciphers",
    "NO_CIPHERS_AVAILABLE": "no cipher matches the allowed TLS versions",
    "WRONG_CIPHER_RETURNED": "the broker chose a cipher that wasn't offered",
}
_OF_CLIENTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker requires a client certificate and got none",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker got no client certificate, or one it can't use",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker doesn't accept this client's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the broker can't use this kind of client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker says that this client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the broker says that this client's certificate is revoked",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker doesn't trust the issuer of this client's certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "the broker denies access to this client's certificate",
}
"""TLS alerts by which a broker rejects the client's certificate.

With TLS 1.3, such an alert arrives after the handshake, as the response to the first request.
"""
REFUSED = "the broker refused the TLS handshake without saying why"
REFUSED_CURE = (
    "Usually there is no cipher in common (ssl.cipher.suites), or the broker requires a client "
    "certificate (ssl.keystore.location); the broker's log says which."
)
ENDED = "the connection was closed during the TLS handshake"
ENDED_CURE = (
    "Usually the broker is starting or stopping, a proxy can't reach its broker, or the port "
    "doesn't speak TLS (security.protocol.probe.enable=true finds out)."
)


def in_words(error: BaseException) -> str:
    """Return the error's class name and text, as one string."""
    text = str(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def ended_unexplained(error: BaseException | str | None) -> bool:
    """Return whether a connection ended because the peer closed it without an error."""
    if error is None or isinstance(error, ConnectionResetError | BrokenPipeError):
        return True
    return type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError")


def ended_in_handshake(address: Address | None = None) -> TlsError:
    """Return the error for a peer that closed the connection during the TLS handshake."""
    return TlsError(ENDED, address, ENDED_CURE)


def as_error(
    error: BaseException | str | None, *, setting_up: bool, address: Address | None = None
) -> KafkaError:
    """Convert an error that the I/O host (thread or event loop) reported into a `KafkaError`."""
    if isinstance(error, ExplainedError):
        return error if address is None else error.at(address)
    if isinstance(error, KafkaError):
        return error
    if error is None:
        text = "the broker closed the connection"
        return ConnectionFailedError(text) if setting_up else DisconnectedError(text)
    if isinstance(error, ConnectionRefusedError) or error == "refused":
        return ConnectionRefusedByPeerError("connection refused")
    if isinstance(error, OSError) and type(error).__name__.startswith("SSL"):
        return _of_tls(error, address) if setting_up else DisconnectedError(f"TLS: {_said(error)}")
    if isinstance(error, MemoryError):
        text = "this process has no memory for the response"
        return ConnectionFailedError(text) if setting_up else NoMemoryError(text)
    text = error if isinstance(error, str) else (getattr(error, "strerror", None) or str(error))
    return ConnectionFailedError(text) if setting_up else DisconnectedError(text)


def _said(error: BaseException) -> str:
    """Return OpenSSL's message without its prefix and source line."""
    text = str(getattr(error, "strerror", None) or error)
    return text.partition("] ")[2].partition(" (_ssl")[0] or text


def _of_tls(error: BaseException, address: Address | None) -> TlsError:
    """Convert an error of the TLS handshake into an error that names the cause."""
    code, reason = getattr(error, "verify_code", None), str(getattr(error, "reason", None) or "")
    if code:
        return _of_certificate(code, str(getattr(error, "verify_message", "")), address)
    if reason in _NO_TLS:
        return PlaintextPortError("the port doesn't speak TLS", address)
    if reason in _NOTHING_IN_COMMON:
        return TlsProtocolError(_NOTHING_IN_COMMON[reason], address)
    if reason in _OF_CLIENTS:
        return ClientCertificateRequiredError(_OF_CLIENTS[reason], address)
    if reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return TlsProtocolError(REFUSED, address, REFUSED_CURE)
    if "UNRECOGNIZED_NAME" in reason:
        return HostNameMismatchError(
            "the server doesn't know the host name used to connect", address
        )
    if ended_unexplained(error):
        return ended_in_handshake(address)
    return TlsError(f"the TLS handshake failed: {_said(error)}", address)


def _of_certificate(code: int, message: str, address: Address | None) -> TlsError:
    message = message.rstrip(".")
    if code in _NAME_CODES:
        _, _, name = message.partition("certificate is not valid for ")
        return HostNameMismatchError(f"the broker's certificate isn't valid for {name}", address)
    if code in _LIST_CODES:
        kind = CertificateExpiredError if code in (11, 12) else CertificateUntrustedError
        return kind(_LIST_CODES[code], address, LIST_CURE)
    if code == REVOKED_CODE:
        return CertificateUntrustedError(REVOKED, address, REVOKED_CURE)
    if code in _TIME_CODES:
        return CertificateExpiredError(_TIME_CODES[code], address)
    return CertificateUntrustedError(f"the broker's certificate isn't trusted: {message}", address)
