"""Look up offsets with ListOffsets: starts, ends, and the first at or after a time.

In: partitions with a timestamp (-2 for the start, -1 for the end). Out: an offset or an error for
each. One request per leader at a time; retriable errors are retried after a backoff of this call's
own (R-RT-1), at the current leader. Must not: move a position.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

from odradek.clients.any_broker import Brokers
from odradek.clients.client_engine import FINAL_TOPIC_ERRORS
from odradek.clients.missing_topics import MissingTopics
from odradek.common.backoff import Backoff
from odradek.common.errors import DisconnectedError, KafkaError
from odradek.common.errors.kafka import error_for
from odradek.common.outage import number
from odradek.common.topic_names import check_topic
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import Cluster
from odradek.metadata.partitions import Partition
from odradek.network.connection import ASIDE, Connection
from odradek.network.effects import AnyRequest
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

BEGINNING, END = -2, -1
_REPLICA_ID = -1  # Kafka's replica id for clients


class ListedOffset(NamedTuple):
    """Result of a lookup; `offset` is -1 if no record is at or after the requested time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


Found = Callable[[TopicPartition, "ListedOffset | KafkaError"], None]
Row = tuple[TopicPartition, int, ListedOffset]
"""A partition of a response, with its error code (0: none) and its result."""

_Asked = tuple[Completion[Message], Connection, list[TopicPartition]]


class ListOffsetsCall:
    """A lookup of the offsets of any number of partitions."""

    api = "ListOffsets"

    def __init__(
        self,
        brokers: Brokers,
        missing: MissingTopics,
        wanted: Mapping[TopicPartition, int],
        found: Found,
        *,
        isolation: int,
        deadline: float = math.inf,
        still: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        """Set the lookup; `found` is called once per partition.

        `still` returns whether a partition is still needed.
        """
        self._engine = brokers.engine
        self._network = brokers.network
        self._metadata = brokers.metadata
        self._timeout = brokers.timeout
        self._missing = missing
        self._left = dict(wanted)
        self._found = found
        self._isolation = isolation
        self._whose = brokers.check
        self._deadline = deadline
        self._still = still
        self._backoff = Backoff(brokers.retry, brokers.rng)
        self._not_before = -math.inf
        self._asked: dict[Address, _Asked] = {}
        self._wake_at = math.inf
        self._reasons: dict[TopicPartition, str] = {}
        self._seen: Cluster | None = None
        self._leaders: dict[TopicPartition, tuple[Address, Partition]] = {}
        """Leaders and connections of the requests; a new connection needs a new request."""

    def run(self) -> Flow[None]:
        """Send requests until every partition has a result; raise at the deadline."""
        now = yield START
        self._metadata.want(dict.fromkeys(p.topic for p in self._left))
        while True:
            self._take_answers(now)
            for gone in [p for p in self._left if not self._still(p)]:
                del self._left[gone]
            if not self._left:
                return
            if now >= self._deadline:
                raise self._timeout(self._what(), now, ())
            self._wake_at = self._deadline
            if now >= self._not_before:
                self._ask_all(now)
            else:
                self._wake_at = min(self._wake_at, self._not_before)
            if not self._left:
                continue
            replies = [reply for reply, *_ in self._asked.values()]
            now = yield Wait(
                (*replies, self._network.changed, self._metadata.changed),
                None if self._wake_at == math.inf else self._wake_at,
            )

    def _what(self) -> str:
        some = [
            f"{p} ({self._reasons[p]})" if p in self._reasons else str(p)
            for p in list(self._left)[:5]
        ]
        more = f" and {len(self._left) - 5} more" if len(self._left) > 5 else ""
        return f"offsets of {', '.join(some)}{more}"

    # Requests

    def _ask_all(self, now: float) -> None:
        snapshot = self._metadata.snapshot
        if snapshot is None:
            return
        if snapshot is not self._seen:
            self._seen, self._leaders = snapshot, {}
        leaders, pending = self._leaders, self._waited_for()
        groups: dict[Address, list[tuple[TopicPartition, Partition]]] = {}
        for wanted in [p for p in self._left if p not in pending]:
            known = leaders.get(wanted)
            if known is None:
                partition = snapshot.partition(wanted.topic, wanted.partition)
                leader = None if partition is None else snapshot.brokers.get(partition.leader)
                if partition is None or leader is None:
                    self._leaderless(wanted)
                    continue
                known = leaders[wanted] = (leader.address, partition)
            groups.setdefault(known[0], []).append((wanted, known[1]))
        for address, parts in groups.items():
            if address in self._asked:
                continue
            connection = self._whose.prompt(address, now)
            if connection is None:
                self._wake_at = min(self._wake_at, self._network.prompt_at(address, now))
            elif not connection.suspect:
                self._send(connection, parts, now)

    def _leaderless(self, partition: TopicPartition) -> None:
        metadata = self._metadata
        code = metadata.topic_errors.get(partition.topic, 0)
        if code in FINAL_TOPIC_ERRORS:
            error = error_for(code, f"topic {partition.topic}")
            self._give(partition, error.needing("READ", partition.topic))
            return
        topic = metadata.snapshot.topic(partition.topic) if metadata.snapshot else None
        if topic is not None and partition.partition >= len(topic.partitions):
            self._reasons[partition] = f"the topic has {number(len(topic.partitions), 'partition')}"
            self._missing.note(partition)
        else:
            self._reasons[partition] = error_for(code).name if code else "no leader"
        metadata.request_once(f"{partition} has no leader")

    def _send(
        self, connection: Connection, parts: list[tuple[TopicPartition, Partition]], now: float
    ) -> None:
        network = self._network
        try:
            reply = network.send(connection, self._body(parts), now)
        except KafkaError as error:
            if connection.purpose == ASIDE:
                network.fail(connection, error, now)
                return
            for wanted, _ in parts:
                self._give(wanted, error)
            return
        self._asked[connection.address] = (reply, connection, [p for p, _ in parts])

    def _body(self, parts: list[tuple[TopicPartition, Partition]]) -> AnyRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for wanted, partition in parts:
            topic = topics.setdefault(wanted.topic, ListOffsetsTopic(name=wanted.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=wanted.partition,
                    current_leader_epoch=partition.leader_epoch,
                    timestamp=self._left[wanted],
                )
            )
        return ListOffsetsRequest(
            replica_id=_REPLICA_ID,
            isolation_level=self._isolation,
            topics=list(topics.values()),
            timeout_ms=int(self._network.request_timeout * 1000),
        )

    # Responses

    def _rows(self, response: Message) -> Iterator[Row]:
        """Yield each partition's error code and offset in a response."""
        for topic in cast("ListOffsetsResponse", response).topics:
            for p in topic.partitions:
                found = ListedOffset(p.offset, p.timestamp, p.leader_epoch)
                yield TopicPartition(topic.name, p.partition_index), p.error_code, found

    def _take_answers(self, now: float) -> None:
        for address, (reply, connection, partitions) in list(self._asked.items()):
            if reply.done:
                del self._asked[address]
                # Ignore partitions that were revoked after the request.
                partitions = [p for p in partitions if p in self._left]
                if not partitions:
                    continue
                if connection.purpose == ASIDE and self._in_vain(connection, reply, now):
                    continue  # the next requests go to another broker
                if reply.error is not None:
                    self._failed(partitions, reply.error, address, now)
                else:
                    self._take(partitions, reply.result(), address, now)
            elif connection.suspect:
                self._reasons.update(dict.fromkeys(partitions, f"no response from {address}"))

    def _in_vain(self, aside: Connection, reply: Completion[Message], now: float) -> bool:
        """Return whether to ignore a response on a second connection.

        That connection may lead to another broker than the first one: a retriable error may only
        mean that this broker isn't the leader.
        """
        if reply.error is not None:
            return aside.ended
        codes = {code for _, code, _ in self._rows(reply.result())}
        if not any(code and error_for(code).retriable for code in codes):
            return False
        error = DisconnectedError(f"{aside.address} isn't the leader on this connection")
        self._network.fail(aside, error, now)
        return True

    def _waited_for(self) -> set[TopicPartition]:
        """Return partitions for which no further request should be sent.

        A request is in flight to a leader that isn't silent, or two leaders were asked already. A
        silent leader's late response is still used (R-RB-9), so only a new leader is asked as well.
        """
        often = Counter(p for *_, partitions in self._asked.values() for p in partitions)
        return {
            p
            for _, connection, partitions in self._asked.values()
            for p in partitions
            if often[p] > 1 or not connection.suspect
        }

    def _take(
        self,
        asked: list[TopicPartition],
        response: Message,
        address: Address,
        now: float,
    ) -> None:
        answers = {partition: (code, found) for partition, code, found in self._rows(response)}
        for partition in asked:
            if partition not in answers:
                self._retry([partition], "missing from the response", now)
                continue
            code, found = answers[partition]
            if code:
                error = error_for(code, f"{self.api} of {partition}")
                error.needing("READ", partition.topic)
                self._failed([partition], error, address, now)
            else:
                self._give(partition, found)

    def _give(self, partition: TopicPartition, result: ListedOffset | KafkaError) -> None:
        del self._left[partition]
        self._reasons.pop(partition, None)
        self._found(partition, result)

    def _failed(
        self,
        partitions: list[TopicPartition],
        error: BaseException,
        address: Address,
        now: float,
    ) -> None:
        if isinstance(error, KafkaError) and error.retriable:
            self._retry(partitions, f"{type(error).__name__}: {error}", now)
            for partition in partitions:
                self._metadata.refused(partition, error, at=address)
        elif isinstance(error, KafkaError):
            for partition in partitions:
                self._give(partition, error)
        else:
            raise error

    def _retry(self, partitions: list[TopicPartition], text: str, now: float) -> None:
        self._reasons.update(dict.fromkeys(partitions, text))
        if now >= self._not_before:  # responses that arrive together count as one failure
            self._not_before = self._backoff.failed(now)
            self._engine.events.emit(
                now,
                "retry",
                what=self.api,
                error=text,
                attempt=self._backoff.failures,
                backoff=round(self._not_before - now, 6),
            )


def list_offsets(
    brokers: Brokers,
    missing: MissingTopics,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    deadline: float,
    kind: type[ListOffsetsCall] = ListOffsetsCall,
) -> Flow[dict[TopicPartition, ListedOffset]]:
    """Return all offsets, or raise the first error."""
    for partition in wanted:
        check_topic(partition.topic)
    found: dict[TopicPartition, ListedOffset] = {}
    errors: list[KafkaError] = []

    def take(partition: TopicPartition, result: ListedOffset | KafkaError) -> None:
        if isinstance(result, KafkaError):
            errors.append(result)
        else:
            found[partition] = result

    call = kind(
        *(brokers, missing, wanted, take),
        isolation=isolation,
        deadline=deadline,
        still=lambda _: not errors,
    )
    yield from call.run()
    if errors:
        raise errors[0]
    return {p: found[p] for p in wanted}
