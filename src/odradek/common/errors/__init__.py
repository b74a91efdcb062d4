"""The exception classes of Odradek, and the properties that decide how the client reacts to them.

In: nothing. Out: exception classes; `errors.kafka` (generated from Kafka's own table) adds one
class per broker error code. Must not: format anything that could contain a secret.

R-RT-3: `retriable`, `refresh_metadata` and `fatal` are attributes of classes; code that raises an
error never sets them. `str()` of each error is printable, even if a broker chose the text (R-IN-3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from odradek.common.printable import LONGEST, printable
from odradek.common.types import Address, TopicPartition


class KafkaError(Exception):
    """Base class of all errors that Odradek raises."""

    code: ClassVar[int | None] = None
    """Kafka's error code; None if the error isn't a broker's response."""
    retriable: ClassVar[bool] = False
    """Whether the request may succeed later if it is repeated without changes."""
    refresh_metadata: ClassVar[bool] = False
    """Whether the client's metadata is out of date."""
    fatal: ClassVar[bool] = False
    """Whether the client is unusable: every later call raises the same error."""
    requires_abort: ClassVar[bool] = False
    """Whether the transaction has to be aborted; after `abort_transaction()` the producer can
    continue.
    """
    sticky: ClassVar[bool] = False
    """Whether the server at this address will keep rejecting this client until its configuration
    changes. Each waiting call raises the error at once instead of waiting for its timeout.
    """
    several_lines: ClassVar[bool] = False
    """Whether the text has several lines, which contain only printable characters."""
    results: Mapping[Any, Any] = MappingProxyType({})
    """Results of the items that succeeded, by item, if a call had several items."""
    errors: Mapping[Any, KafkaError] = MappingProxyType({})
    """Errors of the items that failed, by item, if a call had several; the first is raised."""

    def beside(self, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> Self:
        """Return a copy of this error with the results and errors of all items of a call."""
        made = copy(self)
        made.__cause__ = self.__cause__
        made.results, made.errors = results, errors
        count = len(results) + len(errors)
        if count > 1:
            made.add_note(
                f"{len(errors)} of {count} items failed: this error's `errors` has the error of "
                "each, its `results` the result of each other item."
            )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Let `copy` and `pickle` restore the error without its `__init__` (see `_restored`)."""
        return _restored, (type(self), *self.args), dict(self.__dict__)

    def __str__(self) -> str:
        return printable(super().__str__(), limit=self._longest, lines=self.several_lines)

    @property
    def _longest(self) -> int | None:
        return None if self.several_lines else LONGEST


def _restored(cls: type[KafkaError], *args: Any) -> KafkaError:
    """Create an error from its `args` without its `__init__`, which may need other arguments."""
    made = cls.__new__(cls, *args)
    made.args = args
    return made


class ExplainedError(KafkaError):
    """Base class of errors that say where they happened and what to do.

    `address` is None while it isn't known; `at()` returns a copy of the error with an address.
    """

    usual_cure: ClassVar[str] = ""

    def __init__(self, what: str, address: Address | None = None, cure: str | None = None) -> None:
        super().__init__(what, address, cure)  # arguments as given, for copies and pickles
        self.what, self.address = what, address
        self.cure = self.usual_cure if cure is None else cure

    def at(self, address: Address) -> Self:
        """Return a copy of the error with an address, or the error itself if it has an address."""
        if self.address is not None:
            return self
        made = type(self)(self.what, address, self.cure)
        made.__cause__ = self.__cause__
        return made

    def saying(self, known: str) -> Self:
        """Return a copy of the error, whose text begins with a description of its subject."""
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
    """Error code in a broker's response; `errors.kafka` has a subclass for each code."""

    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    cure: str | None = None
    """The remedy, which is also part of the text; None if the client doesn't know a remedy."""

    def needing(self, operation: str, name: str = "", kind: str = "", on: str = "") -> Self:
        """Return this error; authorization errors override this to add the missing permission."""
        return self

    def of(self, user: str | None) -> Self:
        """Return this error; authorization errors override this to add the user."""
        return self


class AuthorizationError(BrokerError):
    """The broker refused a request because the user lacks a permission.

    Only this request fails; permitted requests still work. `operation` and `resource` say what an
    ACL has to allow.
    """

    operation: str | None = None
    """Kafka's name of the missing permission, for example `WRITE`; None if it isn't known."""
    resource: str | None = None
    """Resource of the missing permission, for example "topic 'orders'"."""
    user: str | None = None
    """User that lacks the permission, if this client authenticates with a user name (PLAIN, SCRAM).
    """

    def of(self, user: str | None) -> Self:
        """Add the user that lacks the permission."""
        self.user = user
        return self

    def needing(self, operation: str, name: str = "", kind: str = "", on: str = "") -> Self:
        """Add the missing permission and its resource, unless they are already set.

        If `kind` ("topic" …) is set, errors about another kind of resource are left unchanged. `on`
        replaces the description of the resource.
        """
        refused = self.name.removesuffix("_AUTHORIZATION_FAILED").replace("_", " ").lower()
        if self.operation is None and kind in ("", refused):
            self.operation = operation
            self.resource = on or (f"{refused} {name!r}" if name else f"the {refused}")
            self.cure = f"Add an ACL that allows {operation} on {self.resource}."
        return self

    def __str__(self) -> str:
        said = super().__str__()
        if self.operation is None:
            return said
        who = "This client's user" if self.user is None else f"User {self.user!r}"
        cure = f"{who} needs {self.operation} on {self.resource}: add an ACL that allows it."
        if self.operation in ("READ", "WRITE"):
            cure = f"{cure[:-1]} ({self.operation} implies DESCRIBE)."
        # If this error repeats another error, for example for a record, its text contains the
        # remedy already.
        return said if cure in said else f"{said.rstrip('.')}. {cure}"


class UnknownErrorCodeError(BrokerError):
    """A broker returned an error code that this release of Odradek doesn't know."""

    name = "UNKNOWN_ERROR_CODE"

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(f"unknown broker error code {number}. {message}".rstrip())
        self.number = number


class ConfigurationError(KafkaError, ValueError):
    """The name or value of an option is invalid; the text says which, and what is allowed."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional package isn't installed; the text contains the pip command."""


class ArgumentError(ConfigurationError, TypeError):
    """An argument of a call has a wrong type.

    The text names the argument, its value and the expected type. It is also a `TypeError`. The call
    had no effect: no record was accepted, no request was sent.
    """


class IllegalStateError(KafkaError, RuntimeError):
    """The call isn't allowed in the object's current state (`poll` without `assign`)."""


class WakeupError(KafkaError):
    """`consumer.wakeup()` interrupted a call that returns records.

    No record is lost: the next call continues at the same position.
    """


class SystemLimitError(KafkaError, OSError):
    """The operating system refused a resource that the client needs, such as a file descriptor.

    `errno` has the reason. The call had no effect, and can be repeated once the resource is
    available.
    """

    retriable = True


@contextmanager
def first_use() -> Iterator[None]:
    """Raise `SystemLimitError` if a module imported in this context can't be read (R-TI-2)."""
    try:
        yield
    except OSError as error:
        if isinstance(error, KafkaError):
            raise
        text = f"a module that is needed now can't be imported: {error.strerror or error}"
        raise SystemLimitError(error.errno, text) from error


class UnsupportedFeatureError(KafkaError):
    """The feature isn't supported in this release of Odradek."""


class UnsupportedOptionError(ConfigurationError, UnsupportedFeatureError):
    """The option is one of another client and isn't supported; the text says what replaces it."""


class MalformedMessageError(KafkaError):
    """A peer sent data that violates the protocol (truncated, negative or too large lengths …)."""


class NotKafkaError(ExplainedError, MalformedMessageError):
    """The server isn't a Kafka broker with this security protocol (HTTP, TLS alert …)."""

    sticky = True
    usual_cure = "Check host and port in bootstrap.servers."


class TlsPortError(NotKafkaError):
    """The client connected without TLS to a port that expects TLS."""

    usual_cure = "Set security.protocol to SSL (or SASL_SSL), or use the broker's plaintext port."


class UnsupportedServerError(NotKafkaError):
    """The server is a Kafka controller, or a broker that is older than Kafka 0.11."""


class CorruptRecordError(KafkaError):
    """A record batch has a wrong checksum or inconsistent lengths.

    The text contains the offset and the position. Errors of a consumer have `partition` and
    `next_offset`: to continue after the batch, call `seek(error.partition, error.next_offset)`.
    `next_offset` is None if the end of the batch can't be determined. `on.corrupt.record=skip`
    skips such batches without an error.
    """

    retriable = True
    partition: TopicPartition | None = None
    offset: int | None = None
    """Offset at which reading stopped: of the corrupt record, or the first one requested."""
    next_offset: int | None = None


class RecordTooLargeError(KafkaError):
    """A record is larger than `max.request.size`, `buffer.memory` or the topic's limit."""


class PartitionerError(KafkaError, ValueError):
    """The `partitioner` function raised an error, or returned a partition that doesn't exist.

    An error that the function raised is the cause. The record, or the Arrow batch, was not
    written.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row
        """Row in the data of `send_arrow`; None for a record of `send`."""


class BufferExhaustedError(KafkaError):
    """`buffer.memory` stayed full for `max.block.ms`."""

    retriable = True


class DisconnectedError(KafkaError):
    """The connection was lost before the response arrived.

    The broker may have executed the request.
    """

    retriable = True
    refresh_metadata = True


class AnswerTooLargeError(MalformedMessageError, DisconnectedError):
    """A response is larger than the client's limit; the connection is closed."""

    retriable = False

    def __init__(self, message: str, size: int = 0) -> None:
        super().__init__(message, size)
        self.size = size

    def __str__(self) -> str:
        return str(self.args[0])


class NoMemoryError(DisconnectedError):
    """The process has no memory for a response, so the connection was closed."""


class ResponseTimeoutError(DisconnectedError):
    """No complete response arrived within `request.timeout.ms`, only `received` bytes of it."""

    def __init__(self, message: str, received: int = 0) -> None:
        super().__init__(message, received)
        self.received = received

    def __str__(self) -> str:
        return str(self.args[0])


class ConnectionFailedError(KafkaError):
    """A connection attempt failed."""

    retriable = True


class DnsError(ConnectionFailedError):
    """A host name can't be resolved."""


class ConnectionRefusedByPeerError(ConnectionFailedError):
    """No server listens at the address."""


class ConnectionSetupTimeoutError(ConnectionFailedError):
    """TCP, TLS and ApiVersions took longer than the connection setup timeout (KIP-601)."""


class TlsError(ExplainedError, ConnectionFailedError):
    """The TLS handshake failed."""


class CertificateUntrustedError(TlsError):
    """The broker's certificate isn't signed by an authority that this client trusts."""

    sticky, retriable = True, False
    usual_cure = (
        "Set the certificate of the authority that signed it: ssl.ca.location (PEM) or "
        "ssl.truststore.location."
    )


class CertificateExpiredError(TlsError):
    """The broker's certificate has expired or isn't valid yet."""

    sticky, retriable = True, False
    usual_cure = "Renew the broker's certificate, or correct this machine's clock."


class HostNameMismatchError(TlsError):
    """The broker's certificate is for other host names than the client connected to."""

    sticky, retriable = True, False
    usual_cure = (
        "Use a name from the certificate in bootstrap.servers (and in the broker's "
        "advertised.listeners), or create a certificate with this name as subjectAltName; a "
        "common name (CN) isn't enough."
    )


class ClientCertificateRequiredError(TlsError):
    """The broker requires a client certificate, and received none or one that it doesn't trust."""

    sticky, retriable = True, False
    usual_cure = (
        "Set a client certificate that the broker trusts: ssl.keystore.location, or "
        "ssl.certificate.location with ssl.key.location."
    )


class TlsProtocolError(TlsError):
    """Client and broker have no TLS version or cipher suite in common."""

    sticky, retriable = True, False
    usual_cure = (
        "Compare ssl.enabled.protocols and ssl.cipher.suites with the broker's settings; upgrade "
        "brokers that support only TLS 1.0 or 1.1."
    )


class PlaintextPortError(TlsError):
    """The client connected with TLS to a port without TLS."""

    sticky, retriable = True, False
    usual_cure = (
        "Use the broker's TLS port. If this should be one, check what answers there: without "
        "TLS, any machine on the network path can, so the client stops here."
    )


class ProxyError(ExplainedError, ConnectionFailedError):
    """The proxy can't be reached, or can't reach the broker; the client retries."""

    usual_cure = (
        "The broker may be down, or the proxy can't resolve its name (socks5:// resolves names "
        "on this machine instead), or the proxy itself has failed."
    )


class ProxyAuthenticationError(ProxyError):
    """The proxy requires a user and password, or rejected the ones in `proxy.url`."""

    sticky, retriable = True, False
    usual_cure = "Set both in proxy.url: scheme://user:password@host:port (write @ as %40)."


class ProxyRefusedError(ProxyError):
    """The proxy doesn't allow this connection."""

    sticky, retriable = True, False
    usual_cure = "Ask the proxy's operator to allow connections to the brokers' hosts and ports."


class NotAProxyError(ProxyError):
    """The server at `proxy.url` isn't a proxy of this kind."""

    sticky, retriable = True, False
    usual_cure = "Check host, port and scheme of proxy.url."


class AuthenticationError(ExplainedError):
    """The broker rejected the credentials; each waiting call raises this error at once."""

    sticky = True  # R-CS-4: a retry wouldn't help


class CredentialsRefusedError(AuthenticationError):
    """The password is wrong, the user is unknown, or the broker rejected the token.

    Brokers don't distinguish a wrong password from an unknown user, lest attackers find out user
    names.
    """

    usual_cure = (
        "Check sasl.username, sasl.password, and whether sasl.mechanism is the one configured "
        "for this user."
    )


class MechanismUnsupportedError(AuthenticationError):
    """The broker doesn't support this SASL mechanism; `mechanisms` contains the supported ones."""

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
            cure = f"Set sasl.mechanism to one that the broker supports: {known}."
        super().__init__(what, address, cure)
        self.args = (what, address, cure, self.mechanisms)

    def at(self, address: Address) -> Self:
        """Return a copy of the error with an address."""
        if self.address is not None:
            return self
        return type(self)(self.what, address, self.cure, self.mechanisms)


class SaslNotExpectedError(AuthenticationError):
    """The client tried to authenticate on a port without SASL."""

    usual_cure = (
        "Use the broker's SASL port, or remove SASL from security.protocol if the cluster "
        "intentionally works without authentication."
    )


class SaslExpectedError(AuthenticationError):
    """The port requires SASL, but this client isn't configured to authenticate."""

    usual_cure = (
        "Set security.protocol to SASL_SSL (or SASL_PLAINTEXT), sasl.mechanism and the credentials."
    )


class TokenError(AuthenticationError):
    """The token function or token server failed, timed out, or returned an invalid token."""

    usual_cure = "Check the token function or token server; its error is the cause of this one."


class TokenExpiredError(TokenError):
    """The token has expired, according to the token itself or to the broker."""

    usual_cure = (
        "Return a new token from each call of the token function, and compare the clocks of both "
        "machines."
    )


class ServerNotTrustedError(AuthenticationError):
    """The broker couldn't prove that it knows the password, or violated the SASL mechanism.

    The client closes the connection without sending further data.
    """

    usual_cure = (
        "The server may not be a broker of your cluster: check the address, and use SASL_SSL so "
        "that the broker has to present a certificate."
    )


class ClientClosedError(KafkaError, RuntimeError):
    """The client is closed."""


class ClientForkedError(KafkaError, RuntimeError):
    """The client was created in the parent process; create a new one in each forked child."""


class ClientBrokenError(KafkaError, RuntimeError):
    """An internal error stopped the client (the cause); it can't be used any more."""

    fatal = True


class Attempt(NamedTuple):
    """One failed attempt to connect or send a request: address, operation, error and time."""

    address: Address | None
    what: str
    error: str
    at: float

    def describe(self, now: float) -> str:
        """Return a text that describes the attempt and says how long ago it failed."""
        place = f"{self.address}: " if self.address else ""
        said = printable(f"{self.what}: {self.error}")
        return f"{place}{said} ({max(0.0, now - self.at):.1f} s ago)"


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A call timed out; `attempts` lists the failed attempts."""

    retriable = True
    several_lines = True
    remaining: int | None = None
    """Number of records without a result yet, if `producer.flush()` timed out."""

    def leaving(self, remaining: int) -> Self:
        """Set the number of records without a result, and return this error."""
        self.remaining = remaining
        return self

    def __init__(self, message: str, attempts: Sequence[Attempt] = (), now: float = 0.0) -> None:
        self.attempts = tuple(attempts)  # R-RT-2: they show why the call timed out
        lines = [a.describe(now) for a in self.attempts]
        super().__init__("\n  ".join([message, *lines]))


class NoBrokerAvailableError(KafkaTimeoutError):
    """No broker can be reached, neither a known broker nor a bootstrap address.

    A client that has never reached a broker raises this error after `bootstrap.timeout.ms`.
    """

    reached_before: bool = True
    """False if the client has never reached a broker: its address may be wrong."""


class CommitFailedError(KafkaError):
    """The group rejected a commit, because this consumer no longer owns the partitions.

    The cause is the broker's error. The new owners continue from the last commit.
    """


class ClusterIdMismatchError(KafkaError):
    """The bootstrap address belongs to a different cluster than before (KIP-899)."""

    fatal = True  # R-RB-5: don't write to another cluster

    def __init__(self, expected: str, found: str | None, address: Address | None) -> None:
        self.expected, self.found, self.address = expected, found, address
        super().__init__(
            f"{address} belongs to cluster {found!r}, but this client uses cluster {expected!r}. "
            "Nothing was sent to the other cluster. If the cluster was replaced on purpose, "
            "create a new client; otherwise check the bootstrap address."
        )


class AbortableTransactionError(KafkaError):
    """The transaction can't be committed: call `abort_transaction()`, then begin a new one.

    KIP-1050 calls these errors abortable. If a broker's error is the reason, this error is also an
    instance of its class (`IllegalGenerationError` …).
    """

    refusal: KafkaError | None = None
    """The original error, if its class is retriable; here, a retry doesn't help."""
    retriable = False
    requires_abort = True


class FatalTransactionError(KafkaError):
    """A transactional producer can't continue: close it and create another one.

    `init_transactions()` of the new producer aborts the open transaction. If a broker's error is
    the reason, this error is also an instance of its class (`ProducerFencedError` …).
    """

    retriable = False
    fatal = True


class TransactionAbortedError(KafkaError):
    """A record wasn't sent, because its transaction was aborted.

    `__cause__` is the reason for the abort, unless the application aborted the transaction.
    """
