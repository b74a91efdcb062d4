"""Implement the brokers' side of PLAIN, SCRAM and OAUTHBEARER, as generators.

In: a client's tokens, the users of a cluster. Out: challenges; at the end the principal and the
last token, and for a bearer token its expiry. Written from the RFCs, independently of the client's
side. Must not know connections.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any

from odradek.simulation.brokers.sasl_listener import Hostile, SaslListener

Server = Generator[bytes, bytes, Any]
ITERATIONS = 4096
SERVER_NONCE = "simulated"


class RefusedError(Exception):
    """The credentials are refused."""


def _demand(right: bool) -> None:
    if not right:
        raise RefusedError("that isn't how the mechanism goes")


def plain(listener: SaslListener, name: str) -> Server:
    """Implement PLAIN (RFC 4616)."""
    token = yield b""
    identity, user, password = token.decode().split("\0")
    if identity not in ("", user) or listener.users.get(user) != password:
        raise RefusedError("Invalid username or password")
    return user, b""


@lru_cache(maxsize=256)
def _salted(hash_name: str, password: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, ITERATIONS)


def scram(listener: SaslListener, name: str) -> Server:
    """Implement SCRAM (RFC 5802), with a constant server nonce, so that runs are reproducible."""
    hash_name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[name]
    first = (yield b"").decode()
    _demand(first.startswith("n,,"))
    bare = first[3:]
    fields = dict(part.split("=", 1) for part in bare.split(","))
    user = fields["n"].replace("=2C", ",").replace("=3D", "=")
    password = listener.users.get(user)
    if password is None:
        raise RefusedError("invalid credentials")
    nonce = fields["r"] + SERVER_NONCE
    if listener.hostile is Hostile.FOREIGN_NONCE:
        nonce = "another" + SERVER_NONCE
    salt = hashlib.sha256(user.encode()).digest()[:16]
    counts = {Hostile.FEW_ITERATIONS: 1, Hostile.MANY_ITERATIONS: 2_000_000_000}
    count = counts.get(listener.hostile, ITERATIONS)
    challenge = f"r={nonce},s={b64encode(salt).decode()},i={count}"
    final = (yield challenge.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    _demand(without_proof == f"c=biws,r={nonce}")
    salted = _salted(hash_name, password, salt)
    signed = f"{bare},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored, signed, hash_name)
    shown = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
    if hashlib.new(hash_name, shown).digest() != stored:
        raise RefusedError("invalid credentials")
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    answer = hmac.digest(server_key, signed, hash_name)
    if listener.hostile is Hostile.WRONG_SIGNATURE:
        answer = bytes(len(answer))
    return user, b"v=" + b64encode(answer)


def oauthbearer(listener: SaslListener, name: str) -> Server:
    """Implement OAUTHBEARER (RFC 7628): a refusal is a challenge, answered by one byte."""
    message = (yield b"").decode()
    token = message.split("\x01auth=Bearer ")[1].split("\x01")[0]
    end = listener.tokens.get(token)
    if end is None or end <= listener.wall_clock():
        status = "invalid_token" if end is None else "expired_token"
        kvsep = yield f'{{"status":"{status}"}}'.encode()
        _demand(kvsep == b"\x01")
        raise RefusedError(status)
    return TOKENS_USER, b"", end


TOKENS_USER = "tokens"
"""The principal of all bearer tokens, so that a new token doesn't change the user."""
SERVERS: dict[str, Callable[[SaslListener, str], Server]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram,
    "SCRAM-SHA-512": scram,
    "OAUTHBEARER": oauthbearer,
}
