"""What a host saw when a connection ended, put into one of our error classes and into words.

In: an exception, a text or None (an orderly end). Out: a `KafkaError`. Must not: decide whether it
counts as a failure.
"""

from __future__ import annotations

from odradek.common.errors import (
    ConnectionFailedError,
    ConnectionRefusedByPeerError,
    DisconnectedError,
    KafkaError,
    TlsError,
)


def in_words(error: BaseException) -> str:
    """Class and text."""
    text = str(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def as_error(error: BaseException | str | None, *, setting_up: bool) -> KafkaError:
    """Put what the host saw into one of our classes."""
    if isinstance(error, KafkaError):
        return error
    if error is None:
        text = "the broker closed the connection"
        return ConnectionFailedError(text) if setting_up else DisconnectedError(text)
    if isinstance(error, ConnectionRefusedError) or error == "refused":
        return ConnectionRefusedByPeerError("connection refused")
    if type(error).__name__.startswith("SSL"):
        return TlsError(str(error))
    text = error if isinstance(error, str) else (getattr(error, "strerror", None) or str(error))
    return ConnectionFailedError(text) if setting_up else DisconnectedError(text)
