"""confluent-kafka's `AdminClient`, implemented with Odradek's admin client.

In: a configuration. Out: all admin calls, which the base classes define, and calls for the client
itself. Must not: know what a call requests.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from odradek.common.options.values import ADMIN
from odradek.common.secret import private
from odradek.compat.confluent_kafka.admin.config_calls import ConfigCalls
from odradek.compat.confluent_kafka.admin.group_calls import GroupCalls
from odradek.compat.confluent_kafka.admin.security_calls import SecurityCalls
from odradek.compat.confluent_kafka.admin.topic_calls import TopicCalls
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterQuestions
from odradek.compat.confluent_kafka.settings import checked_seconds, given
from odradek.compat.confluent_kafka.statistics_json import tell_regularly
from odradek.compat.confluent_kafka.translated_errors import translating


class AdminClient(TopicCalls, ConfigCalls, GroupCalls, SecurityCalls):
    """Creates, describes, changes and deletes resources of a cluster.

    Calls return futures at once, and background threads set their results; `result()` raises
    `KafkaException` if the call failed. Timeouts are in seconds, default `socket.timeout.ms`.
    """

    @private
    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._given = given(ADMIN, conf, kwargs)
        self._queue = CallbackQueue(self._given)
        self._questions = ClusterQuestions(self._given.ours, background=True)
        admin = self._questions.admin()
        if self._queue.hears:
            admin.listen(self._queue.hear)
        tell_regularly(self._queue, ADMIN, self._given, self, lambda _: admin)

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def cluster_id(self, timeout: float = -1) -> str:
        """Request the cluster's id and return it."""
        return self._awaited(timeout, lambda admin, left: admin.cluster_id(left()))

    def poll(self, timeout: float = -1) -> int:
        """Call `error_cb` for queued errors and return their number; futures don't need this."""
        self._check_open()
        return self._queue.serve(checked_seconds(timeout))

    @private
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next login on (PLAIN and SCRAM)."""
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
        if self._threads is not None:
            self._threads.shutdown()
        self._closed = True
        self._questions.close()
