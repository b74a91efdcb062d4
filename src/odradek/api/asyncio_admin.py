"""The admin client for asyncio: `Admin`, awaited.

In: names and numbers. Out: descriptions, errors that name the topic. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from odradek.api.admin import admin_engine
from odradek.api.asyncio_base import AsyncClient
from odradek.clients.admin.admin_arguments import NewTopic, new_topics, topic_names
from odradek.clients.admin.admin_engine import AdminEngine, ClusterDescription
from odradek.clients.admin.api_versions import BrokerApiVersions
from odradek.clients.admin.examination import Examination
from odradek.clients.admin.reachability import Reachability
from odradek.clients.consumer.group.commit_arguments import group_id
from odradek.clients.descriptions import TopicDescription
from odradek.common.arguments import flag
from odradek.common.config import ADMIN
from odradek.runtime.hosts.host_sources import loop_host
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    from odradek.api.client_options import AdminOptions


class AsyncAdmin(AsyncClient[AdminEngine]):
    """Makes, deletes and describes topics, and describes the cluster; its calls are awaited.

    What `Admin` says holds here, too: options, errors, timeouts in seconds.

    >>> async with AsyncAdmin({"bootstrap.servers": "localhost:9092"}) as admin:
    ...     print(await admin.list_topics())
    ['arrivals', 'flights']
    """

    @with_settings(ADMIN)
    def __init__(self, config: Settings = None, **options: Unpack[AdminOptions]) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        Raises `ConfigurationError`.
        """
        super().__init__(config, loop_host, admin_engine)

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Make topics; return them as they are once every partition has a leader.

        As `Admin.create_topics`.
        """
        wanted, only_checked = new_topics(topics), flag("validate_only", validate_only)
        return await self._call(
            lambda d: self._engine.create_topics(wanted, d, validate_only=only_checked),
            timeout,
            "creation of topics",
        )

    async def delete_topics(self, names: Sequence[str] | str, timeout: float | None = None) -> None:
        """Delete topics by name; a str is one name.

        As `Admin.delete_topics`.
        """
        wanted = topic_names("names", names)
        await self._call(
            lambda d: self._engine.delete_topics(wanted, d), timeout, "deletion of topics"
        )

    async def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """The names of all topics that this client may see, sorted.

        As `Admin.list_topics`.
        """
        internal = flag("include_internal", include_internal)
        return await self._call(
            lambda d: self._engine.list_topics(d, internal=internal), timeout, "list of topics"
        )

    async def describe_topics(
        self, names: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas by topic; a str is one name.

        As `Admin.describe_topics`.
        """
        wanted = topic_names("names", names)
        return await self._call(
            lambda d: self._engine.describe_topics(wanted, d), timeout, "description of topics"
        )

    async def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers and its controller (KIP-700).

        As `Admin.describe_cluster`.
        """
        what = "description of the cluster"
        return await self._call(self._engine.describe_cluster, timeout, what)

    async def describe_api_versions(
        self, timeout: float | None = None
    ) -> tuple[BrokerApiVersions, ...]:
        """Which versions of which APIs each broker speaks, by broker id (KIP-35).

        As `Admin.describe_api_versions`.
        """
        what = "versions of the brokers' APIs"
        return await self._call(self._engine.describe_api_versions, timeout, what)

    async def describe_reachability(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> Reachability:
        """Dial every bootstrap address and all that brokers advertise, and ask there.

        As `Admin.describe_reachability`.
        """
        names = None if topics is None else topic_names("topics", topics)
        return await self._call(
            lambda d: self._engine.describe_reachability(names, d),
            timeout,
            "answers of the cluster's addresses",
        )

    async def examine(
        self,
        topics: Sequence[str] | str | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> Examination:
        """What a cluster is to this client: what `odradek doctor` looks at.

        As `Admin.examine`.
        """
        names = None if topics is None else topic_names("topics", topics)
        who = None if group is None else group_id(group)
        return await self._call(
            lambda d: self._engine.examine(names, who, d), timeout, "answers of the cluster"
        )
