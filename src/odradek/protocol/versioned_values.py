"""List values that brokers only understand from some version of an API on.

The module also lists which API versions a feature needs. In: a request and its version. Out: the
list's entry that the request needs, if any. A field that a version lacks can't be written; but a
value can be written in any version, and an older broker misreads it: to Kafka before 3.0, the
timestamp that means MAX_TIMESTAMP is any early time. Must not: import messages, of which most
clients use few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

USER = 7  # number of a resource type
ZSTD = 4
_ATTRIBUTES_AT = 22  # position of the low byte of a batch's attributes
_CODEC = 7  # bits with the codec's number


class VersionedValue:
    """A value, and the first version of its API and of Kafka in which brokers understand it."""

    __slots__ = ("instead", "kafka", "used", "version", "what")

    def __init__(
        self, what: str, version: int, kafka: str, instead: str, used: Callable[[Any], bool]
    ) -> None:
        self.what, self.version, self.kafka = what, version, kafka
        self.instead = instead
        """Advice for users who can't upgrade their brokers."""
        self.used = used
        """Return whether a request contains the value."""


def _time(spec: int) -> Callable[[Any], bool]:
    return lambda body: any(p.timestamp == spec for t in body.topics for p in t.partitions)


def _zstd(body: Any) -> bool:
    batches = [p.records for t in body.topic_data for p in t.partition_data if p.records]
    return any(batch[_ATTRIBUTES_AT] & _CODEC == ZSTD for batch in batches)


def _defaults(body: Any) -> bool:
    return any(
        not t.assignments and -1 in (t.num_partitions, t.replication_factor) for t in body.topics
    )


_OFFSETS = "ask for EARLIEST, LATEST or a time"
_ACLS = "leave out ACLs of users, which only delegation tokens need"
ZSTD_RETURNED = VersionedValue(
    *("a batch that is compressed with zstd", 10, "2.1"),
    *("write the topic with another compression.type", lambda _: False),
)
VALUES: dict[int, tuple[VersionedValue, ...]] = {
    0: (
        VersionedValue(
            *("a batch that is compressed with zstd", 7, "2.1"),
            *("set compression.type to none, gzip, snappy or lz4", _zstd),
        ),
    ),
    2: (
        VersionedValue("MAX_TIMESTAMP", 7, "3.0", _OFFSETS, _time(-3)),
        VersionedValue("EARLIEST_LOCAL", 8, "3.5", _OFFSETS, _time(-4)),
        VersionedValue("LATEST_TIERED", 9, "3.9", _OFFSETS, _time(-5)),
        VersionedValue("EARLIEST_PENDING_UPLOAD", 11, "4.2", _OFFSETS, _time(-6)),
    ),
    3: (
        VersionedValue(
            *("a topic id", 12, "3.1", "describe the topic by its name"),
            lambda body: any(any(t.topic_id) for t in body.topics or ()),
        ),
    ),
    19: (
        VersionedValue(
            *("the brokers' default for partitions or replication", 4, "2.4"),
            *("set num_partitions and replication_factor", _defaults),
        ),
    ),
    29: (
        VersionedValue(
            *("the resource type USER", 3, "3.3", _ACLS),
            lambda body: body.resource_type_filter == USER,
        ),
    ),
    30: (
        VersionedValue(
            *("the resource type USER", 3, "3.3", _ACLS),
            lambda body: any(c.resource_type == USER for c in body.creations),
        ),
    ),
    31: (
        VersionedValue(
            *("the resource type USER", 3, "3.3", _ACLS),
            lambda body: any(f.resource_type_filter == USER for f in body.filters),
        ),
    ),
}
"""By API key: all values of this kind that Kafka's message definitions name."""
NEEDED = {key: max(value.version for value in values) for key, values in VALUES.items()}
"""By API key: the first version in which brokers understand all of these values."""
FEATURES = {"transaction.version": (2, {0: 12, 26: 5, 28: 5})}
"""By feature: the first level that needs newer API versions, and these versions by API key.

If a feature is finalized, all brokers support it, but a proxy may hide versions of Produce, EndTxn
or TxnOffsetCommit: with older versions, leaders don't add partitions to a transaction (KIP-890).
"""
