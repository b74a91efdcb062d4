"""Sign assertions for the grant "JWT bearer" (RFC 7523, KIP-1139).

In: `sasl.oauthbearer.assertion.*`. Out: a new assertion, or one from a file that another program
renews; a token server exchanges assertions for tokens. Must not: keep the private key in memory
after signing.
"""

from __future__ import annotations

import json
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.common.errors import ConfigurationError, TokenError
from odradek.common.extras import require_extra
from odradek.common.secret import Secret
from odradek.runtime.private_files import warn_of_readers


@dataclass(frozen=True, slots=True)
class AssertionSettings:
    """Settings for the assertions of one client."""

    key_file: str | None
    passphrase: Secret | None = None
    key_pem: Secret | None = None
    algorithm: str = "RS256"
    claims: Mapping[str, str] = field(default_factory=dict)
    lifetime: float = 300.0
    before: float = 60.0
    """Seconds before now from which the assertion is valid, because clocks differ."""
    with_jti: bool = False


def encoded(value: bytes) -> str:
    """Encode bytes as base64url, without padding."""
    return urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def assertion_of(settings: AssertionSettings, now: float) -> Secret:
    """Create and sign a new assertion."""
    header = {"alg": settings.algorithm, "typ": "JWT"}
    claims: dict[str, Any] = dict(settings.claims)
    claims |= {"iat": int(now), "exp": int(now + settings.lifetime)}
    claims["nbf"] = int(now - settings.before)
    if settings.with_jti:
        claims["jti"] = str(uuid.uuid4())
    parts = [encoded(json.dumps(part).encode()) for part in (header, claims)]
    signed = ".".join(parts)
    signature = _sign(settings, signed.encode("ascii"))
    return Secret(f"{signed}.{encoded(signature)}")


def _sign(settings: AssertionSettings, message: bytes) -> bytes:
    require_extra("cryptography.hazmat.primitives.asymmetric")
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    key = _private_key(settings)
    if settings.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(message, padding.PKCS1v15(), SHA256())
    if settings.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = utils.decode_dss_signature(key.sign(message, ec.ECDSA(SHA256())))
        size = (key.curve.key_size + 7) // 8
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    raise TokenError(
        f"the key of the assertion doesn't fit the algorithm {settings.algorithm}",
        cure="Set sasl.oauthbearer.assertion.algorithm to RS256 (RSA) or ES256 (P-256).",
    )


def _private_key(settings: AssertionSettings) -> Any:
    require_extra("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    phrase = settings.passphrase
    try:
        if settings.key_pem is not None:
            pem = Secret(settings.key_pem.reveal())
        elif settings.key_file is not None:
            warn_of_readers("sasl.oauthbearer.assertion.private.key.file", settings.key_file)
            pem = Secret(Path(settings.key_file).read_text("ascii"))
        else:
            raise ConfigurationError("sasl.oauthbearer.assertion.private.key.file is missing")
        return load_pem_private_key(
            pem.reveal().encode(), phrase.reveal().encode() if phrase else None
        )
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise TokenError(
            f"the assertion's private key can't be read: {type(error).__name__}: {error}",
            cure="Check sasl.oauthbearer.assertion.private.key.file and .private.key.passphrase.",
        ) from None


def assertion_in(path: Path) -> Secret:
    """Read an assertion from a file that another program renews."""
    try:
        text = Secret(path.read_text("ascii").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(
            f"the assertion file {path} can't be read: {type(error).__name__}",
            cure="Check sasl.oauthbearer.assertion.file.",
        ) from error
    if not text:
        raise TokenError(f"the assertion file {path} is empty")
    return text
