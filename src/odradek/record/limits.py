"""Limit the memory that reading one batch or record may take (R-IN-4).

In: the limits of a consumer's options. Out: `Limits` for the decoders, and the errors that name the
option that a batch exceeds. Brokers accept small batches that become huge: 1.6 KB of zstd contained
one record with 8.4 million headers. So sizes, as claimed and as decoded, are compared with a limit
before memory is allocated. Must not: know partitions; the decoder's caller adds the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.common.errors.records import RecordLimitError
from odradek.record.batch import BadBatchError

if TYPE_CHECKING:
    from odradek.common.config import Config  # only for type checkers

DECOMPRESSED, RATIO = "max.decompressed.batch.bytes", "max.decompression.ratio"
RECORDS, HEADERS = "max.records.per.batch", "max.headers.per.record"
DECOMPRESSED_LIMIT = 256 << 20
"""Maximum size of a decompressed batch, in bytes; by default, brokers refuse more than 1 MB."""
NO_ROOM = -1
"""Result of a decompressor if the given memory is too small for the records."""
FREE_OF_RATIO = 32 << 20
"""Decompressed size, in bytes, up to which a batch's compression ratio isn't limited.

The ratio of a batch with many zeros may rightly be ten thousand, and this size does no harm.
"""
UNLIMITED = (1 << 31) - 1
HEADER_COST = 16
"""Bytes of memory that a header of two bytes takes in columns, and that count as part of its
batch's decompressed size: two positions of four bytes, doubled as growing columns are copied."""


class Limits(NamedTuple):
    """Limits beyond which a batch is refused."""

    decompressed: int = DECOMPRESSED_LIMIT
    """Maximum decompressed size of a batch's records, in bytes."""
    ratio: int = UNLIMITED
    """Maximum compression ratio of a batch with a decompressed size above `FREE_OF_RATIO`."""
    records: int = UNLIMITED
    """Maximum number of records that a batch may claim to have."""
    headers: int = UNLIMITED
    """Maximum number of headers of a record, if headers are requested."""

    def room(self, packed: int) -> tuple[int, str]:
        """Return the maximum decompressed size of `packed` bytes, and the option that sets it."""
        most = max(FREE_OF_RATIO, self.ratio * packed)
        return (self.decompressed, DECOMPRESSED) if most >= self.decompressed else (most, RATIO)

    def check_count(self, count: int) -> None:
        """Raise for a batch that claims to contain too many records."""
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
        """Return how many headers a batch with this decompressed size may have in columns."""
        return max(self.decompressed - unpacked, 0) // HEADER_COST

    def costly_headers(self, offset: int, count: int) -> BeyondLimitError:
        """Return the error for a batch whose headers exceed the limit in the record at `offset`."""
        return BeyondLimitError(
            f"up to the record at offset {offset}, the batch has {count} headers, which need "
            f"{HEADER_COST} bytes each, but {DECOMPRESSED} is {self.decompressed}",
            DECOMPRESSED,
            count * HEADER_COST,
            offset,
        )


NO_LIMITS = Limits()
"""Limits for batches that this client wrote: only their decompressed size is limited."""


def limits_of(config: Config) -> Limits:
    """Return the limits that a consumer's options set."""
    return Limits(config[DECOMPRESSED], config[RATIO], config[RECORDS], config[HEADERS])


class BeyondLimitError(BadBatchError):
    """Internal error: a batch, which seems valid, exceeds a limit."""

    def __init__(self, reason: str, option: str, found: int, offset: int | None = None) -> None:
        super().__init__(reason)
        self.option, self.found, self.offset = option, found, offset

    def of(self, base_offset: int) -> RecordLimitError:
        """Return the error for users, which the decoder raises."""
        return RecordLimitError(
            f"record batch at offset {base_offset}: {self}", self.option, self.found, self.offset
        )
