"""Errors about valid records that exceed one of the client's limits.

In: nothing. Out: exception classes, which name the option with the limit (R-IN-4). Their bases are
in `errors`. Must not: keep a record's bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.common.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from odradek.common.types import TopicPartition


class RecordLimitError(CorruptRecordError):
    """A record or its batch exceeds a limit of this client; `option` names the limit.

    Reading the record would need far more memory than it has bytes in the log. `found` is the value
    that exceeds the limit, as read from the data; for decompressed bytes, it is the limit itself.
    Raise the option to read the record, or `seek()` past it.
    """

    retriable = False

    def __init__(
        self, message: str, option: str = "", found: int = 0, record: int | None = None
    ) -> None:
        super().__init__(message, option, found, record)  # unchanged, for copies and pickles
        self.option, self.found = option, found
        self.record = record
        """Offset of the record; None if the whole batch exceeds the limit."""

    def __str__(self) -> str:
        return str(self.args[0])


class FetchTooLargeError(RecordTooLargeError):
    """A partition's next batch is larger than this client accepts in one response (KIP-74).

    Brokers always send the first batch completely. Raise `option`, or `seek()` past the batch.
    """

    option = "fetch.max.bytes"

    def __init__(self, partition: TopicPartition, offset: int, size: int, limit: int) -> None:
        super().__init__(partition, offset, size, limit)  # unchanged, for copies and pickles
        self.partition, self.offset, self.size, self.limit = partition, offset, size, limit

    def __str__(self) -> str:
        return (
            f"{self.partition}: the response to a fetch at offset {self.offset} has {self.size} "
            "bytes, because of a large record batch, but this client accepts at most "
            f"{self.limit}. Set {self.option} to {self.size}, or seek() past the batch."
        )


class SchemaNotAtHandError(KafkaError):
    """Internal error: a schema must be fetched first, which mustn't block the event loop.

    The client calls `fetch` in a thread, then tries again; users never see this error.
    """

    blames_record = False

    def __init__(self, fetch: Callable[[], object]) -> None:
        super().__init__("the schema has to be fetched first")
        self.fetch = fetch
