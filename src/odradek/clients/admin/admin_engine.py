"""The engine of one admin client: every call is one or more requests that any broker may answer.

In: topics to make, to delete, to describe. Out: descriptions. KIP-580: each call backs off by
itself; R-RT-2: its deadline is the only limit. A KRaft broker forwards changes to the controller,
so no broker has to be chosen. Must not: change the client's own snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from odradek.clients.admin.admin_arguments import NewTopic as NewTopic
from odradek.clients.admin.api_versions import describe_api_versions
from odradek.clients.admin.examination import examine
from odradek.clients.admin.reachability import describe_reachability
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
from odradek.network.effects import AnyRequest
from odradek.network.flow import START, Flow
from odradek.protocol.message import Message
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

M = TypeVar("M", bound=Message)

HEARSAY = 30.0
"""Seconds for which a new topic may be unknown to a broker that hasn't heard of it."""


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

        def body(left: int, wanted: list[str]) -> CreateTopicsRequest:
            made = [_creatable(t) for t in topics if t.name in wanted]
            return CreateTopicsRequest(made, left, validate_only)

        yield from self._change(
            AnyBrokerCall(self, f"creation of {', '.join(names)}", deadline),
            *(names, body, CreateTopicsResponse),
            lambda answer: [(t.name, t.error_code, t.error_message) for t in answer.topics],
            TopicAlreadyExistsError,
            right="CREATE",
            changes=not validate_only,
        )
        if validate_only:
            return {}
        self._fresh.update(dict.fromkeys(names, self.now + HEARSAY))
        return (yield from self._await_leaders(names, deadline))

    def delete_topics(self, names: Sequence[str], deadline: float) -> Flow[None]:
        """Delete topics by name."""
        yield START
        if not names:
            return

        def body(left: int, wanted: list[str]) -> DeleteTopicsRequest:
            return DeleteTopicsRequest([DeleteTopicState(n) for n in wanted], wanted, left)

        yield from self._change(
            AnyBrokerCall(self, f"deletion of {', '.join(names)}", deadline),
            *(names, body, DeleteTopicsResponse),
            lambda answer: [
                (t.name or "", t.error_code, t.error_message) for t in answer.responses
            ],
            UnknownTopicOrPartitionError,
            right="DELETE",
        )
        for name in names:
            self._fresh.pop(name, None)

    def _change(
        self,
        call: AnyBrokerCall,
        names: Sequence[str],
        body: Callable[[int, list[str]], AnyRequest],
        response: type[M],
        said: Callable[[M], Iterable[tuple[str, int, str | None]]],
        already: type[KafkaError],
        *,
        right: str,
        changes: bool = True,
    ) -> Flow[None]:
        """Ask until all topics are changed. `body` gets the milliseconds left and the topics that
        aren't; `said` gives name, code and reason of each. A request of ours that was lost may
        have done it, so `already` is success then; not where a request `changes` nothing.
        """
        done: set[str] = set()
        doubtful: set[str] = set()

        def check(answer: M, _: Connection) -> KafkaError | None:
            retriable: KafkaError | None = None
            for name, code, reason in said(answer):
                if not code:
                    done.add(name)
                    continue
                error = error_for(code, f"topic {name}" + (f": {reason}" if reason else ""))
                error.needing(right, name)
                ours = changes and (call.answer_lost or name in doubtful)
                if ours and isinstance(error, already):
                    done.add(name)
                elif error.retriable and not isinstance(error, already):
                    retriable = _noted(name, error, doubtful)
                else:
                    raise error
            return retriable

        def wanted(left: float) -> AnyRequest:
            milliseconds = max(1, min(int(left * 1000), 2**31 - 1))
            return body(milliseconds, [n for n in names if n not in done])

        yield from call.ask(wanted, response, check, idempotent=False)

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

    def describe_topics(
        self, names: Sequence[str], deadline: float
    ) -> Flow[dict[str, TopicDescription]]:
        """Describe topics by name; patient with those that were just made here."""
        now = yield START
        self._fresh = {n: until for n, until in self._fresh.items() if until > now}
        return (yield from describe_topics(self, names, deadline, patient_with=self._fresh))

    list_topics = list_topics
    describe_api_versions = describe_api_versions
    describe_reachability = describe_reachability
    examine = examine

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
    """A controller that runs out of time may still have done it. One that asks to wait (KIP-599)
    hasn't begun, nor has a broker before KRaft that isn't the controller.
    """
    if isinstance(error, RequestTimedOutError | NetworkExceptionError):
        doubtful.add(topic)
    return error
