"""`AsyncConsumer` with access to its engine's state, which aiokafka's consumer returns.

In: topic names. Out: log ends of the last fetch responses, partitions from metadata, and whether
a topic exists. Must not: read records.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.subscription_state import Selection, Selector
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import error_for
from odradek.common.types import TopicPartition
from odradek.compat.asyncio_buffered_records import LoopConsumer
from odradek.compat.buffered_records import Runs
from odradek.compat.clock import monotonic

LOOKS_AGAIN = 0.05
"""Seconds between two checks whether a topic exists."""


class Ends(NamedTuple):
    """Values of one partition in its last fetch response."""

    high_watermark: int
    last_stable_offset: int
    told_ms: int
    """Time of the fetch response, in milliseconds since the epoch."""


class AIOKafkaConsumer(LoopConsumer[Any]):
    """`AsyncConsumer` with access to state of its engine; messages use the name of this class."""

    def ends(self, partition: TopicPartition) -> Ends | None:
        """Return a partition's log ends in its last fetch response; None before the first one.

        Raises `IllegalStateError` if the partition isn't assigned.
        """
        answered = self._engine.subscription.get(partition).answered
        if answered is None:
            return None
        high_watermark, last_stable_offset, at = answered
        told = time.time() - (self._host.now() - at)
        return Ends(high_watermark, last_stable_offset, int(told * 1000))

    def known_partitions(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions, or None if metadata doesn't contain it."""
        snapshot = self._engine.metadata.snapshot
        found = None if snapshot is None else snapshot.topic(topic)
        return None if found is None or not found.partitions else set(range(len(found.partitions)))

    @property
    def rebalances(self) -> bool:
        """Whether the group is rebalancing or has pending callbacks, so that it needs a poll.

        False if the program hasn't requested records for `max.poll.interval.ms`.
        """
        group = self._engine.group
        if group is None or group.membership is None:
            return False
        state = group.membership.state
        if state in (MemberState.STALE, MemberState.FATAL, MemberState.LEAVING):
            return group.calls and state is MemberState.FATAL
        return group.calls or group.poll_wanted.awaited or state is not MemberState.STABLE

    async def there(self, timeout: float, of: Selector) -> bool:
        """Wait until partitions have records or errors; `of` selects the partitions."""
        return bool(await self._read(self._calls.there(timeout, of)))

    def look_again(self, of: Selector) -> None:
        """Check again for records, because the partitions that tasks wait for have changed."""
        self._engine.look_again(of)
        self._host.wake()

    def taken(self, most: int, of: Selection) -> Runs:
        """Return at most `most` fetched records of these partitions, or (None) of all."""
        self._found = None
        take = lambda now: self._engine.delivery.runs(most, now, of)  # noqa: E731
        runs = self._calls.taken(take, self._host.now(), of)
        self._calls.engine.delivery.handed_over()
        return runs or []

    def take(self) -> bool:
        """Make fetched records available to `at_hand`; return whether there are any."""
        if self._found is not None:
            return True
        take = lambda now: self._engine.delivery.iterated(now, self._made)  # noqa: E731
        return self._keep(self._calls.taken(take, self._host.now(), None))

    @property
    def in_hand(self) -> bool:
        """Whether the program has records that it may still be processing."""
        return bool(self._engine.subscription.in_hand)

    def through(self) -> None:
        """Count all returned records as processed, as the program's next poll would."""
        group = self._engine.group
        if group is not None and group.callbacks.running is None:
            polling = group.polling
            if group.entered(self._host.now()):
                self._host.wake()
            if not polling:
                group.left(self._host.now())

    async def breathe(self) -> None:
        """Yield to the event loop, unless it ran recently."""
        await self._loop_host.breathe()
        self._given = 0

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Mark polls in this block as background polls, which aren't calls of the program.

        They call the program's listener, but don't count as its requests for records.
        """
        group = self._engine.group
        if group is not None:
            group.ownership.attend(attended=True)
        try:
            yield
        finally:
            if group is not None:
                group.ownership.attend(attended=False)

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the program's listener was notified of these partitions."""
        group = self._engine.group
        if group is not None:
            with self._engine.lock:
                group.ownership.announce(partitions, group.ownership.losses, group.identity())

    async def locate(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up positions now, instead of when records are requested.

        So a consumer that starts at the end of the log reads all records written from now on.
        """
        for partition in partitions:
            with suppress(KafkaError):  # the next call for records raises it
                await self.position(partition, math.inf)

    async def await_topic(self, topic: str, timeout: float) -> bool:
        """Wait until a topic exists; brokers with automatic topic creation create it.

        Returns False if it doesn't exist after `timeout` seconds. Raises `TopicAuthorizationError`.
        """
        deadline, metadata = monotonic() + timeout, self._engine.metadata
        while self.known_partitions(topic) is None:
            if (code := metadata.topic_errors.get(topic)) and not (
                error := error_for(code)
            ).retriable:
                raise error
            if monotonic() >= deadline:
                return False
            self._engine.post(lambda _: metadata.want((topic,)))
            self._host.wake()
            await asyncio.sleep(LOOKS_AGAIN)
        return True
