"""What a consumer knows without asking, which aiokafka's shows by methods of its own.

In: topics' names. Out: where logs ended as the last answers said, partitions from metadata, which
topics that are asked for may come into being by. Must not: read.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from odradek.clients.consumer.group.membership import MemberState
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import error_for
from odradek.common.types import TopicPartition
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
