"""Request the state of a range's log, and judge whether records are lost (R-ID-6).

In: a range with its topic id and leader epoch. Out: the current log, and whether a loss or another
topic id is accepted. Must not: move the position, or decide what happens after a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.api.log_ends import LogEnds
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.spark.checkpoint_errors import NoProgressError
from odradek.spark.driver.discovery import CONFIRM_S, UnconfirmedObservation
from odradek.spark.driver.loss_confirmation import DisagreementError, check_agreement
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

POLL_S = 1.0
PROBE_S, DESCRIBE_S = 10.0, 5.0


class RangeLog:
    """The log of one range, as the brokers describe it now."""

    def __init__(
        self,
        consumer: Consumer,
        wanted: KafkaOffsetRange,
        topic_id: str | None,
        options: SourceOptions,
        clock: Clock,
        doubt: UnconfirmedObservation | None,
    ) -> None:
        self._consumer, self._tp, self._topic_id = consumer, wanted.tp, topic_id
        self._options, self._clock = options, clock
        self._doubt = UnconfirmedObservation(options, clock) if doubt is None else doubt
        self._newest_epoch = wanted.epoch
        self.is_doubtful = False
        """Whether the last request showed a loss that isn't accepted yet."""

    def described_topic_id(self) -> str | None:
        """Return the topic's id from a new request; None if fetches contained the topic id.

        Brokers that fetch by topic name don't notice that the topic was recreated.
        """
        if self._topic_id is None or not LogEnds(self._consumer).fetches_by_name(PROBE_S):
            return None
        topic, begun = self._tp.topic, self._clock.now()
        while True:
            try:
                return self._consumer.describe([topic], timeout=DESCRIBE_S)[topic].topic_id
            except UnknownTopicOrPartitionError:
                return None  # the topic was deleted after the records were read
            except KafkaError as error:
                pass_on_unless_retriable(error)
                if self._clock.now() - begun > self._options.outage_tolerance:
                    raise
            self._clock.pause(POLL_S)

    def ends(self) -> tuple[int, int, int]:
        """Return beginning and end of the log, and the epoch of the leader that returned the end.

        Leaders of older epochs than the range's aren't asked (R-ID-6). The end includes records of
        open transactions, also with `read_committed`.
        """
        tp, self.is_doubtful = self._tp, False
        known = {tp: (self._newest_epoch, self._topic_id)}
        found = LogEnds(self._consumer).ends(known, PROBE_S, stable=False)[tp]
        begin = self._consumer.beginning_offsets([tp], timeout=PROBE_S)[tp]
        return begin, found.offset, found.leader_epoch

    def is_believed(self, leader_epoch: int, epoch: int) -> bool:
        """Return whether a leader's report of a loss counts (R-ID-6).

        It counts if the leader's epoch isn't older than the range's. Otherwise (or if the range has
        no epoch) it must last for a while, and a second broker must report the same leader epoch.
        """
        if not 0 <= epoch <= leader_epoch:
            self.is_doubtful = not self._is_agreed(self._topic_ids(), leader_epoch)
            return not self.is_doubtful
        return True

    def _topic_ids(self) -> dict[str, str]:
        return {} if self._topic_id is None else {self._tp.topic: self._topic_id}

    def _is_agreed(self, topic_ids: Mapping[str, str], leader_epoch: int | None) -> bool:
        """Return whether a loss was seen for long enough, and a second broker agrees."""
        if not self._doubt.settled():
            return False
        tp = self._tp
        epochs = {} if leader_epoch is None else {tp: leader_epoch}
        try:
            check_agreement(self._consumer, [tp], topic_ids, epochs, PROBE_S)
        except DisagreementError as other:
            self._newest_epoch = max(self._newest_epoch, other.newer.get(tp, -1))
            self.ends()  # makes the client switch to the leader of the newest epoch
            return False
        return True

    def confirmed_topic_id(self) -> str:
        """Return the id of the recreated topic, once a second broker has confirmed it.

        A broker that was frozen still returns the old id. Raises `NoProgressError` if brokers don't
        agree on another id: the next attempt has a new client. If no second broker answers, this
        waits for as long as the query tolerates an outage.
        """
        tp, begun = self._tp, self._clock.now()
        while True:
            limit, why = 3 * CONFIRM_S, "name different ids"
            try:
                found = self._consumer.describe([tp.topic], timeout=DESCRIBE_S)[tp.topic]
                there = any(one.partition == tp.partition for one in found.partitions)
                if found.topic_id not in (None, self._topic_id) and self._is_agreed(
                    {tp.topic: found.topic_id or ""}, -1 if there else None
                ):
                    return found.topic_id or ""
            except KafkaError as error:
                pass_on_unless_retriable(error)
                why = f"gave no usable answer: {error}"
                if isinstance(error, KafkaTimeoutError):
                    limit = self._options.outage_tolerance
            if self._clock.now() - begun > limit:
                raise NoProgressError(
                    f"topic {tp.topic} was planned with id {self._topic_id}; brokers {why}\n"
                    f"{self._consumer.explain()}"
                )
            self._clock.pause(POLL_S)


def pass_on_unless_retriable(error: KafkaError) -> None:
    """Raise the error if it is fatal or not retriable."""
    if error.fatal or not error.retriable:
        raise error
