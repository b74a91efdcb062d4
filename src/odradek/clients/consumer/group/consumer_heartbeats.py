"""Build the heartbeats of a KIP-848 member: the full state, or only its changes.

In: the group's subscription, the member's partitions. Out: requests, and the part of a response
that concerns the member itself. Must not: send heartbeats, or decide when they are due.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from odradek.clients.consumer.group.membership import Group
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.printable import uuid_text
from odradek.common.types import Rng, TopicPartition
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
"""Member epochs with a special meaning; -2 keeps a static member's place for a while."""
LATE = 60.0
"""Seconds in which a coordinator may still receive a heartbeat whose connection was lost.

Its response, which is lost, may assign partitions, and the coordinator only repeats them for a full
heartbeat.
"""
OWN_IDS = 1
"""First version in which members choose their ids (KIP-1082) and may send a pattern."""


class Heartbeats:
    """The member's id and epoch, and the state that was last sent to the coordinator."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.member_id = ""
        self.epoch = JOIN
        self.full = True
        """Whether the next heartbeat contains the full state; the coordinator may lack it."""
        self._doubtful_until = -math.inf
        self._topics: list[str] | None = None
        self._pattern: str | None = None

    def say_all(self) -> None:
        """Let the next heartbeat contain the member's full state."""
        self.full = True

    def doubt(self, now: float) -> None:
        """Send the full state for `LATE` seconds: a lost response may have assigned partitions."""
        self.full = True
        self._doubtful_until = now + LATE

    def choose_id(self, rng: Rng) -> None:
        """Choose a random UUID as the member id, with the client's random number generator."""
        octets = bytearray(int(rng.random() * 256) for _ in range(16))
        octets[6], octets[8] = octets[6] & 0x0F | 0x40, octets[8] & 0x3F | 0x80  # UUID version 4
        self.member_id = uuid_text(bytes(octets))

    def joining(self) -> None:
        """Make the next heartbeat one that joins the group."""
        self.epoch = JOIN
        self.full = True

    def request(
        self, held: Mapping[TopicPartition, bytes], now: float, *, acknowledge: bool
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat; `held` has the topic ids of the member's partitions."""
        group, joins = self._group, self.epoch == JOIN
        version = group.coordinator.version(ConsumerGroupHeartbeatRequest)
        old = version is not None and version < OWN_IDS
        if old and group.pattern is not None:
            raise UnsupportedVersionError(
                f"the coordinator of group {group.group_id!r} doesn't support patterns (Kafka 4.0 "
                "and newer do): subscribe to topics by name, or use group.protocol=classic"
            )
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id="" if old and joins else self.member_id,
            member_epoch=self.epoch,
            instance_id=group.instance_id,
        )
        everything = self.full or joins
        if everything:
            config = group.config
            request.rack_id = config["client.rack"] or None
            request.rebalance_timeout_ms = round(config["max.poll.interval.ms"] * 1000)
            request.server_assignor = config["group.remote.assignor"]
        topics, pattern = group.topics() if group.pattern is None else [], group.pattern
        if everything or topics != self._topics:
            request.subscribed_topic_names = self._topics = topics
        if pattern is not None and (everything or pattern != self._pattern):
            request.subscribed_topic_regex = pattern
        elif pattern is None and self._pattern is not None:
            request.subscribed_topic_regex = ""  # an empty text removes the pattern
        self._pattern = pattern
        if joins:
            request.topic_partitions = []
        elif everything or acknowledge:
            request.topic_partitions = _by_topic(held)
        self.full = now < self._doubtful_until
        return request

    def farewell(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group."""
        group = self._group
        return ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE if group.instance_id is None else LEAVE_STATIC,
            instance_id=group.instance_id,
        )

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        """Take the epoch from a response, and the id if an old coordinator has chosen one."""
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch


def _by_topic(
    held: Mapping[TopicPartition, bytes],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for partition, topic_id in sorted(held.items()):
        found.setdefault(topic_id, []).append(partition.partition)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, partitions)
        for topic_id, partitions in found.items()
    ]
