"""Errors about records that are sound and cost more than this client wants to spend on them.

In: nothing. Out: exception classes, which say the option that decides it (R-IN-4). Their bases are
in `errors`. Must not: hold a record's bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.common.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from odradek.common.types import TopicPartition


class RecordLimitError(CorruptRecordError):
    """A record or its batch is beyond a limit of this client's: `option` says which.

    It would cost far more memory than it has bytes. `found` is what it has or claims of it, for
    decompressed bytes the limit that it passed. Raise the option to read it, or go on after it.
    """

    retriable = False

    def __init__(
        self, message: str, option: str = "", found: int = 0, record: int | None = None
    ) -> None:
        super().__init__(message, option, found, record)  # as given, for copies and pickles
        self.option, self.found = option, found
        self.record = record
        """The offset of the record, where it is one record and not its whole batch."""

    def __str__(self) -> str:
        return str(self.args[0])


class FetchTooLargeError(RecordTooLargeError):
    """A partition's next batch is larger than this client takes in one answer (KIP-74).

    Brokers send a first batch whole. Raise `option`, or `seek()` past it.
    """

    option = "fetch.max.bytes"

    def __init__(self, partition: TopicPartition, offset: int, size: int, limit: int) -> None:
        super().__init__(partition, offset, size, limit)  # as given, for copies and pickles
        self.partition, self.offset, self.size, self.limit = partition, offset, size, limit

    def __str__(self) -> str:
        return (
            f"{self.partition}: the answer to a fetch at offset {self.offset} has {self.size} "
            f"bytes, and this client takes {self.limit}: one record batch is that large. Set "
            f"{self.option} to {self.size}, from which that limit follows, or seek() past it."
        )


class SchemaNotAtHandError(KafkaError):
    """A schema has to be fetched first, where nobody may wait: an event loop calls `fetch` in a
    thread and tries again. No user meets it.
    """

    def __init__(self, fetch: Callable[[], object]) -> None:
        super().__init__("a schema isn't at hand")
        self.fetch = fetch
