"""Authenticate with SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka does.

In: credentials; a nonce for each authentication. Out: two tokens, neither of which reveals the
password; and the proof that the broker knows the password, too: its signature is verified. The
iterations that a broker may request are limited: fewer than 4096 would make the password easy to
guess, more than a million would take this machine too long. Like Kafka, this client doesn't
normalize passwords (SASLprep). Must not: accept a broker that didn't prove its identity.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import NamedTuple

from odradek.common.errors import CredentialsRefusedError, ServerNotTrustedError
from odradek.common.secret import Secret
from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import Conversation, Credentials, HiddenBytes, WorkerCall

FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 1 << 20
INLINE_ITERATIONS = 8192
"""Maximum number of iterations (about 5 ms) without a worker thread."""
LONGEST_SALT = 1024
KEPT = 16
"""Maximum number of cached salted passwords; usually all brokers have the same salt."""
NONCE = 24

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Challenge(NamedTuple):
    """Content of the broker's first message."""

    nonce: str
    salt: bytes
    iterations: int


class Scram:
    """The SCRAM mechanism of one client."""

    def __init__(
        self,
        name: str,
        credentials: Credentials,
        *,
        delegation_token: bool = False,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self.name = name
        self._hash = HASHES[name]
        self._credentials = credentials
        self._delegation_token = delegation_token
        self._random_bytes = random_bytes
        self._salted: dict[tuple[bytes, int], bytes] = {}

    @property
    def credentials(self) -> Credentials:
        """The user's name and password."""
        return self._credentials

    def use(self, credentials: Credentials) -> None:
        """Use these credentials from the next authentication on."""
        self._credentials = credentials
        self._salted = {}

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Send the user name, prove knowledge of the password, verify the broker's proof."""
        credentials, kept = self._credentials, self._salted
        nonce = self._nonce(rng)
        first = f"n={_escaped(credentials.username)},r={nonce}"
        if self._delegation_token:
            first += ",tokenauth=true"
        answer: bytes = yield f"n,,{first}".encode()
        challenge = read_challenge(answer, nonce)
        salted = kept.get((challenge.salt, challenge.iterations))
        if salted is None:
            work = (self._hash, credentials.password, challenge.salt, challenge.iterations)
            if challenge.iterations > INLINE_ITERATIONS:
                salted = yield WorkerCall(salted_password, work)
            else:
                salted = salted_password(*work)
        final = f"c=biws,r={challenge.nonce}"
        signed = f"{first},{answer.decode()},{final}".encode()
        proof, signature = proofs(self._hash, salted, signed)
        answer = yield f"{final},p={b64encode(proof).decode()}".encode()
        check_signature(answer, signature)
        while len(kept) >= KEPT:
            del kept[next(iter(kept))]
        kept[challenge.salt, challenge.iterations] = salted

    def _nonce(self, rng: Rng) -> str:
        if self._random_bytes is not None:
            return b64encode(self._random_bytes(NONCE)).decode()
        return b64encode(bytes(int(rng.random() * 256) for _ in range(NONCE))).decode()


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def read_challenge(message: bytes, nonce: str) -> Challenge:
    """Parse `r=…,s=…,i=…`; raise on a wrong nonce or too few or too many iterations."""
    fields = _fields(message, "r", "s", "i")
    found, salt_text, iterations_text = fields
    if not found.startswith(nonce) or len(found) == len(nonce):
        raise ServerNotTrustedError("the broker's SCRAM nonce doesn't begin with this client's")
    try:
        salt = b64decode(salt_text, validate=True)
    except (Base64Error, ValueError):
        salt = b""
    if not 0 < len(salt) <= LONGEST_SALT:
        raise ServerNotTrustedError("the broker's SCRAM salt is malformed")
    digits = iterations_text.isascii() and iterations_text.isdecimal()
    iterations = int(iterations_text) if digits and len(iterations_text) < 10 else 0
    if not digits or not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        asked = iterations_text[:12]
        raise ServerNotTrustedError(
            f"the broker asks for {asked!r} SCRAM iterations; this client takes "
            f"{FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
        )
    return Challenge(found, salt, iterations)


def _fields(message: bytes, *names: str) -> list[str]:
    """Return the values of these fields; the message must begin with them, in this order."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        parts = []
    if len(parts) < len(names) or any(
        not part.startswith(f"{name}=") for name, part in zip(names, parts, strict=False)
    ):
        raise ServerNotTrustedError("the broker's SCRAM message is malformed")
    return [part[2:] for part in parts[: len(names)]]


def salted_password(hash_name: str, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Derive a key from the password, by an algorithm that is slow on purpose."""
    salted = hashlib.pbkdf2_hmac(hash_name, password.reveal().encode(), salt, iterations)
    return HiddenBytes(salted)  # as secret as the password


def proofs(hash_name: str, salted: bytes, signed: bytes) -> tuple[bytes, bytes]:
    """Return the client's proof, and the signature that the broker must send."""
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    client_signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    return proof, hmac.digest(server_key, signed, hash_name)


def check_signature(message: bytes, expected: bytes) -> None:
    """Raise unless the server's final message proves that the server knows the password."""
    if message.startswith(b"e="):
        said = message[2:82].decode("utf-8", "replace")
        raise CredentialsRefusedError(f"the broker refused the proof: {said!r}")
    (text,) = _fields(message, "v")
    try:
        signature = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        signature = b""
    if not hmac.compare_digest(signature, expected):
        raise ServerNotTrustedError(
            "the broker's SCRAM signature is wrong: the broker doesn't know this user's password"
        )
