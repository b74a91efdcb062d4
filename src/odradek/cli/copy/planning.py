"""Plan a copy: its topics and partitions; or report why it is impossible.

In: admin clients of both clusters. Out: a `CopyPlan`. Must not: write a record. With `--create` it
creates the destination, with the source's partitions and options.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from odradek.api.admin import Admin
from odradek.cli.copy.clusters import CopyCluster
from odradek.cli.frame.results import counted
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.admin.configs import ConfigResource
from odradek.clients.descriptions import TopicDescription
from odradek.clients.missing_topics import did_you_mean, similar_names
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition

OWN = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic options that contain broker ids, which aren't copied."""
LOOK = 1.0
"""Timeout in seconds of a check of the topics while a copy runs."""
ABSENT = 3
"""Consecutive checks that don't find a topic before it counts as deleted."""
PAUSE = 0.5
"""Seconds between checks in `make_sure`."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Topics and partitions of a possible copy."""

    source: str
    destination: str
    partitions: int
    name: str
    """Id of the group that stores the progress in the destination; also `transactional.id`."""
    mark: str
    """Metadata of committed offsets: the ids of both topics, to detect recreated topics."""
    one_cluster: bool

    def kept_at(self, partition: int) -> TopicPartition:
        """Return the partition for which the group commits the copy's offset in the source.

        Within one cluster it is the source's partition, so the group's lag is the copy's lag. In
        another cluster it is the destination's, as brokers reject offsets of unknown topics.
        """
        return TopicPartition(self.source if self.one_cluster else self.destination, partition)

    def source_of(self, partition: int) -> TopicPartition:
        """Return the source topic's partition with this number."""
        return TopicPartition(self.source, partition)


def plan(
    reading: Admin, writing: Admin, source: CopyCluster, destination: CopyCluster, *, create: bool
) -> CopyPlan:
    """Describe both topics. Raises `ConfigurationError` with a remedy if a copy is impossible."""
    cluster = reading.describe_cluster().cluster_id
    one = cluster == writing.describe_cluster().cluster_id
    if one and source.topic == destination.topic:
        raise ConfigurationError(f"{source.topic} can't be copied onto itself")
    try:
        there = reading.describe_topics(source.topic)[source.topic]
    except UnknownTopicOrPartitionError:
        near = did_you_mean(similar_names(source.topic, reading.list_topics()))
        text = f"topic {source.topic} doesn't exist at {source.servers}{near}"
        raise ConfigurationError(text) from None
    try:
        goal = writing.describe_topics(destination.topic)[destination.topic]
    except UnknownTopicOrPartitionError:
        if not create:
            raise ConfigurationError(
                f"topic {destination.topic} doesn't exist; --create creates it like {source.topic}"
            ) from None
        goal = _made(reading, writing, there, destination.topic)
    count = len(there.partitions)
    if len(goal.partitions) < count:
        raise ConfigurationError(
            f"{destination.topic} has {counted(len(goal.partitions), 'partition')}, but needs "
            f"at least {count}, as {source.topic} has: records keep their partitions"
        )
    return CopyPlan(
        source.topic,
        destination.topic,
        count,
        f"odradek-copy.{cluster}.{source.topic}.{destination.topic}",
        f"{there.topic_id} {goal.topic_id}",
        one,
    )


class CopiedTopics:
    """Detects that one of the topics was deleted or recreated since the copy began."""

    def __init__(self, reading: Admin, writing: Admin, plan: CopyPlan) -> None:
        self._sides = ((reading, plan.source), (writing, plan.destination))
        self._plan = plan
        self._absent = 0

    def look(self) -> None:
        """Check the topics once. Raises `ConfigurationError` if one was deleted or recreated.

        The copy would continue with wrong records. Errors of an outage are ignored.
        """
        ids = []
        for admin, topic in self._sides:
            try:
                ids.append(str(admin.describe_topics(topic, LOOK)[topic].topic_id))
            except UnknownTopicOrPartitionError:
                self._absent += 1
                if self._absent < ABSENT:  # one broker may not know the topic yet
                    return
                raise ConfigurationError(f"topic {topic} was deleted during the copy") from None
            except KafkaError:
                return
        self._absent = 0
        if " ".join(ids) != self._plan.mark:
            raise ConfigurationError(made_again(self._plan))

    def make_sure(self) -> None:
        """Repeat the check until a missing topic is known to be deleted.

        During an outage that remains unknown, and the caller continues.
        """
        for _ in range(ABSENT):
            self.look()
            if not self._absent:
                return
            time.sleep(PAUSE)


def made_again(plan: CopyPlan) -> str:
    """Return the error message for a recreated topic, with a remedy."""
    return (
        f"{plan.source} or {plan.destination} was recreated since this copy began, so its "
        f"progress (group {plan.name}) is invalid; use --restart to begin again"
    )


def _made(reading: Admin, writing: Admin, source: TopicDescription, name: str) -> TopicDescription:
    """Create the destination with the source's number of partitions and topic options."""
    resource = ConfigResource("TOPIC", source.name)
    found = reading.describe_configs([resource])[resource]
    configs = {
        one.name: one.value
        for one in found.values()
        if one.source == "DYNAMIC_TOPIC_CONFIG" and one.value is not None and one.name not in OWN
    }
    # Without LogAppendTime, so that copies keep their timestamps.
    configs.pop("message.timestamp.type", None)
    return writing.create_topics([NewTopic(name, len(source.partitions), -1, configs)])[name]
