"""What a traced client tells of its work: sends, reads, commits.

In: nothing; `monitoring` has what makes spans of it, which clients don't know. Out: the protocol of
it. A client that nobody traces has None in its place, and pays for one look at that in a call.
Must not: know OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.common.types import TopicPartition
from odradek.record import RecordColumns

if TYPE_CHECKING:
    from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
    from odradek.clients.producer.delivery import RowsDelivery

T = TypeVar("T")
Y = TypeVar("Y")

Runs = list[tuple[TopicPartition, RecordColumns]]
"""What one call hands out: rows of one partition that follow each other, each time."""


class Traces(Protocol):
    """Who hears of one client's work. What is given a flow gives one that ends as that does."""

    def sending(
        self, send: Callable[..., Any], report: Callable[[Any, Any], object]
    ) -> Callable[..., Any]:
        """What stands in place of `send`; `report` has a record's outcome told."""

    def sent_rows(
        self, topic: str, data: object, headers: str | None, delivery: RowsDelivery
    ) -> Callable[[BaseException], object]:
        """A `send_arrow` or `send_many` begins, in its caller, and ends with its delivery; what is
        given is called with the error that has ended the call itself. Of `send_arrow`, `headers` is
        the name of their column; of `send_many`, `data` is the list of headers, or None.
        """

    def received(
        self, flow: Generator[Y, float, T], note_into: Callable[[Runs | None], None]
    ) -> Generator[Y, float, T]:
        """A call that hands out records, in its caller; `note_into` has noted what it takes."""

    def settled(
        self,
        flow: Generator[Y, float, T],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: str,
        *,
        operation: str = "commit",
        asked: bool = True,
    ) -> Generator[Y, float, T]:
        """A commit to a group: called where somebody asks for it, or in the engine's step if nobody
        has `asked`. What gives a dict of offsets has committed those.
        """

    def working(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """What workers do with a record inside of it; begun and ended by whoever does that."""

    def burying(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """The sending of its dead letter."""
