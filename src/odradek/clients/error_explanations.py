"""Explain error codes of brokers: a sentence with the cause and the cure for each.

In: the error code and the request. Out: a text to follow the error's name. Must not: decide how the
error is handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import BrokerError, KafkaError
from odradek.common.errors.kafka import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidProducerEpochError,
    InvalidRegularExpressionError,
    InvalidSessionTimeoutError,
    InvalidTransactionTimeoutError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedCompressionTypeError,
)
from odradek.common.printable import lists_members
from odradek.network.connection import Connection
from odradek.network.effects import AnyRequest
from odradek.protocol.versioned_values import ZSTD_RETURNED

if TYPE_CHECKING:
    from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
    from odradek.common.config import Config


def of_producer_id(code: int, transactional_id: str, timeout_ms: int) -> str:
    """Return the text for InitProducerId, where only a refused timeout needs an explanation."""
    if code != InvalidTransactionTimeoutError.code:
        return transactional_id
    return (
        f"{transactional_id}: transaction.timeout.ms={timeout_ms} exceeds the broker's "
        "transaction.max.timeout.ms (Kafka's default is 900000, 15 minutes): lower the first, or "
        "raise the second"
    )


def explain_fetch(
    error: BrokerError, topic: str, connection: Connection | None, request: type[AnyRequest]
) -> None:
    """Add the missing permission to a partition's error, or for zstd the required Fetch version."""
    error.needing("READ", topic)
    if isinstance(error, UnsupportedCompressionTypeError) and connection is not None:
        error.add_note(connection.lacks(request, ZSTD_RETURNED))


def of_batch(code: int, said: str, transactional_id: str | None) -> str:
    """Return the text for Produce; in a transaction it says what an old producer epoch means."""
    if code != InvalidProducerEpochError.code or transactional_id is None:
        return said
    return (
        f"{said}: another producer took over transactional.id {transactional_id!r}, or the "
        "transaction was open for longer than transaction.timeout.ms and its coordinator aborted "
        "it. Call abort_transaction(): if it succeeds, this producer can continue; if the producer "
        "is fenced, it raises that"
    )


def of_offset(
    code: int,
    place: str,
    offset: OffsetAndMetadata | None,
    group: ConsumerGroupMetadata | None = None,
) -> str:
    """Return the text for a partition of OffsetCommit and TxnOffsetCommit."""
    if code == OffsetMetadataTooLargeError.code and offset is not None:
        return (
            f"{place}: its offset metadata of {len(offset.metadata.encode())} bytes exceeds the "
            "brokers' offset.metadata.max.bytes (Kafka's default is 4096): shorten it, or raise "
            "that"
        )
    if code in (UnknownMemberIdError.code, IllegalGenerationError.code) and group is not None:
        return (
            f"{place}: member {group.member_id!r} of generation {group.generation_id} isn't in "
            f"group {group.group_id!r}, so other members read its partitions. Abort the "
            "transaction, call poll() until the group has assigned partitions again, and pass a "
            "new consumer.group_metadata()"
        )
    return place


CURES: dict[type[BrokerError], str] = {
    FencedInstanceIdError: (
        "Another consumer joined group {group!r} with the same group.instance.id {instance!r} and "
        "took this consumer's place: stop one of the two, or set a different group.instance.id for "
        "each. {members}"
    ),
    GroupMaxSizeReachedError: (
        "Group {group!r} has as many members as the brokers allow (group.max.size, for "
        "group.protocol=consumer group.consumer.max.size): stop members, or raise that limit. "
        "{members}"
    ),
    InconsistentGroupProtocolError: (
        "The members of group {group!r} use another group.protocol, or no assignor in "
        "partition.assignment.strategy that this consumer supports: use the same settings for all "
        "members, or another group.id. {members}"
    ),
    InvalidRegularExpressionError: (
        "With group.protocol=consumer the brokers match patterns, with RE2, which has no "
        "lookahead, lookbehind or backreferences: write the pattern without them, or use "
        "group.protocol=classic, which matches with Python's re"
    ),
    InvalidSessionTimeoutError: (
        "This consumer has session.timeout.ms={session:.0f}: set it to at least the brokers' "
        "group.min.session.timeout.ms (Kafka's default is 6000) and at most their "
        "group.max.session.timeout.ms (1800000)"
    ),
    UnreleasedInstanceIdError: (
        "The instance id {instance!r} (group.instance.id) in group {group!r} is taken by another "
        "member. If that member was killed, the broker releases the id when its session ends (the "
        "broker's group.consumer.session.timeout.ms, 45 s by default); if it is running, stop it, "
        "or set a different group.instance.id for each consumer. {members}"
    ),
    UnsupportedAssignorError: (
        "This consumer has group.remote.assignor={assignor}: set it to an assignor of the brokers "
        "(their group.consumer.assignors), or leave it unset"
    ),
}
"""Causes and remedies of errors for which brokers send no text."""


def with_cure(error: KafkaError, config: Config) -> KafkaError:
    """Return a group's error for its members, with the cause and the cure if they are known.

    Errors that this client raises itself (without a broker's code in the text) contain both
    already.
    """
    if not isinstance(error, BrokerError) or type(error) not in CURES or error.cure is not None:
        return error
    if not str(error).startswith(f"{error.name} "):
        return error
    cure = CURES[type(error)].format(
        group=config["group.id"],
        instance=config["group.instance.id"],
        session=config["session.timeout.ms"] * 1000,
        assignor=config["group.remote.assignor"],
        members=lists_members(config["group.id"], config["bootstrap.servers"]),
    )
    found = type(error)(f"{str(error).rstrip('.')}. {cure}")
    found.cure, found.__cause__ = cure, error.__cause__
    return found
