"""Check after a leader change whether the log still contains the records that were read (KIP-320).

In: partitions to fetch from a leader of a newer epoch, and the epoch of the last fetched record.
Out: OffsetForLeaderEpoch requests, one per leader at a time; then the fetch continues, or the
position moves back to where the logs diverge (as in Java), or, with `auto.offset.reset=none`, the
next poll raises. An unclean election can remove records that were read already; other records then
have their offsets, and would be skipped or mixed in unnoticed. Without topic ids, a leader of a
lower epoch means that its topic was recreated. Must not: fetch. A position without an epoch (a
seek, an old commit) can't be checked and isn't.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from odradek.clients.cluster_check import ClusterCheck
from odradek.clients.consumer.fetching.epoch_ends import REPLICA_ID, is_supported
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import LogTruncationError
from odradek.clients.consumer.subscription_state import EARLIEST, NONE, SubscriptionState
from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.errors.kafka import error_for
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import NO_ID, Cluster
from odradek.metadata.partitions import Partition, term
from odradek.network.connection import Connection
from odradek.network.engine import Engine
from odradek.network.flow import Completion
from odradek.network.network_client import NetworkClient
from odradek.protocol.message import Message
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger("odradek.consumer")

CLUSTER_RECHECK_S = 1.0
"""Seconds until the client checks again whether a leader belongs to its cluster."""


EARLIER_TOPIC = (
    "%s: the offset %d (leader epoch %d) lies beyond the end of the log, and no leader was elected "
    "after that epoch (now %d). The offset was committed for an earlier topic of this name, which "
    "was deleted: the consumer reads this topic from its beginning"
)
EARLIER_TOPIC_OR_ELECTION = (
    "%s: the offset %d (leader epoch %d) isn't in the log of the current leader (epoch %d). Either "
    "records were lost in an unclean election, or the offset was committed for an earlier topic of "
    "this name, which was deleted. The consumer assumes the first and continues where the logs "
    "diverge. In the second case, call seek_to_beginning() to read the whole topic"
)


RECREATED = (
    "%s: the offset %d (leader epoch %d) isn't in the log of the current leader (epoch %d). It was "
    "committed for an earlier topic of this name, which was deleted: the consumer reads this topic "
    "from its beginning"
)


class Question(NamedTuple):
    """A request to a partition's leader for the offset at which an epoch ends in its log."""

    address: Address
    leader_epoch: int
    """The leader's epoch; if it is unknown, a negative number for the leader (see `term`)."""
    generation: int
    offset: int
    epoch: int
    """Epoch of the record before the offset; if `ends`, of a leader whose log reached that."""
    ends: bool
    """Whether the offset is the one at which reading ends, not the consumer's position."""


def to_be_checked(state: PartitionState, partition: Partition) -> bool:
    """Return whether no request was sent under the leader's epoch yet.

    If the epoch is unknown, return whether the leader is another broker than at the last request.
    """
    epoch = term(partition)
    if epoch < 0:
        return epoch != state.checked_under
    return epoch > max(state.checked_under, state.until_epoch) or made_anew(state, epoch)


def made_anew(state: PartitionState, epoch: int) -> bool:
    """Return whether a topic was recreated: its epoch is lower than a known one.

    A lower epoch isn't just outdated: outdated metadata is never applied (R-ID-4).
    """
    return 0 <= epoch < max(state.checked_under, state.known_epoch)


class TruncationCheck:
    """Checks fetch positions against new leaders."""

    def __init__(
        self,
        engine: Engine,
        network: NetworkClient,
        subscription: SubscriptionState,
        whose: ClusterCheck,
        *,
        retry: Callable[[PartitionState, KafkaError, float, Address], None],
        out_of_range: Callable[[PartitionState], None],
    ) -> None:
        self._engine = engine
        self._network = network
        self._subscription = subscription
        self._whose = whose
        self._retry = retry
        self._out_of_range = out_of_range
        self._asked: dict[PartitionState, Question] = {}

    def check(
        self, unchecked: Iterable[tuple[PartitionState, Partition]], snapshot: Cluster, now: float
    ) -> float:
        """Ask the leaders of partitions whose last epoch isn't checked yet.

        Returns the time for the next attempt if a leader can't be connected yet.
        """
        network = self._network
        groups: dict[Address, list[tuple[PartitionState, Question]]] = {}
        for state, partition in unchecked:
            leader = snapshot.brokers.get(partition.leader)
            if leader is None or state.fetch_offset is None:
                continue
            ends = state.until_epoch >= 0
            question = Question(
                leader.address,
                term(partition),
                state.generation,
                state.until if ends else state.fetch_offset,
                state.until_epoch if ends else state.fetch_epoch,
                ends,
            )
            asked = self._asked.get(state)
            # One request at a time: otherwise an application that seeks in a loop would pile up
            # requests at a silent leader.
            if asked is None or asked.address != question.address:
                groups.setdefault(leader.address, []).append((state, question))
        wake_at = math.inf
        for address, parts in groups.items():
            connection = network.ready(address, now)
            if connection is None:
                wake_at = min(wake_at, network.next_dial_at(address, now))
            elif self._whose.passed(connection, now):
                if not self._send(connection, parts, now):
                    wake_at = math.nextafter(now, math.inf)
            else:  # a broker of another cluster could move the position (R-RB-5)
                wake_at = min(wake_at, now + CLUSTER_RECHECK_S)
        return wake_at

    def _send(
        self, connection: Connection, parts: list[tuple[PartitionState, Question]], now: float
    ) -> bool:
        """Ask a leader; return False if its connection doesn't support the request."""
        if not is_supported(connection):
            for state, question in parts:
                if made_anew(state, question.leader_epoch):
                    self.began_anew(state, question.leader_epoch)
                else:
                    self._good(state, question)
            return False
        topics: dict[str, OffsetForLeaderTopic] = {}
        for state, question in parts:
            name, number = state.partition
            topic = topics.setdefault(name, OffsetForLeaderTopic(name))
            topic.partitions.append(
                OffsetForLeaderPartition(number, max(question.leader_epoch, -1), question.epoch)
            )
            self._asked[state] = question
        body = OffsetForLeaderEpochRequest(REPLICA_ID, list(topics.values()))
        reply = self._network.send(connection, body, now)
        reply.when_done(lambda done: self._answered(parts, done))
        return True

    # Responses

    def _answered(
        self, parts: list[tuple[PartitionState, Question]], reply: Completion[Message]
    ) -> None:
        now = self._engine.now
        if self._engine.ended is not None:
            return
        answers: dict[TopicPartition, EpochEndOffset] = {}
        if reply.error is None:
            response = cast("OffsetForLeaderEpochResponse", reply.result())
            answers = {
                TopicPartition(t.topic, p.partition): p
                for t in response.topics
                for p in t.partitions
            }
        self._subscription.touch()
        for state, question in parts:
            if self._asked.get(state) != question:
                continue  # the response belongs to an older request
            del self._asked[state]
            stale = state.generation != question.generation
            if stale or not self._subscription.holds(state):
                continue
            answer = answers.get(state.partition)
            if reply.error is not None:
                self._failed(state, reply.error, question.address, now)
            elif answer is None:
                missing = DisconnectedError(f"{state.partition} is missing from the response")
                self._failed(state, missing, question.address, now)
            elif answer.error_code:
                what = f"OffsetForLeaderEpoch of {state.partition}"
                error = error_for(answer.error_code, what)
                error.needing("READ", state.partition.topic)
                self._failed(state, error, question.address, now)
            else:
                self._judge(state, question, answer, now)

    def _failed(
        self, state: PartitionState, error: BaseException, address: Address, now: float
    ) -> None:
        if not isinstance(error, KafkaError):
            raise error
        if error.retriable:
            self._retry(state, error, now, address)
        else:
            self._subscription.fail(state, error, now)

    def _good(self, state: PartitionState, question: Question) -> None:
        state.checked(question.leader_epoch)
        self._subscription.touch()

    def _judge(
        self, state: PartitionState, question: Question, answer: EpochEndOffset, now: float
    ) -> None:
        """Compare the position with the end of the position's epoch in the leader's log."""
        if made_anew(state, question.leader_epoch):
            # The leader accepted the lower epoch in the request, so it is the leader's own epoch.
            state.begin_again(NO_ID)
            logger.warning("topic %s was deleted and created again", state.partition.topic)
            self.began_anew(state, question.leader_epoch)
            self._subscription.readable.notify()
            return
        position = state.position
        known = answer.end_offset >= 0 and answer.leader_epoch >= 0
        judges = known or (question.epoch > question.leader_epoch >= 0 and not question.ends)
        if (known and answer.end_offset >= question.offset) or not judges:
            # A leader whose epoch isn't older than the position's has a later epoch in its log,
            # unless the log keeps none (before Kafka 0.11, or its list was lost). A leader of an
            # unknown epoch that doesn't know the position's epoch may be outdated.
            state.backoff.succeeded()
            self._good(state, question)
        elif question.ends:
            self._cut(state, question, answer, now)
        elif known and position is not None and answer.end_offset >= position:
            # Only records after the position were truncated. Fetching continues at the position,
            # after the position itself is checked.
            state.move_to(position)
        elif state.position == question.offset == state.ownership.span.low and self._foreign(
            state, question
        ):
            pass
        else:
            self._truncated(state, answer if known else None, now)
        self._subscription.readable.notify()

    def _cut(
        self, state: PartitionState, question: Question, answer: EpochEndOffset, now: float
    ) -> None:
        """Report that the log no longer has all offsets up to the end of reading.

        With a reset policy the consumer reads other records at these offsets instead; its position
        is checked next.
        """
        at, where = state.partition, answer.end_offset
        if self._subscription.policy == NONE:
            error = LogTruncationError(at, question.offset, question.epoch, where)
            self._subscription.fail(state, error, now)
            return
        logger.warning("%s: records from offset %d on were lost in an election", at, where)
        state.read_until(question.offset)
        self._subscription.touch()

    def _foreign(self, state: PartitionState, question: Question) -> bool:
        """Reset a position that belongs to an earlier topic; return whether it was reset.

        The position is beyond the log's end. If an unclean election had removed records, the
        leader's epoch would be newer than the position's. Otherwise, and if the topic was recreated
        after the offset was looked up, the offset was committed for another topic of the same name
        (R-ID-3).
        """
        led = max(question.leader_epoch, -1)
        where = state.partition, question.offset, question.epoch, led
        again = self._subscription.looked_up_again(state)
        if again or question.epoch >= question.leader_epoch >= 0:
            logger.warning(RECREATED if again else EARLIER_TOPIC, *where)
            if self._subscription.policy == NONE:
                state.checked(question.leader_epoch)
                self._out_of_range(state)
            else:
                self._subscription.policy_reset(state, EARLIEST)
            return True
        logger.warning(EARLIER_TOPIC_OR_ELECTION, *where)
        return False

    def began_anew(self, state: PartitionState, epoch: int) -> None:
        """Read another topic of the same name from its beginning (KIP-516).

        None of its records was read: a reset to "latest" would skip some.
        """
        self._subscription.topic_replaced(state)
        if self._subscription.policy == NONE:
            # If reading has an end, it refers to the old topic's log, so no check can succeed.
            if state.until_epoch < 0:
                state.checked(epoch)
            self._out_of_range(state)

    def _truncated(self, state: PartitionState, answer: EpochEndOffset | None, now: float) -> None:
        partition, position = state.partition, state.position
        divergent = None if answer is None else answer.end_offset
        if self._subscription.policy == NONE:
            error = LogTruncationError(partition, position or 0, state.position_epoch, divergent)
            self._subscription.fail(state, error, now)
            return
        logger.warning(
            "%s: records were lost in an election; the log differs from what was read %s; the "
            "consumer continues there",
            partition,
            f"from offset {divergent} (position {position})"
            if divergent is not None
            else f"at an unknown offset before position {position}",
        )
        if answer is None:
            self._subscription.policy_reset(state)
        else:
            state.move_to(answer.end_offset, answer.leader_epoch)
            self._subscription.touch()
