"""Hold the state of one round of a refresh, and of the request in flight.

R-MD-3: a round is one pass over all candidates. In and out: plain state with one owner,
`metadata_updater`. Must not: decide anything.
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
    """A metadata request that was sent and not answered yet."""

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
        """Whether its connection waits for no other response before, except for metadata."""
        head = self.connection.in_flight.head
        return head is not None and isinstance(head.body, MetadataRequest)

    def is_on_its_way(self, now: float) -> bool:
        """Return whether its response only takes long: the connection isn't silent or held."""
        connection = self.connection
        return not (self.reply.done or connection.suspect or connection.is_held(now))

    def read_on(self) -> MetadataResponse | None:
        """Decode the next part of a response; return the response once it is complete, else None.

        Raises MalformedMessageError if it can't be decoded.
        """
        if not self.reply.done or self.reply.error is not None:
            return None
        answer = self.reply.result()
        if not isinstance(answer, PackedMetadataResponse) or answer.unread is None:
            return None
        answer.read_on()
        return answer

    def failed(self, error: KafkaError) -> None:
        """Set the error because of which the response can't be used."""
        self.reply = Completion()
        self.reply.fail(error)


class Round:
    """One pass over all candidates."""

    __slots__ = ("asked", "dialled", "failed", "known", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.failed: dict[Address, None] = {}
        self.dialled: list[Connection] = []
        self.known: list[Address] | None = None
        """During a rebootstrap: known brokers that take part, in the snapshot's order.

        The bootstrap addresses and the connected brokers take part as well.
        """
        self.asked: PendingRequest | None = None

    def asks(self, request: PendingRequest) -> None:
        """Note that a request was sent and is waited for."""
        self.asked = request

    def asks_no_more(self) -> None:
        """Stop waiting for the request: it has ended, or another broker is asked now."""
        self.asked = None

    def keep_to(self, known: list[Address]) -> None:
        """Let these known brokers take part until the round ends."""
        self.known = known
