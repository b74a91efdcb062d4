"""Encode the two records that consumers embed in JoinGroup and SyncGroup.

These are subscription and assignment: opaque bytes to brokers, but members of a group read each
other's, whatever client wrote them. In: a `MemberSubscription` or partitions. Out: bytes, and back.
Versions 0 to 3 as Kafka defines them: a newer version is read as the newest known one, and its
additional fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception class with a function's name

from odradek.clients.consumer.group.assignors.assignor import NO_GENERATION, MemberSubscription
from odradek.clients.consumer.group.partition_bytes import read_partitions, write_partitions
from odradek.common.printable import printable
from odradek.common.types import TopicPartition
from odradek.protocol.message import malformed
from odradek.protocol.primitives import (
    Buffer,
    WireError,
    as_bytes_view,
    read_count,
    read_nullable_bytes,
    read_nullable_string,
    read_strings,
    write_count,
    write_nullable_bytes,
    write_nullable_string,
    write_strings,
)

PROTOCOL_TYPE = "consumer"
"""JoinGroup's protocol type; Connect's workers are another kind of group."""
NEWEST = 3
_int16, _int32 = Struct(">h"), Struct(">i")


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The leader's assignment for one member."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: MemberSubscription, version: int = NEWEST) -> bytes:
    """Encode a member's subscription (`instance_id` is a field of JoinGroup itself)."""
    out = bytearray(_int16.pack(version))
    topics = sorted(subscription.topics)
    write_count(out, topics)
    write_strings(out, topics)
    write_nullable_bytes(out, subscription.user_data)
    if version >= 1:
        write_partitions(out, sorted(subscription.owned))
    if version >= 2:
        out += _int32.pack(subscription.generation)
    if version >= 3:
        write_nullable_string(out, subscription.rack)
    return bytes(out)


def decode_subscription(
    buffer: Buffer, instance_id: str | None = None, member_id: str = ""
) -> MemberSubscription:
    """Decode a member's subscription.

    Raise MalformedMessageError, with the member's id, if invalid.
    """
    view = as_bytes_view(buffer)
    pos = 0
    owned: list[TopicPartition] = []
    generation, rack = NO_GENERATION, None
    try:
        version, pos = _version(view, "subscription")
        count, pos = read_count(view, pos, 2)
        topics, pos = read_strings(view, pos, count)
        data, pos = read_nullable_bytes(view, pos)
        # Some clients omit fields of the version that they name: read these as empty.
        if version >= 1 and pos < len(view):
            owned, pos = read_partitions(view, pos)
        if version >= 2 and pos < len(view):
            (generation,) = _int32.unpack_from(view, pos)
            pos += 4
        if version >= 3 and pos < len(view):
            rack, pos = read_nullable_string(view, pos)
    except (WireError, StructError, IndexError, UnicodeDecodeError) as error:
        who = f"member {printable(member_id)}" if member_id else "a member"
        who += f" (group.instance.id {printable(instance_id)})" if instance_id else ""
        raise malformed(f"the subscription of {who}", len(view), error, pos) from error
    return MemberSubscription(
        tuple(topics), tuple(owned), max(generation, NO_GENERATION), rack or None, instance_id, data
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], data: bytes | None = None, version: int = NEWEST
) -> bytes:
    """Encode a member's assignment."""
    out = bytearray(_int16.pack(version))
    write_partitions(out, sorted(partitions))
    write_nullable_bytes(out, data)
    return bytes(out)


def decode_assignment(buffer: Buffer) -> MemberAssignment:
    """Decode an assignment; without any bytes it has no partitions."""
    view = as_bytes_view(buffer)
    if not len(view):  # sent to a member without an assignment
        return MemberAssignment()
    pos = 0
    try:
        _, pos = _version(view, "assignment")
        partitions, pos = read_partitions(view, pos)
        data, pos = read_nullable_bytes(view, pos)
    except (WireError, StructError, IndexError, UnicodeDecodeError) as error:
        raise malformed("a member's assignment", len(view), error, pos) from error
    return MemberAssignment(tuple(partitions), data)


def _version(view: memoryview, what: str) -> tuple[int, int]:
    (version,) = _int16.unpack_from(view, 0)
    if version < 0:
        raise WireError(f"{what} has the unsupported version {version}")
    return version, 2
