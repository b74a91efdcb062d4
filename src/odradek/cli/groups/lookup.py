"""Look up groups in a cluster: kinds, members, committed offsets, lag.

In: a run of a command, group ids. Out: a `GroupSnapshot` for each group, or an error. Log ends are
looked up once for all groups together. Must not: produce output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from odradek.cli.frame.commands import AdminRun
from odradek.cli.frame.merged_lists import told_by_brokers
from odradek.cli.groups.lag import LagRow, lag_rows, wanted_partitions
from odradek.clients.admin.group_offsets import ShareGroupOffset
from odradek.clients.admin.groups import (
    CONSUMER_PROTOCOL,
    SHARE,
    STREAMS,
    GroupDescription,
    GroupListing,
)
from odradek.clients.admin.offsets import OffsetListing
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import GroupIdNotFoundError, UnsupportedVersionError
from odradek.common.types import TopicPartition

Failed = dict[str, KafkaError]
"""Errors by group."""
LookFailed = dict[str | TopicPartition | int, KafkaError]
"""Errors by group, by partition without an available log end, and by broker without a list."""
Committed = dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """State of a group at one time.

    `rows` are the partitions of a consumer group, `shared` those of a share group; the other one is
    empty.
    """

    group: GroupDescription
    rows: Sequence[LagRow] = ()
    shared: Mapping[TopicPartition, ShareGroupOffset] = field(default_factory=dict)


def list_groups(
    run: AdminRun, timeout: float, **filters: Sequence[str]
) -> tuple[list[GroupListing], dict[int, KafkaError]]:
    """Return the groups of all brokers that answered in time, and the errors of the others.

    Raises the error if none has answered.
    """
    return told_by_brokers(lambda: run.admin.list_groups(timeout, **filters), lambda g: g.group_id)


def all_consumer_groups(run: AdminRun) -> tuple[list[str], dict[int, KafkaError]]:
    """Return the ids of all consumer groups, except those of Connect's workers, and errors.

    A group whose offsets an admin client has set has no protocol yet. The timeout of this call is
    half of the time left; the other half is for requests about the groups.
    """
    groups, silent = list_groups(run, run.left() / 2, protocol_types=["", CONSUMER_PROTOCOL])
    return [g.group_id for g in groups if g.type not in (SHARE, STREAMS)], silent


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """Named groups, or all consumer groups whose whole id matches a pattern."""

    named: Sequence[str] = ()
    include: re.Pattern[str] | None = None

    def look(self, run: AdminRun) -> tuple[dict[str, GroupSnapshot], LookFailed]:
        """Look up the groups; return snapshots and errors, including those of silent brokers."""
        if self.named:
            return look(run, self.named)
        ids, silent = all_consumer_groups(run)
        fit = self.include
        looks, failed = look(run, [g for g in ids if fit is None or fit.fullmatch(g)])
        failed.update(silent.items())
        return looks, failed


def describe(run: AdminRun, groups: Iterable[str]) -> tuple[dict[str, GroupDescription], Failed]:
    """Return groups of any kind with their members, in the given order.

    Coordinators are asked for one kind after the other. A list of all groups would tell the kinds,
    but it needs every broker, so a silent broker would block it.
    """
    wanted, admin = list(dict.fromkeys(groups)), run.admin
    if not wanted:
        return {}, {}
    found, failed = run.each(lambda: admin.describe_consumer_groups(wanted, run.left()))
    for call in (admin.describe_share_groups, admin.describe_streams_groups):
        absent = [g for g in wanted if isinstance(failed.get(g), GroupIdNotFoundError)]
        if not absent:
            break
        more, errors = run.each(partial(call, absent, run.left()))
        found.update(more)
        # Brokers that don't support a kind have no such groups.
        none = GroupIdNotFoundError | UnsupportedVersionError
        failed.update({g: e for g, e in errors.items() if not isinstance(e, none)})
        failed = {g: e for g, e in failed.items() if g not in more}
    absent = [g for g in failed if isinstance(failed[g], GroupIdNotFoundError)]
    if absent:
        failed.update(_no_topics(run, absent))
    return {g: found[g] for g in wanted if g in found}, failed


def _no_topics(run: AdminRun, absent: list[str]) -> Failed:
    """Return errors with a hint for ids that are names of topics.

    Users of Kafka's tool, which has --group and --topic, may type a topic after the group.
    """
    try:
        topics = set(run.admin.list_topics(run.left()))
    except KafkaError:  # without the hint, the groups' errors remain
        return {}
    text = (
        "group {0} doesn't exist; {0} is a topic, but this command takes group ids and shows all "
    )
    text += "topics of a group. To describe the topic: odradek topics describe {0}"
    return {g: GroupIdNotFoundError(text.format(g)) for g in absent if g in topics}


def look(run: AdminRun, groups: Iterable[str]) -> tuple[dict[str, GroupSnapshot], LookFailed]:
    """Return groups with their committed offsets and lag, and errors.

    Groups with unavailable log ends are included; the errors are by partition.
    """
    described, absent = describe(run, groups)
    shares = [g for g, d in described.items() if d.type == SHARE]
    others = [g for g in described if g not in shares]
    committed, bad = _committed(run, others)
    shared, worse = _shared(run, shares)
    partitions = {
        at for g, offsets in committed.items() for at in wanted_partitions(offsets, described[g])
    }
    ends, errors = ends_of(run, partitions)
    texts = {at: f"{type(error).__name__}: {error}" for at, error in errors.items()}
    looks = {}
    for group, description in described.items():
        if group in committed:
            rows = lag_rows(committed[group], description, ends, texts)
            looks[group] = GroupSnapshot(description, rows)
        elif group in shared:
            looks[group] = GroupSnapshot(description, (), shared[group])
    failed: LookFailed = dict(errors.items())
    for offsets in shared.values():
        failed.update((at, o.error) for at, o in offsets.items() if o.error is not None)
    failed.update((absent | bad | worse).items())
    return looks, failed


def ends_of(
    run: AdminRun, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, KafkaError]]:
    """Return log end offsets, and errors of unavailable ones."""
    found, errors = offsets_at(run, dict.fromkeys(sorted(partitions), "LATEST"))
    return {at: listing.offset for at, listing in found.items()}, errors


def offsets_at(
    run: AdminRun, specs: Mapping[TopicPartition, str | int]
) -> tuple[dict[TopicPartition, OffsetListing], dict[TopicPartition, KafkaError]]:
    """Look up offsets by keyword or time (ms since the epoch); return offsets and errors."""
    if not specs:
        return {}, {}
    return run.each(lambda: run.admin.list_offsets(specs, run.left()))


def _committed(run: AdminRun, groups: list[str]) -> tuple[dict[str, Committed], Failed]:
    if not groups:
        return {}, {}
    return run.each(lambda: run.admin.list_group_offsets(groups, run.left()))


def _shared(
    run: AdminRun, groups: list[str]
) -> tuple[dict[str, dict[TopicPartition, ShareGroupOffset]], Failed]:
    if not groups:
        return {}, {}
    # A temporarily unavailable partition uses up the timeout; half is left for log ends.
    return run.each(lambda: run.admin.list_share_group_offsets(groups, run.left() / 2))
