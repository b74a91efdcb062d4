"""`list_topics()` of the asyncio clients, by an asyncio admin client.

In: connection settings. Out: `ClusterMetadata`, as the other clients return it. Must not: connect
before the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import odradek
from odradek.compat.confluent_kafka.cluster_metadata import AnyClusterQuestions, ClusterMetadata
from odradek.compat.confluent_kafka.flows import awaited


class AsyncClusterQuestions(AnyClusterQuestions):
    """Admin client for metadata requests in an event loop."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, odradek.AsyncAdmin)

    async def list_topics(self, topic: str | None, timeout: float) -> ClusterMetadata:
        """Describe the cluster and all topics, or one."""
        return await awaited(self._described(topic, timeout))

    async def close(self) -> None:
        """Close the admin client, if it was created."""
        if self._admin is not None:
            await self._admin.close()
