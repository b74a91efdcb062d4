"""The errors a user can meet, and the three properties that decide what the client does with them.

In: nothing. Out: exception classes; `kafka_errors` (generated from Kafka's own table) adds one
class per broker error code. Must not: format anything that could hold a secret.

R-RT-3: `retriable`, `refresh_metadata` and `fatal` are properties of the class, never of a
call site.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from odradek.common.types import Address


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


class BrokerError(KafkaError):
    """A broker answered with an error code; subclasses stand in `kafka_errors`."""

    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"


class UnknownErrorCodeError(BrokerError):
    """A broker answered with a code that this release doesn't know (R-RT-3: never a crash)."""

    name = "UNKNOWN_ERROR_CODE"

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(f"broker error {number}, unknown to this release. {message}".rstrip())
        self.number = number


class ConfigurationError(KafkaError, ValueError):
    """A configuration name or value can't be used; the text says which and what is allowed."""


class IllegalStateError(KafkaError, RuntimeError):
    """The call doesn't fit what was done before (for example `poll` without `assign`)."""


class UnsupportedFeatureError(KafkaError):
    """Asked for something that this release of Odradek doesn't do yet."""


class MalformedMessageError(KafkaError):
    """Bytes from a peer don't follow the protocol (cut off, negative or huge lengths …)."""


class NotKafkaError(MalformedMessageError):
    """The peer isn't a Kafka broker with this security protocol (HTTP, TLS alert …)."""


class CorruptRecordError(KafkaError):
    """A record batch fails its checksum or its own lengths; `str()` names offset and place."""

    retriable = True


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
    """`buffer.memory` stayed full for `max.block.ms`."""

    retriable = True


class DisconnectedError(KafkaError):
    """The connection went away before the answer came; the request may have been carried out."""

    retriable = True
    refresh_metadata = True


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


class TlsError(ConnectionFailedError):
    """The TLS handshake failed."""


class AuthenticationError(KafkaError):
    """The broker refused the credentials (R-CS-4: sticky, given at once to every waiting call)."""


class ClientClosedError(KafkaError, RuntimeError):
    """The client was closed."""


class ClientForkedError(KafkaError, RuntimeError):
    """The client was made in the parent process; a forked child needs its own."""


class ClientBrokenError(KafkaError, RuntimeError):
    """An internal error escaped the engine; the cause is chained and the client can't go on."""

    fatal = True


class Attempt(NamedTuple):
    """One attempt that failed: where, what, when (R-RT-2)."""

    address: Address | None
    what: str
    error: str
    at: float

    def describe(self, now: float) -> str:
        """Say it in words, with its age."""
        place = f"{self.address}: " if self.address else ""
        return f"{place}{self.what}: {self.error} ({max(0.0, now - self.at):.1f} s ago)"


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A call's time is up. `attempts` lists what was tried meanwhile (R-RT-2)."""

    retriable = True

    def __init__(self, message: str, attempts: Sequence[Attempt] = (), now: float = 0.0) -> None:
        self.attempts = tuple(attempts)
        lines = [a.describe(now) for a in self.attempts]
        super().__init__("\n  ".join([message, *lines]))


class NoBrokerAvailableError(KafkaTimeoutError):
    """No known broker (and no bootstrap address) can be reached."""


class CommitFailedError(KafkaError):
    """The group refused a commit, because this consumer isn't the owner of the partitions any more.

    The cause is the broker's error. Somebody else reads on from the last commit.
    """


class ClusterIdMismatchError(KafkaError):
    """The bootstrap address leads to another cluster than before (KIP-899, R-RB-5)."""

    fatal = True

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
