"""Compare the metadata of several brokers before a loss is accepted (R-ID-6).

In: partitions, and their topic ids and leader epochs from one broker. Out: whether other brokers
report equal ones. A broker that was frozen or cut off describes deleted topics and earlier leaders
until it hears from its controller, and its log ends too early. Must not: wait; the caller calls
several times, for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from odradek.api.log_ends import LogEnds
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.spark.driver.offsets import Positions

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer
    from odradek.clients.descriptions import TopicDescription

ENOUGH = 2
"""Number of brokers that must agree, if the cluster has as many."""
ANSWER_S = 3.0
"""Timeout of the brokers' responses in seconds: a broker that is down delays the result."""


class DisagreementError(Exception):
    """Other brokers know newer leaders, or other topics, than the broker that reported a loss."""

    def __init__(self, newer: Positions) -> None:
        super().__init__(newer)
        self.newer = newer
        """By partition, leader epochs above those that the first broker reported."""


def check_agreement(
    consumer: Consumer,
    doubtful: Collection[TopicPartition],
    topic_ids: Mapping[str, str],
    epochs: Positions,
    timeout: float,
) -> None:
    """Raise an error unless two brokers (or the only one) report these topic ids and epochs.

    `epochs`: the leader epochs (-1: unknown) of the partitions that exist. Raises
    `DisagreementError`, and `KafkaTimeoutError` if too few brokers answer.
    """
    if not doubtful:
        return
    names = {tp.topic for tp in doubtful}
    brokers, views = LogEnds(consumer).descriptions(names, min(timeout, ANSWER_S))
    newer: dict[TopicPartition, int] = {}
    agreeing = 0
    for view in views:
        found = {tp: _leader_epoch(tp, view[tp.topic], topic_ids) for tp in doubtful}
        agreeing += all(_are_equal(found[tp], epochs.get(tp)) for tp in doubtful)
        for tp, epoch in found.items():
            if epoch is not None and -1 < epochs.get(tp, -1) < epoch:
                newer[tp] = max(epoch, newer.get(tp, -1))
    enough = min(ENOUGH, brokers)
    if agreeing >= enough and not newer:
        return
    if len(views) < enough:
        raise KafkaTimeoutError(
            f"only {len(views)} of {brokers} brokers answered when {', '.join(sorted(names))} "
            "seemed to have lost records; a second broker must confirm it"
        )
    raise DisagreementError(newer)


OTHER_TOPIC = -2
"""Stands for the leader epoch if the broker knows the topic by another id."""


def _leader_epoch(
    tp: TopicPartition, topic: TopicDescription | None, topic_ids: Mapping[str, str]
) -> int | None:
    """Return the leader epoch that a broker reports; None if it has no such partition."""
    if topic is None:
        return None
    if topic.topic_id is not None and topic.topic_id != topic_ids.get(tp.topic, topic.topic_id):
        return OTHER_TOPIC
    return next((p.leader_epoch for p in topic.partitions if p.partition == tp.partition), None)


def _are_equal(found: int | None, stated: int | None) -> bool:
    if found is None or stated is None or OTHER_TOPIC in (found, stated):
        return found is stated
    return found == stated or -1 in (found, stated)
