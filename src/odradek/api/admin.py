"""The admin client as users see it.

In: names and numbers. Out: descriptions, errors that name the topic. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

from odradek.api.base import Client
from odradek.clients.admin.admin_arguments import NewTopic, new_topics, topic_names
from odradek.clients.admin.admin_engine import AdminEngine, ClusterDescription
from odradek.clients.admin.api_versions import BrokerApiVersions
from odradek.clients.admin.examination import Examination
from odradek.clients.admin.reachability import Reachability
from odradek.clients.consumer.group.commit_arguments import group_id
from odradek.clients.descriptions import TopicDescription
from odradek.common.arguments import flag
from odradek.common.config import ADMIN, Config
from odradek.network.host import Host
from odradek.runtime.hosts.host_sources import usual_host
from odradek.runtime.properties import Settings, with_settings


def admin_engine(config: Config, host: Host) -> AdminEngine:
    """An admin's engine."""
    return AdminEngine(config, host.rng())


if TYPE_CHECKING:
    from odradek.api.client_options import AdminOptions


class Admin(Client[AdminEngine]):
    """Makes, deletes and describes topics, and describes the cluster.

    It works in the caller's thread and recovers as producer and consumer do (KIP-899; the KIP's
    text left admin out). Every call takes `timeout` in seconds (default: `default.api.timeout.ms`)
    and raises `KafkaTimeoutError` at its end, with each attempt: address, what failed, when.

    >>> with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
    ...     made = admin.create_topics([NewTopic("departures", 6, 3)])
    ...     print(len(made["departures"].partitions), admin.list_topics())
    6 ['arrivals', 'departures', 'flights']
    """

    @with_settings(ADMIN)
    def __init__(
        self, config: Settings = None, *, background: bool = False, **options: Unpack[AdminOptions]
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        With `background=True` a thread of its own does the work, so that connections and metadata
        are kept up between calls, and `explain()` tells what is going on.

        Raises `ConfigurationError`.
        """
        in_thread = flag("background", background)
        super().__init__(config, partial(usual_host, in_thread=in_thread), admin_engine)

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Make topics; return them as they are once every partition has a leader.

        With `validate_only` nothing is made, and the result is empty. Raises
        `TopicAlreadyExistsError`, `InvalidReplicationFactorError`, `InvalidPartitionsError`,
        `PolicyViolationError` … each with the topic's name and the broker's reason.
        """
        wanted, only_checked = new_topics(topics), flag("validate_only", validate_only)
        return self._call(
            lambda d: self._engine.create_topics(wanted, d, validate_only=only_checked),
            timeout,
            "creation of topics",
        )

    def delete_topics(self, names: Sequence[str] | str, timeout: float | None = None) -> None:
        """Delete topics by name; a str is one name.

        Raises `UnknownTopicOrPartitionError` for one that isn't there.
        """
        wanted = topic_names("names", names)
        self._call(lambda d: self._engine.delete_topics(wanted, d), timeout, "deletion of topics")

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """The names of all topics that this client may see, sorted."""
        internal = flag("include_internal", include_internal)
        return self._call(
            lambda d: self._engine.list_topics(d, internal=internal), timeout, "list of topics"
        )

    def describe_topics(
        self, names: Sequence[str] | str, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas by topic; a str is one name.

        Raises `UnknownTopicOrPartitionError` naming the first topic that isn't there.
        """
        wanted = topic_names("names", names)
        return self._call(
            lambda d: self._engine.describe_topics(wanted, d), timeout, "description of topics"
        )

    def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers and its controller (KIP-700)."""
        return self._call(self._engine.describe_cluster, timeout, "description of the cluster")

    def describe_api_versions(self, timeout: float | None = None) -> tuple[BrokerApiVersions, ...]:
        """Which versions of which APIs each broker speaks, by broker id (KIP-35).

        Every broker is asked, each until it answers or the time is up: `error` of those that
        didn't says why. Raises only where no broker at all can be had.
        """
        return self._call(
            self._engine.describe_api_versions, timeout, "versions of the brokers' APIs"
        )

    def describe_reachability(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> Reachability:
        """Dial every bootstrap address and every address that a broker advertises, and ask there.

        Looks at `topics`, all of them for None, for partitions that have no leader. An address that
        fails three times in a row isn't waited for once the others have answered. What is wrong
        stands in the result, whose `state` is "well", "partly" or "out of reach"; raises only where
        no metadata at all can be had, as for other calls.
        """
        names = None if topics is None else topic_names("topics", topics)
        return self._call(
            lambda d: self._engine.describe_reachability(names, d),
            timeout,
            "answers of the cluster's addresses",
        )

    def examine(
        self,
        topics: Sequence[str] | str | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> Examination:
        """What a cluster is to this client: what `odradek doctor` looks at.

        All that `describe_reachability` finds; of `topics` that are named also what this client may
        do with them; and of `group` whether it may use it, what was committed and how many records
        wait. What couldn't be found out stands in the result as an error. Raises only where no
        metadata at all can be had: `explain()` says then at which stage each address fails.
        """
        names = None if topics is None else topic_names("topics", topics)
        who = None if group is None else group_id(group)
        return self._call(
            lambda d: self._engine.examine(names, who, d), timeout, "answers of the cluster"
        )
