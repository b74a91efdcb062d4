"""Results of aiokafka's admin client, with an error number for each topic.

In: topics and errors. Out: objects and dicts with the fields of Kafka's responses. Must not: send
requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek.clients.admin.cluster import ClusterDescription
from odradek.clients.descriptions import TopicDescription
from odradek.common.errors import BrokerError

NO_ERROR, UNKNOWN_ERROR = 0, -1


@dataclass(frozen=True)
class TopicsCreated:
    """Results by topic of `create_topics`."""

    topic_errors: list[tuple[str, int, str | None]] = field(default_factory=list)
    """Triples of topic name, Kafka's error code (0: success) and error message."""
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the results as dicts."""
        names = ("topic", "error_code", "error_message")
        errors = [dict(zip(names, one, strict=True)) for one in self.topic_errors]
        return {"throttle_time_ms": self.throttle_time_ms, "topic_errors": errors}


@dataclass(frozen=True)
class TopicsDeleted:
    """Results by topic of `delete_topics`."""

    topic_error_codes: list[tuple[str, int]] = field(default_factory=list)
    """Pairs of topic name and Kafka's error code (0: success)."""
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the results as dicts."""
        codes = [{"topic": name, "error_code": code} for name, code in self.topic_error_codes]
        return {"throttle_time_ms": self.throttle_time_ms, "topic_error_codes": codes}


def number(error: BrokerError) -> int:
    """Return the error code of a broker's error."""
    return UNKNOWN_ERROR if error.code is None else error.code


def missing_topic(name: str, error: BrokerError) -> dict[str, Any]:
    """Return the description of a topic that doesn't exist or can't be described."""
    return {"error_code": number(error), "topic": name, "is_internal": False, "partitions": []}


def topic(found: TopicDescription) -> dict[str, Any]:
    """Return the description of a topic, with its partitions."""
    partitions = [
        {
            "error_code": NO_ERROR,
            "partition": one.partition,
            "leader": -1 if one.leader is None else one.leader,
            "replicas": list(one.replicas),
            "isr": list(one.isr),
            "offline_replicas": list(one.offline_replicas),
        }
        for one in found.partitions
    ]
    return {
        "error_code": NO_ERROR,
        "topic": found.name,
        "is_internal": found.internal,
        "partitions": partitions,
    }


def cluster(found: ClusterDescription) -> dict[str, Any]:
    """Return the description of the cluster, with its brokers."""
    brokers = [
        {"node_id": one.id, "host": one.host, "port": one.port, "rack": one.rack}
        for one in found.brokers
    ]
    return {
        "throttle_time_ms": 0,
        "brokers": brokers,
        "cluster_id": found.cluster_id,
        "controller_id": -1 if found.controller is None else found.controller,
    }
