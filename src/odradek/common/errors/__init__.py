"""The errors a user can meet, and the three properties that decide what the client does with them.

In: nothing. Out: exception classes; `errors.kafka` (generated from Kafka's own table) adds one
class per broker error code. Must not: format anything that could hold a secret.

R-RT-3: `retriable`, `refresh_metadata` and `fatal` are properties of the class, never of a
call site. `str()` of any of them can be shown: what peers have put in is printable (R-IN-3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from odradek.common.printable import LONGEST, printable
from odradek.common.types import Address, TopicPartition


class KafkaError(Exception):
    """Base of every error that Odradek raises on purpose."""

    code: ClassVar[int | None] = None
    """Kafka's error code, where a broker gave one."""
    retriable: ClassVar[bool] = False
    """The same request may succeed later without the caller changing anything."""
    refresh_metadata: ClassVar[bool] = False
    """What the client believes of the cluster is out of date."""
    fatal: ClassVar[bool] = False
    """The client can't go on; every later call raises the same error."""
    requires_abort: ClassVar[bool] = False
    """The transaction can't be committed; after `abort_transaction()` the producer goes on."""
    sticky: ClassVar[bool] = False
    """What answers at an address won't have this client, however long it waits: somebody has to
    change something, so every waiting call gets the error at once."""
    several_lines: ClassVar[bool] = False
    """It is put together of lines, each of which is printable by itself."""
    results: Mapping[Any, Any] = MappingProxyType({})
    """Of a call with many items, which tries them all: what it has done all the same, by item."""
    errors: Mapping[Any, KafkaError] = MappingProxyType({})
    """And what failed, by item; the first of these is raised."""

    def beside(self, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> Self:
        """The same as the error of a call with many items."""
        made = copy(self)
        made.__cause__ = self.__cause__
        made.results, made.errors = results, errors
        count = len(results) + len(errors)
        if count > 1:
            made.add_note(
                f"{len(errors)} of {count} failed: this error's `errors` has each one's, its "
                "`results` what was done."
            )
        return made

    def __str__(self) -> str:
        return printable(super().__str__(), limit=self._longest, lines=self.several_lines)

    @property
    def _longest(self) -> int | None:
        return None if self.several_lines else LONGEST


class ExplainedError(KafkaError):
    """An error that says where, what happened and what to do.

    `address` stays None where it isn't known yet; `at()` gives the same error with it.
    """

    usual_cure: ClassVar[str] = ""

    def __init__(self, what: str, address: Address | None = None, cure: str | None = None) -> None:
        super().__init__(what, address, cure)  # as given, so that copies and pickles are the same
        self.what, self.address = what, address
        self.cure = self.usual_cure if cure is None else cure

    def at(self, address: Address) -> Self:
        """The same, with its address; an error that has one stays as it is."""
        if self.address is not None:
            return self
        made = type(self)(self.what, address, self.cure)
        made.__cause__ = self.__cause__
        return made

    def saying(self, known: str) -> Self:
        """Return the same error, which says first what is known of its subject."""
        made = copy(self)
        made.what = f"{known}: {self.what}"
        return made

    def __str__(self) -> str:
        place = "" if self.address is None else f"{self.address}: "
        what, cure = printable(self.what.rstrip()), printable(self.cure)
        if not cure:
            return place + what
        return f"{place}{what}{'' if what.endswith('.') else '.'} {cure}"


class BrokerError(KafkaError):
    """A broker answered with an error code; `errors.kafka` has a subclass for each."""

    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"

    def needing(self, operation: str, name: str = "", kind: str = "") -> Self:
        """The same; only a refusal for want of a right takes note of which one it was."""
        return self

    def of(self, user: str | None) -> Self:
        """The same; only a refusal for want of a right takes note of who lacks it."""
        return self


class AuthorizationError(BrokerError):
    """The broker knows who asks, and that one has no right to do this.

    Only this request is refused: what the user may do goes on working. `operation` and `resource`
    say what an ACL has to allow.
    """

    operation: str | None = None
    """Kafka's name of the right that is missing, for example `WRITE`."""
    resource: str | None = None
    """What it is missing on, for example "topic 'orders'"."""
    user: str | None = None
    """Who lacks it, where this client logs in with a name (PLAIN, SCRAM)."""

    def of(self, user: str | None) -> Self:
        """Note who lacks the right."""
        self.user = user
        return self

    def needing(self, operation: str, name: str = "", kind: str = "") -> Self:
        """Note which right on what; the first to say so knows best.

        With a `kind` ("topic" …) only where it is one of those that was refused.
        """
        refused = self.name.removesuffix("_AUTHORIZATION_FAILED").replace("_", " ").lower()
        if self.operation is None and kind in ("", refused):
            self.operation = operation
            self.resource = f"{refused} {name!r}" if name else f"the {refused}"
        return self

    def __str__(self) -> str:
        said = super().__str__()
        if self.operation is None:
            return said
        who = "This client's user" if self.user is None else f"User {self.user!r}"
        return (
            f"{said.rstrip('.')}. {who} needs {self.operation} on {self.resource}: "
            "add an ACL that allows it."
        )


class UnknownErrorCodeError(BrokerError):
    """A broker answered with a code that this release doesn't know."""

    name = "UNKNOWN_ERROR_CODE"

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(f"broker error {number}, unknown to this release. {message}".rstrip())
        self.number = number


class ConfigurationError(KafkaError, ValueError):
    """A configuration name or value can't be used; the text says which and what is allowed."""


class MissingExtraError(ConfigurationError, ImportError):
    """A package that this needs isn't installed; the text has the line to type."""


class ArgumentError(ConfigurationError, TypeError):
    """An argument of a call has a wrong type; the text names it, what came and what to give.

    It is a `TypeError`, too. Nothing was done: no record was taken, no request sent.
    """


class IllegalStateError(KafkaError, RuntimeError):
    """The call doesn't fit what was done before (for example `poll` without `assign`)."""


class WakeupError(KafkaError):
    """`consumer.wakeup()` has ended a call that hands out records: it was asked to end.

    Nothing is lost: the next call goes on where this one was.
    """


class SystemLimitError(KafkaError, OSError):
    """The system refuses what a client needs to work at all, as file descriptors (`errno`).

    Nothing was done; once it is to be had, a later call of the same client works.
    """

    retriable = True


class UnsupportedFeatureError(KafkaError):
    """Asked for something that this release of Odradek doesn't do yet."""


class MalformedMessageError(KafkaError):
    """Bytes from a peer don't follow the protocol (cut off, negative or huge lengths …)."""


class NotKafkaError(ExplainedError, MalformedMessageError):
    """The peer isn't a Kafka broker with this security protocol (HTTP, TLS alert …)."""

    sticky = True
    usual_cure = "Look where host and port of bootstrap.servers lead."


class TlsPortError(NotKafkaError):
    """This client speaks plaintext, and the port wants TLS."""

    usual_cure = "Set security.protocol to SSL (or SASL_SSL), or use the broker's plaintext port."


class CorruptRecordError(KafkaError):
    """A record batch fails its checksum or its own lengths; `str()` names offset and place.

    From a consumer: of `partition`, and a `seek()` to `next_offset` goes on after it; None where
    the bytes there don't say where it ends. `on.corrupt.record=skip` does that by itself.
    """

    retriable = True
    partition: TopicPartition | None = None
    offset: int | None = None
    """Where reading stopped: the record, or the first one wanted of the batch."""
    next_offset: int | None = None


class RecordTooLargeError(KafkaError):
    """A record is larger than `max.request.size`, `buffer.memory` or its topic allows."""


class PartitionerError(KafkaError, ValueError):
    """The function given as `partitioner` raised (it is the cause), or gave no partition there is.

    Nothing was written of the record, or of the piece of Arrow data, that it was asked about.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row
        """The row of `send_arrow`'s data, None for a record of `send`."""


class BufferExhaustedError(KafkaError):
    """`buffer.memory` had no room for the records within `max.block.ms`."""

    retriable = True


class DisconnectedError(KafkaError):
    """The connection went away before the answer came; the request may have been carried out."""

    retriable = True
    refresh_metadata = True


class AnswerTooLargeError(MalformedMessageError, DisconnectedError):
    """An answer says that it is larger than this client takes; its connection is closed."""

    def __init__(self, message: str, size: int = 0) -> None:
        super().__init__(message, size)
        self.size = size

    def __str__(self) -> str:
        return str(self.args[0])


class ResponseTimeoutError(DisconnectedError):
    """No answer within `request.timeout.ms`."""


class ConnectionFailedError(KafkaError):
    """A dial didn't lead to a usable connection."""

    retriable = True


class DnsError(ConnectionFailedError):
    """A host name doesn't resolve."""


class ConnectionRefusedByPeerError(ConnectionFailedError):
    """Nothing listens at the address."""


class ConnectionSetupTimeoutError(ConnectionFailedError):
    """TCP, TLS and ApiVersions weren't done within the setup timeout (KIP-601)."""


class TlsError(ExplainedError, ConnectionFailedError):
    """The TLS handshake failed."""


class CertificateUntrustedError(TlsError):
    """Nobody that this client trusts has signed the broker's certificate."""

    sticky, retriable = True, False
    usual_cure = (
        "Name the authority that signed it: ssl.ca.location (PEM) or ssl.truststore.location."
    )


class CertificateExpiredError(TlsError):
    """The broker's certificate isn't valid any more, or not yet."""

    sticky, retriable = True, False
    usual_cure = "The broker needs a new certificate; or this machine's clock is wrong."


class HostNameMismatchError(TlsError):
    """The broker's certificate is for other names than the one that was dialled."""

    sticky, retriable = True, False
    usual_cure = (
        "Use a name that is in the certificate in bootstrap.servers (and in the broker's "
        "advertised.listeners), or have a certificate made for this one: names count as "
        "subjectAltName, a common name (CN) alone doesn't."
    )


class ClientCertificateRequiredError(TlsError):
    """The broker wants a certificate of the client's: it got none, or one that it refuses."""

    sticky, retriable = True, False
    usual_cure = (
        "Give this client a certificate that the broker trusts: ssl.keystore.location, or "
        "ssl.certificate.location with ssl.key.location."
    )


class TlsProtocolError(TlsError):
    """Client and broker have no protocol version or cipher in common."""

    sticky, retriable = True, False
    usual_cure = (
        "Compare ssl.enabled.protocols and ssl.cipher.suites with the broker's; a broker that "
        "only speaks TLS 1.0 or 1.1 has to be upgraded."
    )


class PlaintextPortError(TlsError):
    """This client speaks TLS, and the port doesn't."""

    sticky, retriable = True, False
    usual_cure = (
        "Use the broker's TLS port, or find out what answers in its place: anybody on the way can, "
        "and without TLS this client goes no further."
    )


class ProxyError(ExplainedError, ConnectionFailedError):
    """The proxy isn't there, or doesn't reach the broker; that may pass by itself."""

    usual_cure = (
        "Usually the broker is away, or the proxy doesn't know its name (socks5:// resolves names "
        "on this machine); or the proxy has trouble of its own."
    )


class ProxyAuthenticationError(ProxyError):
    """The proxy wants a user and a password, or others than those in `proxy.url`."""

    sticky, retriable = True, False
    usual_cure = "Give both in proxy.url: scheme://user:password@host:port (@ is written %40)."


class ProxyRefusedError(ProxyError):
    """The proxy won't make this connection, whoever asks."""

    sticky, retriable = True, False
    usual_cure = "Have the proxy's operator allow connections to the brokers' hosts and ports."


class NotAProxyError(ProxyError):
    """What listens where `proxy.url` leads isn't a proxy of that kind."""

    sticky, retriable = True, False
    usual_cure = "Look where proxy.url leads, and whether its scheme fits what listens there."


class AuthenticationError(ExplainedError):
    """The broker refused the credentials; every call that waits gets this error at once."""

    sticky = True  # R-CS-4: nothing changes by trying again


class CredentialsRefusedError(AuthenticationError):
    """Wrong password, unknown user, or a token that the broker doesn't accept.

    Brokers don't say which of the first two it was, so that nobody can look for users' names.
    """

    usual_cure = "Check sasl.username and sasl.password, and that sasl.mechanism is the user's."


class MechanismUnsupportedError(AuthenticationError):
    """The broker doesn't do this SASL mechanism; `mechanisms` are those that it does."""

    def __init__(
        self,
        what: str,
        address: Address | None = None,
        cure: str | None = None,
        mechanisms: Sequence[str] = (),
    ) -> None:
        self.mechanisms = tuple(mechanisms)
        if cure is None:
            known = ", ".join(self.mechanisms) or "none"
            cure = f"Set sasl.mechanism to one that the broker offers: {known}."
        super().__init__(what, address, cure)
        self.args = (what, address, cure, self.mechanisms)

    def at(self, address: Address) -> Self:
        """The same, with its address."""
        if self.address is not None:
            return self
        return type(self)(self.what, address, self.cure, self.mechanisms)


class SaslNotExpectedError(AuthenticationError):
    """This client wants to authenticate, and the port doesn't do that."""

    usual_cure = (
        "Use the broker's port that does SASL; leave SASL out of security.protocol only if the "
        "cluster has none on purpose."
    )


class SaslExpectedError(AuthenticationError):
    """The port wants SASL, and this client wasn't told to authenticate."""

    usual_cure = (
        "Set security.protocol to SASL_SSL (or SASL_PLAINTEXT), sasl.mechanism and the credentials."
    )


class TokenError(AuthenticationError):
    """No token to show: the function or server that gives them raised, hung, or gave nonsense."""

    usual_cure = "Look at the function or server that gives the tokens; the cause is chained."


class TokenExpiredError(TokenError):
    """The token's time is over already, as the token itself or the broker says."""

    usual_cure = "Let the function give a fresh token at each call; compare the machines' clocks."


class ServerNotTrustedError(AuthenticationError):
    """The broker couldn't prove that it knows the password, or broke the rules of the mechanism.

    Nothing that would help to guess the password was sent after that.
    """

    usual_cure = (
        "Something that isn't the cluster may be listening there: check the address, and use "
        "SASL_SSL so that the broker has to show a certificate."
    )


class ClientClosedError(KafkaError, RuntimeError):
    """The client was closed."""


class ClientForkedError(KafkaError, RuntimeError):
    """The client was made in the parent process; a forked child needs its own."""


class ClientBrokenError(KafkaError, RuntimeError):
    """An internal error escaped the engine; the cause is chained and the client can't go on."""

    fatal = True


class Attempt(NamedTuple):
    """One attempt that failed: where, what, when."""

    address: Address | None
    what: str
    error: str
    at: float

    def describe(self, now: float) -> str:
        """Say it in words, with its age."""
        place = f"{self.address}: " if self.address else ""
        said = printable(f"{self.what}: {self.error}")
        return f"{place}{said} ({max(0.0, now - self.at):.1f} s ago)"


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A call's time is up. `attempts` lists what was tried meanwhile."""

    retriable = True
    several_lines = True
    remaining: int | None = None
    """From `producer.flush()`: how many records have no outcome yet."""

    def leaving(self, remaining: int) -> Self:
        """Note how many records have no outcome yet."""
        self.remaining = remaining
        return self

    def __init__(self, message: str, attempts: Sequence[Attempt] = (), now: float = 0.0) -> None:
        self.attempts = tuple(attempts)  # R-RT-2: without them a timeout would hide why
        lines = [a.describe(now) for a in self.attempts]
        super().__init__("\n  ".join([message, *lines]))


class NoBrokerAvailableError(KafkaTimeoutError):
    """No known broker (and no bootstrap address) can be reached."""


class CommitFailedError(KafkaError):
    """The group refused a commit, because this consumer isn't the owner of the partitions any more.

    The cause is the broker's error. Somebody else reads on from the last commit.
    """


class ClusterIdMismatchError(KafkaError):
    """The bootstrap address leads to another cluster than before (KIP-899)."""

    fatal = True  # R-RB-5: the other cluster is never written to

    def __init__(self, expected: str, found: str | None, address: Address | None) -> None:
        self.expected, self.found, self.address = expected, found, address
        super().__init__(
            f"{address} belongs to cluster {found!r}, but this client works with cluster "
            f"{expected!r}. Nothing was sent to the other cluster. If the move is wanted, start "
            "a new client; else look where the bootstrap address leads."
        )


class AbortableTransactionError(KafkaError):
    """The transaction can't be committed: call `abort_transaction()`, then begin another one.

    KIP-1050's abortable errors. Where a broker's error is the reason, it is an instance of that
    one's class as well (`IllegalGenerationError` …); else the reason is its `__cause__`.
    """

    retriable = False
    requires_abort = True


class FatalTransactionError(KafkaError):
    """A transactional producer can't go on: close it; a new one's `init_transactions()` ends what
    it left open.

    It is an instance of the broker's error as well (`ProducerFencedError` …), as above.
    """

    retriable = False
    fatal = True


class TransactionAbortedError(KafkaError):
    """A record wasn't sent, because its transaction is aborted; the cause says why, if not by the
    application's own wish.
    """
