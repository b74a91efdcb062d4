"""What a consumer knows without asking, which aiokafka's shows by methods of its own.

In: topics' names. Out: where logs ended as the last answers said, partitions from metadata, which
topics that are asked for may come into being by. Must not: read.
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
from odradek.compat.at_hand import Runs
from odradek.compat.loop_at_hand import LoopConsumer

LOOKS_AGAIN = 0.05
"""Seconds between two looks at whether a topic is there."""


class Ends(NamedTuple):
    """What the last answer to a fetch said of one partition."""

    high_watermark: int
    last_stable_offset: int
    told_ms: int
    """Milliseconds since the epoch."""


class AIOKafkaConsumer(LoopConsumer[Any]):
    """`AsyncConsumer`, and what its engine knows besides; texts and warnings say this name."""

    def ends(self, partition: TopicPartition) -> Ends | None:
        """None before the first answer. Raises `IllegalStateError` for what isn't assigned."""
        answered = self._engine.subscription.get(partition).answered
        if answered is None:
            return None
        high_watermark, last_stable_offset, at = answered
        told = time.time() - (self._host.now() - at)
        return Ends(high_watermark, last_stable_offset, int(told * 1000))

    def known_partitions(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None where metadata doesn't tell of it."""
        snapshot = self._engine.metadata.snapshot
        found = None if snapshot is None else snapshot.topic(topic)
        return None if found is None or not found.partitions else set(range(len(found.partitions)))

    @property
    def rebalances(self) -> bool:
        """The group isn't at rest, or wants the program: a poll is what it waits for.

        Not so where the program didn't ask for records for `max.poll.interval.ms`.
        """
        group = self._engine.group
        if group is None or group.membership is None:
            return False
        state = group.membership.state
        if state in (MemberState.STALE, MemberState.FATAL, MemberState.LEAVING):
            return group.calls and state is MemberState.FATAL
        return group.calls or group.poll_wanted.awaited or state is not MemberState.STABLE

    async def there(self, timeout: float, of: Selector) -> bool:
        """Wait until there is something for readers of these partitions; None: of all."""
        return bool(await self._read(self._calls.there(timeout, of)))

    def look_again(self, of: Selector) -> None:
        """A reader waits for other partitions now, or for none; None: for all."""
        self._engine.look_again(of)
        self._host.wake()

    def taken(self, most: int, of: Selection) -> Runs:
        """Return at most `most` fetched records of these partitions; None: of all."""
        self._found = None
        take = lambda now: self._engine.delivery.runs(most, now, of)  # noqa: E731
        runs = self._calls.taken(take, self._host.now(), of)
        self._calls.engine.delivery.handed_over()
        return runs or []

    def take(self) -> bool:
        """Have `at_hand` return fetched records, of all partitions; False if there are none."""
        if self._found is not None:
            return True
        take = lambda now: self._engine.delivery.iterated(now, self._made)  # noqa: E731
        return self._keep(self._calls.taken(take, self._host.now(), None))

    @property
    def in_hand(self) -> bool:
        """Whether the program has records that it may still work on."""
        return bool(self._engine.subscription.in_hand)

    def through(self) -> None:
        """Count all that the program was handed as worked on."""
        group = self._engine.group
        if group is not None and group.callbacks.running is None:
            polling = group.polling
            if group.entered(self._host.now()):
                self._host.wake()
            if not polling:
                group.left(self._host.now())

    async def breathe(self) -> None:
        """Let the loop have its turn, if it didn't for long."""
        await self._loop_host.breathe()
        self._given = 0

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Wait in the program's place within: only its own listener announces partitions then."""
        group = self._engine.group
        if group is not None:
            group.ownership.attend(attended=True)
        try:
            yield
        finally:
            if group is not None:
                group.ownership.attend(attended=False)

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """The program's listener hears of these."""
        group = self._engine.group
        if group is not None:
            with self._engine.lock:
                group.ownership.announce(partitions, group.ownership.losses, group.identity())

    async def locate(self, partitions: Iterable[TopicPartition]) -> None:
        """Have positions looked up now, and not when records are asked for.

        So a consumer that starts at the end of the log sees what is written from here on.
        """
        for partition in partitions:
            with suppress(KafkaError):  # whoever asks for records hears of it
                await self.position(partition, math.inf)

    async def await_topic(self, topic: str, timeout: float) -> bool:
        """Wait until a topic is there; brokers that make topics when they are asked for do so.

        False where it isn't after `timeout` seconds. Raises `TopicAuthorizationError`.
        """
        deadline, metadata = time.monotonic() + timeout, self._engine.metadata
        while self.known_partitions(topic) is None:
            if (code := metadata.topic_errors.get(topic)) and not (
                error := error_for(code)
            ).retriable:
                raise error
            if time.monotonic() >= deadline:
                return False
            self._engine.post(lambda _: metadata.want((topic,)))
            self._host.wake()
            await asyncio.sleep(LOOKS_AGAIN)
        return True
