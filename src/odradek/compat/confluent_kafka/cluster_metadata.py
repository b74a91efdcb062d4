"""Results of `list_topics()`: the cluster, its brokers, topics and partitions as plain objects.

In: an Odradek admin client. Out: `ClusterMetadata`. Must not: open a connection that isn't needed:
the first call creates the admin client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import odradek
from odradek.common.secret import hidden
from odradek.compat.confluent_kafka.flows import Flow, carried_out
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.settings import checked_seconds
from odradek.compat.confluent_kafka.translated_errors import translated, translating


class ClusterMetadata:
    """Cluster: its id, its controller's id, brokers by id and topics by name."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


class BrokerMetadata:
    """Id, host and port of a broker."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class TopicMetadata:
    """Topic with its partitions by number; `error` says why it has none."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        why = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{why})"

    def __str__(self) -> str:
        return str(self.topic)


class PartitionMetadata:
    """Partition: ids of its leader (-1 for none), its replicas and its in-sync replicas."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        why = "" if self.error is None else f", {self.error}"
        return f"PartitionMetadata({self.id}{why})"

    def __str__(self) -> str:
        return str(self.id)


NO_TOPIC = (
    odradek.UnknownTopicOrPartitionError,
    odradek.errors.TopicAuthorizationError,
    odradek.errors.InvalidTopicExceptionError,
)
"""Errors that are returned in `TopicMetadata.error` instead of raised."""


class AnyClusterQuestions:
    """Admin client for the metadata calls of a producer or consumer; base of both kinds."""

    def __init__(self, settings: Mapping[str, Any], make: Callable[..., Any]) -> None:
        self._settings, self._make = settings, make
        self._admin: Any = None

    def admin(self) -> Any:
        """Return the admin client, which the first call creates."""
        if self._admin is None:
            with translating():
                self._admin = self._make(self._settings)
        return self._admin

    def _described(self, topic: str | None, timeout: float) -> Flow[ClusterMetadata]:
        """Describe the cluster and all topics, or one."""
        seconds, admin = checked_seconds(timeout), self.admin()
        with translating(unreachable=KafkaError._TRANSPORT):
            described = yield admin.describe_cluster(seconds)
            found = cluster_metadata(described)
            if topic is None:
                names = yield admin.list_topics(seconds, include_internal=True)
                topics = yield admin.describe_topics(names, seconds)
                found.topics = {name: topic_metadata(one) for name, one in topics.items()}
                return found
            try:
                topics = yield admin.describe_topics(topic, seconds)
                found.topics[topic] = topic_metadata(topics[topic])
            except NO_TOPIC as error:
                found.topics[topic] = without_topic(topic, error)
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials for later logins."""
        self._settings = {
            **self._settings, "sasl.username": username, "sasl.password": hidden(password)
        }  # fmt: skip
        if self._admin is not None:
            self._admin.set_sasl_credentials(username, password)


class ClusterQuestions(AnyClusterQuestions):
    """Blocking metadata calls; thread-safe if `background` is set."""

    def __init__(self, settings: Mapping[str, Any], *, background: bool = False) -> None:
        super().__init__(settings, partial(odradek.Admin, background=background))

    def list_topics(self, topic: str | None, timeout: float) -> ClusterMetadata:
        """Describe the cluster and all topics, or one."""
        return carried_out(self._described(topic, timeout))

    def close(self) -> None:
        """Close the admin client, if it was created."""
        if self._admin is not None:
            self._admin.close()


def cluster_metadata(described: odradek.admin.ClusterDescription) -> ClusterMetadata:
    """Convert a description of the cluster, without topics."""
    found = ClusterMetadata()
    found.cluster_id = described.cluster_id
    found.controller_id = -1 if described.controller is None else described.controller
    for broker in described.brokers:
        made = BrokerMetadata()
        made.id, made.host, made.port = broker.id, broker.host, broker.port
        found.brokers[broker.id] = made
    if found.brokers:  # confluent-kafka names the answering broker
        first = found.brokers.get(found.controller_id) or next(iter(found.brokers.values()))
        found.orig_broker_id, found.orig_broker_name = first.id, str(first)
    return found


def topic_metadata(described: odradek.admin.TopicDescription) -> TopicMetadata:
    """Convert a description of a topic with its partitions."""
    found = TopicMetadata()
    found.topic = described.name
    for partition in described.partitions:
        made = PartitionMetadata()
        made.id = partition.partition
        made.leader = -1 if partition.leader is None else partition.leader
        made.replicas, made.isrs = list(partition.replicas), list(partition.isr)
        if partition.leader is None:
            made.error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        found.partitions[made.id] = made
    return found


def without_topic(topic: str, error: BaseException) -> TopicMetadata:
    """Return the metadata of a topic that can't be described, with the error."""
    found = TopicMetadata()
    found.topic, found.error = topic, translated(error)
    return found
