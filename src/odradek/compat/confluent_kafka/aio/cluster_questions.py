"""`list_topics()` of the asyncio clients: an asyncio admin client beside them.

In: connection settings. Out: `ClusterMetadata`, as the other clients give it. Must not: be there
before the first question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import odradek
from odradek.compat.confluent_kafka.cluster_metadata import (
    NO_TOPIC,
    ClusterMetadata,
    cluster_metadata,
    topic_metadata,
    without_topic,
)
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.settings import checked_seconds
from odradek.compat.confluent_kafka.translated_errors import translating


class AsyncClusterQuestions:
    """The admin client beside a client."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._admin: odradek.AsyncAdmin | None = None

    async def list_topics(self, topic: str | None, timeout: float) -> ClusterMetadata:
        """Describe the cluster and all topics, or one."""
        seconds = checked_seconds(timeout)
        with translating(nobody=KafkaError._TRANSPORT):
            if self._admin is None:
                self._admin = odradek.AsyncAdmin(self._settings)
            admin = self._admin
            found = cluster_metadata(await admin.describe_cluster(seconds))
            if topic is None:
                names = await admin.list_topics(seconds, include_internal=True)
                topics = await admin.describe_topics(names, seconds)
                found.topics = {name: topic_metadata(one) for name, one in topics.items()}
                return found
            try:
                described = await admin.describe_topics(topic, seconds)
                found.topics[topic] = topic_metadata(described[topic])
            except NO_TOPIC as error:
                found.topics[topic] = without_topic(topic, error)
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password for later questions, too."""
        self._settings = {
            **self._settings,
            "sasl.username": username,
            "sasl.password": password,
        }
        if self._admin is not None:
            self._admin.set_sasl_credentials(username, password)

    async def close(self) -> None:
        """Close the admin client, if there was one."""
        if self._admin is not None:
            await self._admin.close()
