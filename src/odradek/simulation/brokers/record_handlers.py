"""Handle Fetch and ListOffsets, which read a partition's log.

In: a broker, a decoded request, its version, and a callback for a later response (a long poll waits
for data). Out: the response, or None if it comes later. `produce_handler` writes the log. Must not
know connections.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.protocol.messages import fetch as f
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.simulation.brokers.cluster_state import BrokerState, Reply
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition, SimulatedTopic

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
READ_COMMITTED = 1
"""Kafka's number for the isolation level read_committed."""


def led_partition(
    broker: BrokerState, topic: SimulatedTopic, index: int, leader_epoch: int = -1
) -> SimulatedPartition:
    """Return the partition; raise if this broker doesn't lead it in the client's epoch."""
    if not 0 <= index < len(topic.partitions):
        raise errors.UnknownTopicOrPartitionError(f"{topic.name} has no partition {index}")
    partition = topic.partitions[index]
    if partition.leader == NO_LEADER:
        raise errors.LeaderNotAvailableError(f"{topic.name}-{index} has no leader")
    if partition.leader != broker.id or not broker.registered:
        raise errors.NotLeaderOrFollowerError(f"{topic.name}-{index}: led by {partition.leader}")
    _check_epoch(partition, leader_epoch)
    return partition


def _check_epoch(partition: SimulatedPartition, leader_epoch: int) -> None:
    if leader_epoch != -1 and leader_epoch < partition.leader_epoch:
        raise errors.FencedLeaderEpochError(f"{leader_epoch} after {partition.leader_epoch}")
    if leader_epoch > partition.leader_epoch:
        raise errors.UnknownLeaderEpochError(f"{leader_epoch} before {partition.leader_epoch}")


def _fetched_partition(
    broker: BrokerState, topic: SimulatedTopic, asked: f.FetchPartition, version: int
) -> SimulatedPartition:
    """Return a partition that this broker leads or, from version 11 on and with a rack, follows."""
    if version >= 11 and broker.rack is not None and asked.partition < len(topic.partitions):
        found = topic.partitions[asked.partition]
        if broker.registered and broker.id in found.replicas and found.leader != NO_LEADER:
            _check_epoch(found, asked.current_leader_epoch)
            return found
    return led_partition(broker, topic, asked.partition, asked.current_leader_epoch)


def _closer_replica(
    broker: BrokerState, partition: SimulatedPartition, rack: str, offset: int
) -> BrokerState | None:
    """Return a follower in the client's rack whose log has the offset; None if there is none."""
    if not rack or partition.leader != broker.id or broker.rack in (None, rack):
        return None
    for found in (broker.cluster.brokers[r] for r in partition.replicas):
        up_to_date = offset <= partition.log.end_offset - found.behind
        if found.rack == rack and found.registered and up_to_date:
            return found
    return None


def find_topic(broker: BrokerState, name: str, topic_id: bytes, *, by_id: bool) -> SimulatedTopic:
    """Return the topic by name or id, depending on the version."""
    found = broker.cluster.topic_by_id(topic_id) if by_id else broker.cluster.topics.get(name)
    if found is None:
        if by_id:
            raise errors.UnknownTopicIdError(topic_id.hex())
        raise errors.UnknownTopicOrPartitionError(name)
    return found


MOVED = (errors.NotLeaderOrFollowerError, errors.FencedLeaderEpochError)


def place(broker: BrokerState) -> tuple[str, int]:
    """Return the host and port of a broker's address."""
    return broker.address.host, broker.address.port


# Fetch


def fetch(
    broker: BrokerState, request: f.FetchRequest, version: int, reply: Reply
) -> f.FetchResponse | None:
    """Return committed batches; if they have too few bytes, wait for more up to `max_wait_ms`."""
    try:
        session = broker.fetch_sessions.session(request)
    except BrokerError as error:
        return f.FetchResponse(error_code=error.code or -1)
    whole = session.whole(request)
    response, size, failed = _read_all(broker, whole, version)
    enough = size >= request.min_bytes or failed or not whole.topics
    if enough or request.max_wait_ms <= 0:
        return session.finish(response)
    _LongPoll(broker, whole, version, lambda late: reply(session.finish(late))).begin()
    return None


class _LongPoll:
    """A fetch that waits for enough bytes, for an error, or for the end of `max_wait_ms`."""

    def __init__(
        self,
        broker: BrokerState,
        request: f.FetchRequest,
        version: int,
        reply: Callable[[f.FetchResponse], None],
    ) -> None:
        self._broker, self._request, self._version = broker, request, version
        self._reply = reply
        self._partitions: list[SimulatedPartition] = []
        for asked in request.topics:
            topic = find_topic(broker, asked.topic, asked.topic_id, by_id=version >= 13)
            self._partitions += [topic.partitions[a.partition] for a in asked.partitions]

    def begin(self) -> None:
        """Wait for commits, for changes of leaders, and for the end of `max_wait_ms`."""
        time = self._broker.time
        self._timer = time.after(self._request.max_wait_ms / 1000.0, self._times_up)
        for partition in self._partitions:
            partition.log.on_commit[self._look] = None
        self._broker.cluster.on_change[self._look] = None

    def _look(self) -> None:
        response, size, failed = _read_all(self._broker, self._request, self._version)
        if failed or size >= self._request.min_bytes:
            self._timer.cancel()
            self._end(response)

    def _times_up(self) -> None:
        self._end(_read_all(self._broker, self._request, self._version)[0])

    def _end(self, response: f.FetchResponse) -> None:
        for partition in self._partitions:
            partition.log.on_commit.pop(self._look, None)
        self._broker.cluster.on_change.pop(self._look, None)
        self._reply(response)


def _read_all(
    broker: BrokerState, request: f.FetchRequest, version: int
) -> tuple[f.FetchResponse, int, bool]:
    """Return the response as of now, its size in bytes, and whether it must be sent now."""
    broker = broker.view  # the broker may have been cut off since the fetch arrived
    response = f.FetchResponse()
    left, failed = request.max_bytes, False
    size = 0
    for asked in request.topics:
        of_topic = f.FetchableTopicResponse()
        if version >= 13:
            of_topic.topic_id = asked.topic_id
        else:
            of_topic.topic = asked.topic
        response.responses.append(of_topic)
        for part in asked.partitions:
            topic = None
            try:
                topic = find_topic(broker, asked.topic, asked.topic_id, by_id=version >= 13)
                room = min(left, part.partition_max_bytes)
                partition = _fetched_partition(broker, topic, part, version)
                closer = _closer_replica(broker, partition, request.rack_id, part.fetch_offset)
                if closer is not None and version >= 11:
                    answer = f.PartitionData(
                        part.partition,
                        aborted_transactions=None,
                        preferred_read_replica=closer.id,
                        records=b"",
                    )
                    failed = True
                else:
                    answer = _read(
                        broker,
                        partition,
                        part,
                        room,
                        whole_first=size == 0,
                        committed_only=request.isolation_level == READ_COMMITTED,
                    )
            except BrokerError as error:
                answer = _refusal(broker, part.partition, topic, error, version, response)
            of_topic.partitions.append(answer)
            failed |= answer.error_code != 0
            got = len(answer.records or b"")
            size += got
            left -= got
    return response, size, failed


def _read(
    broker: BrokerState,
    partition: SimulatedPartition,
    asked: f.FetchPartition,
    room: int,
    *,
    whole_first: bool,
    committed_only: bool,
) -> f.PartitionData:
    log = partition.log
    behind = 0 if partition.leader == broker.id else broker.behind
    end = log.end_offset - behind
    high_watermark = min(log.high_watermark, end)
    stable = log.transactions.last_stable_offset(high_watermark)
    answer = f.PartitionData(
        asked.partition,
        0,
        high_watermark,
        stable,
        log.start_offset,
        aborted_transactions=None,
        records=b"",
    )
    if not log.start_offset <= asked.fetch_offset <= end:
        answer.error_code = errors.OffsetOutOfRangeError.code
        return answer
    limit = stable if committed_only else high_watermark
    if committed_only:
        answer.aborted_transactions = []
    if asked.fetch_offset >= limit or (room <= 0 and not whole_first):
        return answer
    data = log.read(asked.fetch_offset, room, whole_first=whole_first, until=min(end, limit))
    answer.records = memoryview(data)
    if committed_only:
        found = log.transactions.aborted(asked.fetch_offset, limit)
        answer.aborted_transactions = [f.AbortedTransaction(*entry) for entry in found]
    return answer


def _refusal(
    broker: BrokerState,
    index: int,
    topic: SimulatedTopic | None,
    error: BrokerError,
    version: int,
    response: f.FetchResponse,
) -> f.PartitionData:
    code = error.code if error.code is not None else -1
    answer = f.PartitionData(index, code, -1, aborted_transactions=None, records=b"")
    if version >= 12 and topic is not None and isinstance(error, MOVED):  # KIP-951
        partition = topic.partitions[index]
        answer.current_leader = f.LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
        leader = broker.cluster.brokers.get(partition.leader)
        known = {n.node_id for n in response.node_endpoints}
        if version >= 16 and leader is not None and leader.id not in known:
            response.node_endpoints.append(f.NodeEndpoint(leader.id, *place(leader)))
    return answer


# ListOffsets


def list_offsets(
    broker: BrokerState, request: ListOffsetsRequest, version: int, reply: Reply
) -> ListOffsetsResponse:
    """Return the first or last offsets of partitions, or the offsets at a timestamp."""
    response = ListOffsetsResponse()
    for asked in request.topics:
        of_topic = ListOffsetsTopicResponse(asked.name)
        response.topics.append(of_topic)
        for part in asked.partitions:
            answer = ListOffsetsPartitionResponse(part.partition_index)
            of_topic.partitions.append(answer)
            try:
                topic = find_topic(broker, asked.name, b"", by_id=False)
                stable = request.isolation_level == READ_COMMITTED
                found = _offset(broker, topic, part, committed_only=stable)
            except BrokerError as error:
                answer.error_code = error.code if error.code is not None else -1
                continue
            if found is not None:
                answer.offset, answer.timestamp, epoch = found
                if version >= 4:
                    answer.leader_epoch = epoch
    return response


def _offset(
    broker: BrokerState,
    topic: SimulatedTopic,
    asked: ListOffsetsPartition,
    *,
    committed_only: bool,
) -> tuple[int, int, int] | None:
    partition = led_partition(broker, topic, asked.partition_index, asked.current_leader_epoch)
    log = partition.log
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1, log.leader_epoch_at(log.start_offset)
    if broker.time.now < partition.offsets_unavailable_until:
        raise errors.OffsetNotAvailableError("the new leader doesn't know its high watermark yet")
    end = log.last_stable_offset if committed_only else log.high_watermark
    if asked.timestamp == LATEST:
        return end, -1, partition.leader_epoch
    if asked.timestamp == MAX_TIMESTAMP:
        return log.latest_timestamp()
    found = log.offset_for_timestamp(asked.timestamp)
    return found if found is None or found[0] < end else None
