"""Limit the memory that one batch or record may cost its reader (R-IN-4).

In: the limits of a consumer's options. Out: `Limits` for the decoders, and the errors that name the
option that a batch exceeds. A broker accepts small data that becomes huge: 1.6 KB of zstd were one
record with 8.4 million headers. So a batch's claims and results are compared with a limit before
memory is allocated. Must not know of partitions; the caller of the decoder adds the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.common.errors.records import RecordLimitError
from odradek.record.batch import BadBatchError

if TYPE_CHECKING:
    from odradek.common.config import Config  # only for the type: decoders don't need all options

DECOMPRESSED, RATIO = "max.decompressed.batch.bytes", "max.decompression.ratio"
RECORDS, HEADERS = "max.records.per.batch", "max.headers.per.record"
DECOMPRESSED_LIMIT = 256 << 20
"""Maximum size of a decompressed batch; brokers refuse batches of more than a few MB by default."""
NO_ROOM = -1
"""Result of a decompressor if the records need more memory than it was given."""
FREE_OF_RATIO = 32 << 20
"""Decompressed size that every batch may have, however small its compressed size is.

A few zeros can legally be compressed ten thousand times, and this much memory does no harm.
"""
UNLIMITED = (1 << 31) - 1
HEADER_COST = 16
"""Memory that a header of two bytes takes in columns, which counts towards its batch's decompressed
size: the positions where its name and its value end, and the same again while the columns grow."""


class Limits(NamedTuple):
    """Limits above which a batch is refused."""

    decompressed: int = DECOMPRESSED_LIMIT
    """Maximum decompressed size of a batch's records, in bytes."""
    ratio: int = UNLIMITED
    """Maximum ratio to the compressed size, if the decompressed size exceeds `FREE_OF_RATIO`."""
    records: int = UNLIMITED
    """Maximum number of records that a batch may claim to have."""
    headers: int = UNLIMITED
    """Maximum number of headers of a record, if headers are requested at all."""

    def room(self, packed: int) -> tuple[int, str]:
        """Return the limit for a batch of `packed` compressed bytes, and its option."""
        most = max(FREE_OF_RATIO, self.ratio * packed)
        return (self.decompressed, DECOMPRESSED) if most >= self.decompressed else (most, RATIO)

    def check_count(self, count: int) -> None:
        """Refuse a batch that claims too many records."""
        if count > self.records:
            raise BeyondLimitError(
                f"it has {count} records, but {RECORDS} is {self.records}", RECORDS, count
            )

    def too_many_headers(self, offset: int, count: int) -> BeyondLimitError:
        """Return the error for one record with too many headers."""
        return BeyondLimitError(
            f"the record at offset {offset} has {count} headers, but {HEADERS} is {self.headers}",
            HEADERS,
            count,
            offset,
        )

    def room_for_headers(self, unpacked: int) -> int:
        """Return how many headers fit into columns beside a batch's decompressed bytes."""
        return max(self.decompressed - unpacked, 0) // HEADER_COST

    def costly_headers(self, offset: int, count: int) -> BeyondLimitError:
        """Return the error for a batch whose headers exceed the limit at the record at `offset`."""
        return BeyondLimitError(
            f"up to the record at offset {offset}, the batch has {count} headers, which need "
            f"{HEADER_COST} bytes each, but {DECOMPRESSED} is {self.decompressed}",
            DECOMPRESSED,
            count * HEADER_COST,
            offset,
        )


NO_LIMITS = Limits()
"""For batches that this client wrote: only their decompressed size is limited."""


def limits_of(config: Config) -> Limits:
    """Return the limits in a consumer's options."""
    return Limits(config[DECOMPRESSED], config[RATIO], config[RECORDS], config[HEADERS])


class BeyondLimitError(BadBatchError):
    """A batch exceeds a limit; no other fault was found before."""

    def __init__(self, reason: str, option: str, found: int, offset: int | None = None) -> None:
        super().__init__(reason)
        self.option, self.found, self.offset = option, found, offset

    def of(self, base_offset: int) -> RecordLimitError:
        """Return the error as a decoder raises it."""
        return RecordLimitError(
            f"record batch at offset {base_offset}: {self}", self.option, self.found, self.offset
        )
