"""`AIOKafkaAdminClient` on `odradek.AsyncAdmin`: topics and the cluster.

In: aiokafka's arguments. Out: results with aiokafka's fields. Out of scope: configurations, groups,
partitions and records; programs use `odradek.AsyncAdmin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.clients.admin.admin_arguments import NewTopic as Wanted
from odradek.common.errors import BrokerError
from odradek.common.errors import KafkaError as OurError
from odradek.common.secret import private
from odradek.compat.aiokafka.admin import results
from odradek.compat.aiokafka.admin.new_topic import NewTopic
from odradek.compat.aiokafka.admin.wrapped_admin import AIOKafkaAdminClient as _Admin
from odradek.compat.aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError
from odradek.compat.aiokafka.settings import client_settings, running_loop
from odradek.compat.aiokafka.translation import raising

ELSEWHERE = (
    *("alter_configs", "create_partitions", "delete_records", "describe_configs"),
    *("describe_consumer_groups", "find_coordinator", "list_consumer_group_offsets"),
    "list_consumer_groups",
)
"""aiokafka's methods that this module doesn't support."""


class AIOKafkaAdminClient:
    """aiokafka's admin client: `start()`, calls for topics and the cluster, `close()`."""

    @private
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-0.14.0",
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        api_version: str | None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        """Check the settings; no connection is opened yet. Must be called inside a coroutine."""
        given = {name: value for name, value in locals().items() if name != "self"}
        running_loop(given)
        self._timeout = request_timeout_ms / 1000
        with raising():
            self._admin = _Admin(client_settings(given))

    async def start(self) -> None:
        """Connect to the cluster; raises `KafkaConnectionError` after `request_timeout_ms`."""
        try:
            await self._admin.cluster_id(self._timeout)
        except OurError as error:
            raise KafkaConnectionError(f"no broker could be reached: {error}") from error

    async def close(self) -> None:
        """Close all connections."""
        with raising():
            await self._admin.close()

    async def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> results.TopicsCreated:
        """Create topics, one after another; broker errors are in `topic_errors`.

        Raises `IncompatibleBrokerVersion` for a topic with `replica_assignments`.
        """
        if any(topic.replica_assignments for topic in new_topics):
            raise IncompatibleBrokerVersion(
                "replica_assignments isn't supported: set num_partitions and replication_factor"
            )
        made = results.TopicsCreated()
        for topic in new_topics:
            code, text = await self._created(topic, self._seconds(timeout_ms), validate_only)
            made.topic_errors.append((topic.name, code, text))
        return made

    async def _created(
        self, topic: NewTopic, timeout: float, validate_only: bool
    ) -> tuple[int, str | None]:
        counts = (topic.num_partitions, topic.replication_factor)
        wanted = Wanted(topic.name, *counts, configs=topic.topic_configs)
        try:
            with raising():
                await self._admin.create_topics([wanted], timeout, validate_only=validate_only)
        except Exception as error:
            if isinstance(error.__cause__, BrokerError):
                return results.number(error.__cause__), str(error.__cause__)
            raise
        return results.NO_ERROR, None

    async def delete_topics(
        self, topics: Sequence[str], timeout_ms: int | None = None
    ) -> results.TopicsDeleted:
        """Delete topics, one after another; broker errors are in `topic_error_codes`."""
        deleted = results.TopicsDeleted()
        for name in topics:
            code = results.NO_ERROR
            try:
                with raising():
                    await self._admin.delete_topics([name], self._seconds(timeout_ms))
            except Exception as error:
                if not isinstance(error.__cause__, BrokerError):
                    raise
                code = results.number(error.__cause__)
            deleted.topic_error_codes.append((name, code))
        return deleted

    async def list_topics(self) -> list[str]:
        """Return the names of all topics that the user may see, including internal ones."""
        with raising():
            return await self._admin.list_topics(include_internal=True)

    async def describe_topics(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return each topic (None: all) with its partitions, or with an `error_code`."""
        names = await self.list_topics() if topics is None else topics
        return [await self._described(name) for name in names]

    async def _described(self, name: str) -> dict[str, Any]:
        try:
            with raising():
                return results.topic((await self._admin.describe_topics([name]))[name])
        except Exception as error:
            if isinstance(error.__cause__, BrokerError):
                return results.missing_topic(name, error.__cause__)
            raise

    async def describe_cluster(self) -> dict[str, Any]:
        """Return the cluster's id, its brokers and its controller."""
        with raising():
            return results.cluster(await self._admin.describe_cluster())

    def _seconds(self, timeout_ms: int | None) -> float:
        return timeout_ms / 1000 if timeout_ms else self._timeout

    if not TYPE_CHECKING:  # type checkers must reject unknown names

        def __getattr__(self, name: str) -> object:
            if name in ELSEWHERE:
                raise AttributeError(
                    f"{name}() isn't supported by this module: use odradek.AsyncAdmin, or "
                    "aiokafka's own admin client"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
