"""Define the callbacks of a traced client: sends, reads, commits.

Out: a protocol, which `monitoring` implements to create spans; clients don't know spans. An
untraced client has None instead, which costs one check per call. Must not: know OpenTelemetry.
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
"""Rows that one call returns: consecutive rows of one partition in each entry."""


class Traces(Protocol):
    """Observer of one client's work; wrapped calls return and raise the same as before."""

    def sending(
        self, send: Callable[..., Any], report: Callable[[Any, Any], object]
    ) -> Callable[..., Any]:
        """Return a replacement for `send`; `report` is called with a record's outcome."""

    def sent_rows(
        self, topic: str, data: object, headers: str | None, delivery: RowsDelivery
    ) -> Callable[[BaseException], object]:
        """Note that `send_arrow` or `send_many` was called; `delivery` is completed at the end.

        The returned function is called if the call itself raises an error. For `send_arrow`,
        `headers` is the name of the headers' column; for `send_many`, `data` is the list of
        headers, or None.
        """

    def received(
        self, flow: Generator[Y, float, T], note_into: Callable[[Runs | None], None]
    ) -> Generator[Y, float, T]:
        """Wrap a call that returns records, in its caller; `note_into` collects the records."""

    def settled(
        self,
        flow: Generator[Y, float, T],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: str,
        *,
        operation: str = "commit",
        asked: bool = True,
    ) -> Generator[Y, float, T]:
        """Wrap a commit to a group: in the call that `asked` for it, or in the engine's step.

        If the wrapped call returns a dict of offsets, it has committed these instead of `offsets`.
        """

    def working(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """Return the context in which workers process a record; they enter and leave it."""

    def burying(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """Return the context in which a record's dead letter is sent."""
