"""Coordinate transactions: their states, markers and timeouts.

In: requests from `transaction_handlers` and from partition leaders. Out: states that are written to
`__transaction_state` before they take effect; markers in the logs of all partitions of a
transaction, and ends of transactions in groups' offsets. A new leader resumes the work of the last
one. Simplified: coordinators and leaders communicate without delay, or not at all. Must not know
versions of requests, or connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.simulation.coordinators import transaction_states as states
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC, GroupTopic
from odradek.simulation.coordinators.shards import (
    CoordinatedCluster,
    CoordinatingBroker,
    CoordinatorTopic,
    Entry,
    Key,
    Leadership,
)
from odradek.simulation.coordinators.transaction_states import State, TransactionMetadata
from odradek.simulation.logs.topics import NO_LEADER

MARKER_RETRY = 0.05
PENDING_LOOK = 0.1
"""Seconds between checks of an expired timeout while a state of the transaction is written."""

Then = Callable[[BrokerError | None], None]
Answer = Callable[[TransactionMetadata | BrokerError], None]


class TransactionTopic(CoordinatorTopic["TransactionShard"]):
    """The topic `__transaction_state` of a cluster, and the settings for transactions."""

    def __init__(self, cluster: CoordinatedCluster, groups: GroupTopic) -> None:
        def make(leadership: Leadership[TransactionShard]) -> TransactionShard:
            return TransactionShard(leadership, self)

        super().__init__(cluster, "__transaction_state", make, partitions=10)
        self.groups = groups
        self._version = states.KIP_890
        self.features_epoch = 1
        """Epoch of the finalized features, which increases with every change (KIP-584)."""
        self.longest = 900.0
        """`transaction.max.timeout.ms` in seconds."""
        self.marker_delay = 0.005
        """Average time in seconds until a marker is written to a partition; the maximum is twice as
        long."""

    @property
    def version(self) -> int:
        """The finalized transaction.version of the cluster: 0, 1 or 2."""
        return self._version

    def finalize(self, level: int) -> None:
        """Finalize a transaction.version; clients get it when they connect."""
        self._version = level
        self.features_epoch += 1

    def may_write(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        place: TopicPartition,
        then: Then,
        *,
        add: bool,
    ) -> None:
        """Check for a partition's leader that the transaction contains the partition, or add it.

        `then` is called with None or the error: at once after a check, and after an addition when
        the coordinator has written it.
        """
        try:
            shard = self.shard_at(self._coordinator(transactional_id), self.index(transactional_id))
            if add:
                shard.add(transactional_id, producer_id, epoch, [place], then)
                return
            shard.verify(transactional_id, producer_id, epoch, place)
        except BrokerError as error:
            then(error)
        else:
            then(None)

    def _coordinator(self, transactional_id: str) -> CoordinatingBroker:
        topic = self.cluster.topics.get(self.name)
        leader = NO_LEADER
        if topic is not None:
            leader = topic.partitions[self.index(transactional_id)].leader
        if leader == NO_LEADER or not self.cluster.brokers[leader].reachable:
            raise errors.CoordinatorNotAvailableError(f"{transactional_id}: {leader}")
        return self.cluster.brokers[leader]


class TransactionShard:
    """State in memory of one partition's transactional ids and their transactions."""

    def __init__(self, leadership: Leadership[TransactionShard], topic: TransactionTopic) -> None:
        self._at = leadership
        self._cluster = leadership.cluster
        self._topic = topic
        self.known: dict[str, TransactionMetadata] = {}
        self._pending: dict[str, State] = {}
        """New states that are being written to the internal topic, by transactional id."""

    # Life cycle

    def replay(self, key: tuple[object, ...], value: TransactionMetadata | None) -> None:
        """Apply a transactional id's state that was written to the internal topic."""
        if value is not None:
            self.known[value.transactional_id] = value

    def loaded(self) -> None:
        """Send markers that may be missing, and start the timeouts of open transactions."""
        for found in self.known.values():
            if found.state in states.PREPARED:
                self._send_markers(found)
            elif found.state is State.ONGOING:
                self._watch(found)

    def stopped(self) -> None:
        """Do nothing: when the leadership is lost, the log reports each pending write as lost."""

    @staticmethod
    def fold(entries: Iterable[Entry]) -> dict[Key, Any]:
        """Return the newest entry of each transactional id."""
        return dict(entries)

    # Requests

    def initialise(
        self, transactional_id: str, timeout: float, expected: tuple[int, int] | None, then: Answer
    ) -> None:
        """Handle InitProducerId: pass a new epoch to `then`, after aborting an open transaction."""
        new_id = self._cluster.new_producer_id
        found = self.known.get(transactional_id)
        if found is None:
            found = TransactionMetadata(transactional_id, new_id())
        self._not_pending(transactional_id)
        after = states.initialised(found, timeout, expected, new_id)

        def written(error: BrokerError | None) -> None:
            if error is None and after.state is State.PREPARE_ABORT:
                self._send_markers(after)
                error = errors.ConcurrentTransactionsError("the open transaction is aborted first")
            then(after if error is None else error)

        self._write(after, written)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Iterable[TopicPartition],
        then: Then,
    ) -> None:
        """Handle AddPartitionsToTxn: add partitions to the transaction."""
        found = self._found(transactional_id)
        states.check_producer(found, producer_id, epoch)
        self._not_pending(transactional_id)
        wanted = frozenset(places)
        if found.state is State.ONGOING and wanted <= found.partitions:
            then(None)
            return
        after = states.added(found, wanted, self._at.time.now)

        def written(error: BrokerError | None) -> None:
            if error is None and after.started != found.started:
                self._watch(after)
            then(error)

        self._write(after, written)

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, place: TopicPartition
    ) -> None:
        """Raise an error unless the partition belongs to the open transaction."""
        found = self._found(transactional_id)
        states.check_producer(found, producer_id, epoch)
        if place not in found.partitions:
            raise errors.TransactionAbortableError(f"{place} isn't in {transactional_id}")

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        then: Answer,
        *,
        commit: bool,
        version: int,
    ) -> None:
        """Handle EndTxn: write the end of the transaction; `then` doesn't wait for the markers.

        `then` is called with the producer id and epoch for the next transaction.
        """
        found = self._found(transactional_id)
        new_id = self._cluster.new_producer_id
        self._not_pending(transactional_id)
        after = states.ended(found, producer_id, epoch, new_id, commit=commit, version=version)
        if after is None:
            then(found)
            return
        prepared = after

        def written(error: BrokerError | None) -> None:
            if error is None:
                self._send_markers(prepared)
            then(states.completed(prepared) if error is None else error)

        self._write(prepared, written)

    def _found(self, transactional_id: str) -> TransactionMetadata:
        found = self.known.get(transactional_id)
        if found is None:
            raise errors.InvalidProducerIdMappingError(f"{transactional_id} isn't known")
        return found

    def _not_pending(self, transactional_id: str) -> None:
        if transactional_id in self._pending:
            raise errors.ConcurrentTransactionsError(f"{transactional_id} is being written")

    def _write(self, after: TransactionMetadata, then: Then) -> None:
        name = after.transactional_id
        self._pending[name] = after.state

        def done(replicated: bool) -> None:
            self._pending.pop(name, None)
            if replicated:
                self.known[name] = after
            then(None if replicated else errors.NotCoordinatorError("the leadership was lost"))

        self._at.write([(("transaction", name), after)], done)

    # Transaction timeouts

    def _watch(self, begun: TransactionMetadata) -> None:
        """Abort the transaction when its timeout is over."""
        left = begun.started + begun.timeout - self._at.time.now
        self._at.after(max(0.0, left), partial(self._overdue, begun.transactional_id, begun))

    def _overdue(self, name: str, begun: TransactionMetadata) -> None:
        found = self.known.get(name)
        if found is None or found.state is not State.ONGOING or found.started != begun.started:
            return
        if name in self._pending:
            self._at.after(PENDING_LOOK, partial(self._overdue, name, begun))
            return
        after = states.fenced(found)
        self._write(after, lambda error: self._send_markers(after) if error is None else None)

    # Transaction markers

    def _send_markers(self, prepared: TransactionMetadata) -> None:
        left = set(prepared.partitions)
        if not left:
            self._complete(prepared)
            return

        def done(place: TopicPartition) -> None:
            left.discard(place)
            if not left:
                self._complete(prepared)

        for place in sorted(left):
            delay = self._topic.marker_delay * 2 * self._at.rng.random()
            self._at.after(delay, partial(self._send, prepared, place, done))

    def _complete(self, prepared: TransactionMetadata) -> None:
        if self._at.held and self.known.get(prepared.transactional_id) == prepared:
            self._write(states.completed(prepared), lambda error: None)

    def _send(
        self,
        prepared: TransactionMetadata,
        place: TopicPartition,
        done: Callable[[TopicPartition], None],
    ) -> None:
        def again() -> None:
            self._at.after(MARKER_RETRY, partial(self._send, prepared, place, done))

        def settled(replicated: bool) -> None:
            if replicated:
                done(place)
            else:
                again()

        topic = self._cluster.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            # The topic was deleted, and perhaps recreated with fewer partitions.
            done(place)
            return
        where = topic.partitions[place.partition]
        leader = self._cluster.brokers.get(where.leader)
        if leader is None or not leader.reachable:
            again()
            return
        try:
            if place.topic == GROUP_TOPIC:
                groups = self._topic.groups.shard_at(leader, place.partition)
                groups.end_transaction(prepared.producer_id, prepared.commits, settled)
                return
            marker = where.log.append_marker(
                prepared.producer_id,
                prepared.epoch,
                where.leader_epoch,
                int(self._at.time.now * 1000),
                commit=prepared.commits,
            )
        # a producer with a later epoch has written to the partition, so the transaction is over
        except errors.InvalidProducerEpochError:
            done(place)
        except BrokerError:
            again()
        else:
            marker.when_settled(settled)
            self._cluster.replicate(where, marker)
