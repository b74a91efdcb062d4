"""`AdminClient` as confluent-kafka has it, over ours: futures by what they are about.

In: topics and names. Out: futures, which a thread of the client's own completes, one call after the
other. Must not: do what our admin client can't: that raises and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import odradek
from odradek.common.option_values import ADMIN
from odradek.compat.confluent_kafka.admin.values import (
    DescribeClusterResult,
    NewTopic,
    TopicDescription,
    cluster_result,
    nodes_of,
    our_topic,
    topic_result,
)
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata, ClusterQuestions
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.model import TopicCollection
from odradek.compat.confluent_kafka.settings import checked_seconds, given
from odradek.compat.confluent_kafka.translated_errors import raise_error, translating

T = TypeVar("T")

MISSING = frozenset(
    (
        *("create_partitions", "list_groups", "list_consumer_groups", "describe_consumer_groups"),
        *("delete_consumer_groups", "list_consumer_group_offsets", "alter_consumer_group_offsets"),
        *("describe_configs", "alter_configs", "incremental_alter_configs"),
        *("create_acls", "describe_acls", "delete_acls", "list_offsets", "delete_records"),
        *("describe_user_scram_credentials", "alter_user_scram_credentials", "elect_leaders"),
    )
)
"""Methods of theirs that aren't in this module; `odradek.Admin` has most of them."""


class AdminClient:
    """Makes, deletes and describes topics, and describes the cluster.

    Calls give futures at once; `result()` raises `KafkaException`. What isn't in this release
    raises `KafkaException` with `_NOT_IMPLEMENTED` and its name when it is called.
    """

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._given = given(ADMIN, conf, kwargs)
        self._queue = CallbackQueue(self._given)
        self._questions = ClusterQuestions(self._given.ours)
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False
        admin = self._questions.admin()
        if self._queue.hears:
            admin.listen(self._queue.hear)

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name not in MISSING:
            raise AttributeError(f"'AdminClient' object has no attribute {name!r}", name=name)

        def missing(*_: Any, **__: Any) -> NoReturn:
            raise_error(
                KafkaError._NOT_IMPLEMENTED,
                f"{name}() isn't in this module: it makes, deletes and describes topics, and "
                "describes the cluster; odradek.Admin does more",
            )

        return missing

    def _check_open(self, what: str = "AdminClient") -> None:
        if self._closed:
            raise RuntimeError(f"{what} has been closed")

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def _seconds(self, timeout: float | None) -> float:
        self._check_open()
        if timeout is None:
            return self._given.answer_timeout
        if checked_seconds(timeout) != timeout:
            raise ValueError(f"a timeout is no time below 0: {timeout}")
        return float(timeout)

    def _later(self, call: Callable[[odradek.Admin, float], T], seconds: float) -> Future[T]:
        """Have something done in the client's own thread, so many seconds from now at most."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "odradek-admin")
        deadline = time.monotonic() + seconds

        def run() -> T:
            with translating():
                return call(self._questions.admin(), max(0.0, deadline - time.monotonic()))

        return self._thread.submit(run)

    # Topics

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Make topics; a future for each name, None once all its partitions have leaders.

        `request_timeout` in seconds. Raises `KafkaException` with `_NOT_IMPLEMENTED` for a
        `replica_assignment`.
        """
        seconds = self._seconds(request_timeout)
        self._seconds(operation_timeout)  # our client waits for leaders in any case
        if not isinstance(validate_only, bool):
            raise TypeError(f"validate_only must be a bool, not {type(validate_only).__name__}")
        if not isinstance(new_topics, list) or not new_topics:
            raise ValueError("a list of NewTopics is needed, with one at least")
        for topic in new_topics:
            if not isinstance(topic, NewTopic):
                raise TypeError(f"a NewTopic is needed, not {type(topic).__name__}")
            if topic.replica_assignment is not None:
                raise_error(KafkaError._NOT_IMPLEMENTED, "replica_assignment isn't in this release")
        return {
            topic.topic: self._later(_create(topic, validate_only=validate_only), seconds)
            for topic in new_topics
        }

    def delete_topics(
        self,
        topics: list[str],
        *,
        operation_timeout: float = 0,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Delete topics; a future for each name."""
        seconds = self._seconds(request_timeout)
        self._seconds(operation_timeout)
        if not isinstance(topics, list):
            raise TypeError(f"a list of topics' names is needed, not {type(topics).__name__}")
        if not topics or not all(isinstance(topic, str) for topic in topics):
            raise ValueError("a list of topics' names is needed, with one at least")
        return {topic: self._later(_delete(topic), seconds) for topic in topics}

    def describe_topics(
        self,
        topics: TopicCollection,
        *,
        request_timeout: float | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics; a future for each name."""
        _no_operations(include_authorized_operations)
        if not isinstance(topics, TopicCollection):
            raise TypeError(f"a TopicCollection is needed, not {type(topics).__name__}")
        seconds = self._seconds(request_timeout)
        return {topic: self._later(_describe(topic), seconds) for topic in topics.topic_names}

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The cluster's brokers and topics, or one topic; waits for the answer."""
        self._check_open("Handle")
        return self._questions.list_topics(topic, timeout)

    # The cluster

    def describe_cluster(
        self,
        *,
        request_timeout: float | None = None,
        include_authorized_operations: bool = False,
    ) -> Future[DescribeClusterResult]:
        """Describe the cluster."""
        _no_operations(include_authorized_operations)
        seconds = self._seconds(request_timeout)
        return self._later(_describe_cluster, seconds)

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id; waits for the answer."""
        self._check_open("Handle")
        with translating():
            return self._questions.admin().cluster_id(checked_seconds(timeout))

    def poll(self, timeout: float = -1) -> int:
        """Make the calls of `error_cb` that wait; gives their number. Futures need none of it."""
        self._check_open()
        return self._queue.serve(checked_seconds(timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from the next login on (PLAIN and SCRAM)."""
        self._check_open("Handle")
        if not self._given.checked_login(username, password):
            return
        with translating():
            self._questions.set_sasl_credentials(username, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._closed = True
        self._questions.close()


def _create(topic: NewTopic, *, validate_only: bool) -> Callable[[odradek.Admin, float], None]:
    wanted = our_topic(topic)

    def create(admin: odradek.Admin, seconds: float) -> None:
        admin.create_topics([wanted], seconds, validate_only=validate_only)

    return create


def _delete(topic: str) -> Callable[[odradek.Admin, float], None]:
    return lambda admin, seconds: admin.delete_topics([topic], seconds)


def _describe(topic: str) -> Callable[[odradek.Admin, float], TopicDescription]:
    def describe(admin: odradek.Admin, seconds: float) -> TopicDescription:
        nodes = nodes_of(admin.describe_cluster(seconds))
        return topic_result(admin.describe_topics([topic], seconds)[topic], nodes)

    return describe


def _describe_cluster(admin: odradek.Admin, seconds: float) -> DescribeClusterResult:
    return cluster_result(admin.describe_cluster(seconds))


def _no_operations(wanted: bool) -> None:
    if wanted:
        raise_error(
            KafkaError._NOT_IMPLEMENTED, "include_authorized_operations isn't in this release"
        )
