"""Store the state of one round of a metadata refresh, and of its request in flight.

R-MD-3: a round is one pass over all brokers that can be asked. In and out: plain state, which only
`metadata_updater` changes. Must not: decide anything.
"""

from __future__ import annotations

from odradek.common.errors import KafkaError
from odradek.common.types import Address
from odradek.network.connection import Connection
from odradek.network.flow import Completion
from odradek.protocol.message import Message
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.packed_metadata import PackedMetadataResponse


class PendingRequest:
    """A metadata request that was sent, and its response."""

    __slots__ = ("bootstrap", "connection", "partial", "reply", "sent_at", "serial", "topics")

    def __init__(
        self,
        connection: Connection,
        reply: Completion[Message],
        topics: list[str],
        partial: bool,
        bootstrap: bool,
        serial: int,
        sent_at: float,
    ) -> None:
        self.connection = connection
        self.reply = reply
        self.topics = topics
        self.partial = partial
        self.bootstrap = bootstrap
        self.serial = serial
        self.sent_at = sent_at

    @property
    def first(self) -> bool:
        """Whether the oldest unanswered request of its connection is a metadata request."""
        head = self.connection.in_flight.head
        return head is not None and isinstance(head.body, MetadataRequest)

    def is_on_its_way(self, now: float) -> bool:
        """Return whether its response may come soon: neither silence nor a slow write delays it."""
        connection = self.connection
        return not (self.reply.done or connection.suspect or connection.is_held(now))

    def read_on(self) -> MetadataResponse | None:
        """Decode the next part of a large response; return that, or None if no part was left.

        Raises MalformedMessageError if the response can't be decoded.
        """
        if not self.reply.done or self.reply.error is not None:
            return None
        answer = self.reply.result()
        if not isinstance(answer, PackedMetadataResponse) or answer.unread is None:
            return None
        answer.read_on()
        return answer

    def failed(self, error: KafkaError) -> None:
        """Replace the response by an error, because it can't be used."""
        self.reply = Completion()
        self.reply.fail(error)


class Round:
    """One pass over all brokers that can be asked for metadata."""

    __slots__ = ("asked", "dialled", "failed", "known", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.failed: dict[Address, None] = {}
        self.dialled: list[Connection] = []
        self.known: list[Address] | None = None
        """In a rebootstrap: known brokers to try that have no connection, in the snapshot's order.

        The bootstrap addresses and the connected brokers are tried in addition.
        """
        self.asked: PendingRequest | None = None

    def asks(self, request: PendingRequest) -> None:
        """Note that a request was sent and that the round waits for its response."""
        self.asked = request

    def asks_no_more(self) -> None:
        """Stop waiting for the request, because it has ended or another broker is to be asked."""
        self.asked = None

    def keep_to(self, known: list[Address]) -> None:
        """Limit the known brokers without connection to these until the round ends."""
        self.known = known
