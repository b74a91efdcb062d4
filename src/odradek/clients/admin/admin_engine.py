"""The engine of one admin client: every call is one or more requests that any broker may answer.

In: topics to make, to delete, to describe. Out: descriptions. KIP-580: each call backs off by
itself; R-RT-2: its deadline is the only limit. A KRaft broker forwards changes to the controller,
so no broker has to be chosen. Must not: change the client's own snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.clients.admin.admin_arguments import NewTopic as NewTopic
from odradek.clients.admin.api_versions import BrokerApiVersions, describe_api_versions
from odradek.clients.admin.reachability import Reachability, describe_reachability
from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.client_engine import ClientEngine
from odradek.clients.descriptions import (
    BrokerDescription,
    ForeignAnswerError,
    TopicDescription,
    describe_topics,
    list_topics,
)
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import (
    NetworkExceptionError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.types import Rng
from odradek.metadata.bootstrap import check_cluster_id
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

HEARSAY = 30.0
"""Seconds after its making during which a topic may be unknown to a broker that lags behind."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its brokers by id, and the controller's id (None while there is none)."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerDescription, ...]


class AdminEngine(ClientEngine):
    """What an admin client is made of."""

    def __init__(self, config: Config, rng: Rng) -> None:
        super().__init__(config, rng)
        self._fresh: dict[str, float] = {}
        """Topics that were made here, and until when a broker may not have heard of them."""

    def create_topics(
        self, topics: Sequence[NewTopic], deadline: float, *, validate_only: bool
    ) -> Flow[dict[str, TopicDescription]]:
        """Make topics, then wait until a broker knows leaders for all their partitions."""
        yield START
        if not topics:
            return {}
        names = [t.name for t in topics]
        call = AnyBrokerCall(self, f"creation of {', '.join(names)}", deadline)
        done: set[str] = set()
        doubtful: set[str] = set()

        def body(left: float) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=[_creatable(t) for t in topics if t.name not in done],
                timeout_ms=_milliseconds(left),
                validate_only=validate_only,
            )

        def check(response: CreateTopicsResponse, _: Connection) -> KafkaError | None:
            retriable: KafkaError | None = None
            for item in response.topics:
                if item.error_code == 0:
                    done.add(item.name)
                    continue
                error = error_for(item.error_code, _words(item.name, item.error_message))
                error.needing("CREATE", item.name)
                # A request that only validates makes nothing.
                ours = not validate_only and (call.answer_lost or item.name in doubtful)
                if isinstance(error, TopicAlreadyExistsError) and ours:
                    done.add(item.name)  # our own request made it, in spite of what came of it
                elif error.retriable:
                    retriable = _noted(item.name, error, doubtful)
                else:
                    raise error
            return retriable

        yield from call.ask(body, CreateTopicsResponse, check, idempotent=False)
        if validate_only:
            return {}
        self._fresh.update(dict.fromkeys(names, self.now + HEARSAY))
        return (yield from self._await_leaders(names, deadline))

    def _await_leaders(
        self, names: Sequence[str], deadline: float
    ) -> Flow[dict[str, TopicDescription]]:
        call = AnyBrokerCall(self, f"leaders of {', '.join(names)}", deadline)
        while True:
            found = yield from describe_topics(self, names, deadline, patient_with=names)
            left = sum(t.leaderless for t in found.values())
            if not left:
                return found
            yield from call.retry(
                None, KafkaError(f"{left} partitions without a leader yet"), self.now
            )

    def delete_topics(self, names: Sequence[str], deadline: float) -> Flow[None]:
        """Delete topics by name."""
        yield START
        if not names:
            return
        call = AnyBrokerCall(self, f"deletion of {', '.join(names)}", deadline)
        done: set[str] = set()
        doubtful: set[str] = set()

        def body(left: float) -> DeleteTopicsRequest:
            wanted = [n for n in names if n not in done]
            return DeleteTopicsRequest(
                topics=[DeleteTopicState(name=n) for n in wanted],
                topic_names=wanted,
                timeout_ms=_milliseconds(left),
            )

        def check(response: DeleteTopicsResponse, _: Connection) -> KafkaError | None:
            retriable: KafkaError | None = None
            for item in response.responses:
                name = item.name or ""
                if item.error_code == 0:
                    done.add(name)
                    continue
                error = error_for(item.error_code, _words(name, item.error_message))
                error.needing("DELETE", name)
                missing = isinstance(error, UnknownTopicOrPartitionError)
                if missing and (call.answer_lost or name in doubtful):
                    done.add(name)  # our own request deleted it, in spite of what came of it
                elif error.retriable and not missing:
                    retriable = _noted(name, error, doubtful)
                else:
                    raise error
            return retriable

        yield from call.ask(body, DeleteTopicsResponse, check, idempotent=False)
        for name in names:
            self._fresh.pop(name, None)

    def list_topics(self, deadline: float, *, internal: bool) -> Flow[list[str]]:
        """The names of all topics."""
        return list_topics(self, deadline, internal=internal)

    def describe_topics(
        self, names: Sequence[str], deadline: float
    ) -> Flow[dict[str, TopicDescription]]:
        """Describe topics by name; patient with those that were just made here."""
        now = yield START
        self._fresh = {n: until for n, until in self._fresh.items() if until > now}
        return (yield from describe_topics(self, names, deadline, patient_with=self._fresh))

    def describe_api_versions(self, deadline: float) -> Flow[tuple[BrokerApiVersions, ...]]:
        """Ask every broker which versions of which APIs it speaks."""
        return describe_api_versions(self, deadline)

    def describe_reachability(
        self, names: Sequence[str] | None, deadline: float
    ) -> Flow[Reachability]:
        """Dial every address of the cluster, and look for partitions without a leader."""
        return describe_reachability(self, names, deadline)

    def describe_cluster(self, deadline: float) -> Flow[ClusterDescription]:
        """Ask for the cluster's id, brokers and controller (KIP-700)."""
        yield START
        call = AnyBrokerCall(self, "description of the cluster", deadline)

        def check(response: DescribeClusterResponse, connection: Connection) -> KafkaError | None:
            if response.error_code:
                return error_for(response.error_code, response.error_message)
            known = self.metadata.cluster_id
            foreign = check_cluster_id(known, response.cluster_id, connection.address)
            if foreign is None:
                return None
            self.network.fail(connection, foreign, self.now)
            return ForeignAnswerError(str(foreign))

        answer: DescribeClusterResponse = yield from call.ask(
            lambda _: DescribeClusterRequest(), DescribeClusterResponse, check
        )
        brokers = sorted(answer.brokers, key=lambda b: b.broker_id)
        return ClusterDescription(
            answer.cluster_id,
            answer.controller_id if answer.controller_id >= 0 else None,
            tuple(BrokerDescription(b.broker_id, b.host, b.port, b.rack) for b in brokers),
        )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
    )


def _noted(topic: str, error: KafkaError, doubtful: set[str]) -> KafkaError:
    """A controller that runs out of time may still have done it. One that asks for patience
    (KIP-599) hasn't begun, nor has a broker of the days before KRaft that isn't the controller: to
    take a topic that was there for ours would be worse than to say that it is there.
    """
    if isinstance(error, RequestTimedOutError | NetworkExceptionError):
        doubtful.add(topic)
    return error


def _words(topic: str, reason: str | None) -> str:
    return f"topic {topic}: {reason}" if reason else f"topic {topic}"


def _milliseconds(seconds: float) -> int:
    return max(1, min(int(seconds * 1000), 2**31 - 1))
