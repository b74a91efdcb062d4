"""Hold the SASL settings of a simulated cluster: users, tokens, mechanisms, sessions, faults.

In: values that tests and schedules set. Out: the same values, for `sasl` and `sasl_mechanisms`.
Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class Hostile(Enum):
    """Fault of a hostile broker during SASL authentication."""

    NO = "no"
    WRONG_SIGNATURE = "wrong_signature"
    NO_PROOF = "no_proof"
    """Accepts SCRAM's first token at once, without proof that the broker knows the password."""
    FEW_ITERATIONS = "few_iterations"
    MANY_ITERATIONS = "many_iterations"
    FOREIGN_NONCE = "foreign_nonce"
    GARBAGE = "garbage"
    HUGE = "huge"
    ENDLESS = "endless"
    """Sends challenges without an end."""
    SILENT = "silent"
    CLOSES = "closes"
    """Closes the connection at the first token, without a response, as brokers before Kafka 1.0
    do."""


@dataclass(slots=True)
class SaslListener:
    """SASL settings and counts that all brokers of a cluster share; tests may change them."""

    users: dict[str, str] = field(default_factory=dict)
    """Passwords by user name."""
    tokens: dict[str, float] = field(default_factory=dict)
    """Valid tokens of OAUTHBEARER, with their expiry in seconds since the epoch."""
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    session_lifetime: float = 0.0
    """Lifetime of a session in seconds (`connections.max.reauth.ms`); 0: sessions don't expire."""
    failure_delay: float = 0.1
    """Delay of a refusal in seconds (`connection.failed.authentication.delay.ms`)."""
    refusing: set[int] = field(default_factory=set)
    """Ids of brokers that refuse all credentials."""
    hostile: Hostile = Hostile.NO
    wall_clock: Callable[[], float] = lambda: 0.0
    authenticated: int = 0
    reauthenticated: int = 0
    refused: int = 0
    killed: int = 0
    """Number of connections closed because a request arrived after the session's expiry."""

    def count_authentication(self, *, again: bool) -> None:
        """Count an authentication of a connection; with `again`, also as a re-authentication."""
        self.authenticated += 1
        self.reauthenticated += again

    def count_refusal(self) -> None:
        """Count a refusal of credentials or of a mechanism."""
        self.refused += 1

    def count_kill(self) -> None:
        """Count a connection that was closed because its session had expired."""
        self.killed += 1
