"""Subscription of an aiokafka consumer: topics (with or without a group), or assigned partitions.

In: `subscribe`, `assign` and `unsubscribe`, which aiokafka's programs don't await. Out: calls of
`odradek.AsyncConsumer`, one after another, in a task. Must not: return records.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from typing import Any

from odradek.common.types import TopicPartition
from odradek.compat.aiokafka.abc import ConsumerRebalanceListener
from odradek.compat.aiokafka.consumer.listeners import Rebalances
from odradek.compat.aiokafka.consumer.pauses import Pauses
from odradek.compat.aiokafka.consumer.rebalance_task import Attendant
from odradek.compat.aiokafka.consumer.wrapped_state import AIOKafkaConsumer as KnowingConsumer
from odradek.compat.aiokafka.errors import ConsumerStoppedError, IllegalStateError
from odradek.compat.aiokafka.shielded import outcome
from odradek.compat.aiokafka.translation import raising
from odradek.compat.clock import monotonic

TURN = 0.1
"""Seconds between two checks whether the group has assigned partitions."""


class Kind(Enum):
    """How the partitions are chosen: by topics, by a pattern, by `assign`, or not yet."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


class Subscriptions:
    """Subscription of one consumer."""

    def __init__(
        self,
        consumer: KnowingConsumer,
        pauses: Pauses,
        attendant: Attendant,
        *,
        grouped: bool,
        refresh: float,
    ) -> None:
        """Take the consumer.

        `refresh`: seconds after which topics without a group are checked for new partitions.
        """
        self.kind = Kind.NONE
        self._running = False
        """Whether `start()` was called; changes before it are applied by `start()`."""
        self.there = asyncio.Event()
        """Event that is set while topics are subscribed or partitions are assigned."""
        self._consumer = consumer
        self._pauses = pauses
        self._attendant = attendant
        self._grouped = grouped
        self._refresh = refresh
        self._look_again = math.inf
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._joined: tuple[frozenset[str], re.Pattern[str] | None] | None = None
        """Topics and pattern with which the group was joined."""
        self._wanted: dict[TopicPartition, int | None] = {}
        """Partitions of `assign`, with offsets of later `seek`s, until they are applied."""
        self._afresh = True
        """Whether positions of an earlier subscription must be dropped (`subscribe` was called)."""
        self._rebalances = Rebalances(None, pauses, self._locate, consumer.announce)
        self.pending: asyncio.Task[None] | None = None
        """Task of the last change, until it has finished and its exception has been raised."""
        self._locating: asyncio.Task[None] | None = None
        self._superseded = False
        """Whether a later change makes the pending task obsolete, so that it is cancelled."""

    # Calls of the program that aren't awaited

    def subscribe(
        self,
        topics: Collection[str],
        pattern: re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        """Read these topics from now on.

        Raises `IllegalStateError` after `assign`, and for a pattern after topics or the reverse.
        """
        self._become(Kind.TOPICS if pattern is None else Kind.PATTERN)
        self._topics, self._pattern = frozenset(topics), pattern
        self._rebalances = Rebalances(listener, self._pauses, self._locate, self._consumer.announce)
        self._afresh = True
        self._attendant.handed_out(some=False)  # returned records count as processed now
        if self._running:
            self.begin()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions from now on."""
        self._become(Kind.ASSIGNED)
        self._wanted = dict.fromkeys(partitions)
        if self.changing:
            self._then(self._assign_wanted)
        else:
            self._assign(partitions)

    def unsubscribe(self) -> None:
        """Drop all partitions and leave the group."""
        self.kind, self._topics, self._pattern = Kind.NONE, frozenset(), None
        self.there.clear()
        if self._running:
            self._then(self._unsubscribe)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set a position; for partitions of a pending `assign` it is the start offset."""
        if self.kind is Kind.ASSIGNED and self.changing and partition in self._wanted:
            self._wanted[partition] = offset
        else:
            self._consumer.seek(partition, offset)

    # State

    @property
    def changing(self) -> bool:
        """Whether a change of the subscription is in progress."""
        return self.pending is not None and not self.pending.done()

    def assignment(self, *, announced: bool = False) -> list[TopicPartition]:
        """Return the assigned partitions; `announced`: only those announced to the listener."""
        if self.kind is Kind.NONE:
            return []
        if self.kind is Kind.ASSIGNED and self.changing:
            return list(self._wanted)
        return self._consumer.assignment() if announced else self._consumer.assigned()

    def topics(self) -> frozenset[str]:
        """Return the topics of all assigned or subscribed partitions."""
        if self.kind is Kind.ASSIGNED:
            return frozenset(partition.topic for partition in self.assignment())
        if self.kind is Kind.PATTERN and self._grouped:
            return frozenset(self._consumer.subscription())
        return self._topics

    def patience(self) -> float:
        """Return the seconds until topics without a group are checked for new partitions."""
        wanted = self.kind in (Kind.TOPICS, Kind.PATTERN) and not self._grouped
        return max(0.0, self._look_again - monotonic()) if wanted else math.inf

    def idle(self) -> bool:
        """Return whether there is nothing to read: no assigned partition, and no group."""
        by_group = self._grouped and self.kind in (Kind.TOPICS, Kind.PATTERN)
        return not (by_group or self._consumer.assigned())

    # Applying the calls

    def start(self) -> None:
        """Apply the calls made before; later calls are applied at once."""
        self._running = True
        if self._grouped:
            self._attendant.start()
        self.begin()
        if self.kind is Kind.ASSIGNED:
            self._locate()

    def begin(self) -> None:
        """Apply the latest `subscribe`."""
        if self.kind in (Kind.TOPICS, Kind.PATTERN):
            self._then(self._join if self._grouped else self.assign_all)

    async def settled(self) -> None:
        """Wait until all changes are applied; raise their exception, once."""
        while (changing := self.pending) is not None:
            try:
                await outcome(changing)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not changing.cancelled() or (task is not None and task.cancelling()):
                    raise
                if self.pending is changing:
                    raise ConsumerStoppedError("the consumer was stopped") from None
            finally:  # another task may have set a later change
                if changing.done() and self.pending is changing:
                    self.pending = None

    async def assigned(self) -> None:
        """Wait until a pending `assign` is applied."""
        if self.kind is Kind.ASSIGNED and self.changing:
            await self.settled()

    async def end(self) -> None:
        """Cancel all tasks and stop calling the listener, because the consumer stops."""
        self._rebalances.hush()
        await self._attendant.end()
        for task in (self.pending, self._locating):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    def _then(self, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        before = self.pending
        if before is not None and self._superseded:
            before.cancel()
        self._superseded = change in (self._join, self.assign_all)

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            await change()

        self.pending = asyncio.create_task(run())
        self.pending.add_done_callback(_looked_at)

    async def _join(self) -> None:
        """Subscribe, and wait for the group's assignment, which may be empty.

        Returns without waiting if the pattern matches no topic.
        """
        told, pattern = self._rebalances, self._pattern
        before, self._joined = self._joined, (self._topics, pattern)
        with raising():
            await self._consumer.subscribe(
                list(self._topics),
                None if pattern is None else _whole(pattern),
                on_assigned=told.on_assigned,
                on_revoked=told.on_revoked,
                on_lost=told.on_revoked,
            )
            if self._joined == before:  # aiokafka rejoins even if nothing has changed
                self._consumer.enforce_rebalance("subscribe() was called again")
            if pattern is not None:
                names = await self._consumer.list_topics()
                if not any(map(pattern.match, names)):
                    return
        while not told.assigned_once.is_set() and self._attendant.trouble is None:
            await _soon(told.assigned_once)
        if not told.assigned_once.is_set():
            self._attendant.raise_trouble()
        self._locate()

    async def assign_all(self) -> None:
        """Assign the topics' partitions, without a group; assigned ones keep their positions."""
        with raising():
            if self._pattern is not None:
                names = await self._consumer.list_topics()
                self._topics = frozenset(filter(self._pattern.match, names))
            found: list[TopicPartition] = []
            for topic in sorted(self._topics):
                await self._consumer.await_topic(topic, math.inf)
                found += await self._consumer.partitions_for(topic)
            if self._afresh:
                self._assign(found)
            elif set(found) != set(self._consumer.assigned()):
                self._consumer.assign(found)
                self._locate()
        self._afresh = False
        self._look_again = monotonic() + self._refresh

    async def _unsubscribe(self) -> None:
        self._joined = None
        with raising():
            await self._consumer.unsubscribe()

    def _assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assign partitions and drop their earlier positions, as aiokafka does."""
        self._consumer.assign([])
        self._consumer.assign(list(partitions))
        self._locate()

    def _locate(self) -> None:
        """Start looking up positions of assigned partitions, once the program has started."""
        if self._locating is not None:
            self._locating.cancel()
        if self._running:
            partitions = self._consumer.assigned()
            self._locating = asyncio.create_task(self._consumer.locate(partitions))

    async def located(self) -> None:
        """Wait without a timeout until the positions are looked up."""
        if self._locating is not None:
            await asyncio.wait([self._locating])

    async def _assign_wanted(self) -> None:
        with raising():
            self._assign(self._wanted)
            for partition, offset in self._wanted.items():
                if offset is not None:
                    self._consumer.seek(partition, offset)

    def _become(self, kind: Kind) -> None:
        if self.kind not in (Kind.NONE, kind):
            raise IllegalStateError(
                f"the consumer reads {self.kind.value}, and can't read {kind.value} as well: "
                "unsubscribe() first"
            )
        self.kind = kind
        self.there.set()


def _whole(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Convert a pattern that matches the beginning of a name to one that matches all of it."""
    text = re.sub(r"\A\(\?[aiLmsux]+\)", "", pattern.pattern)
    return re.compile(f"(?:{text}).*", pattern.flags)


def _looked_at(task: asyncio.Task[None]) -> None:
    """Mark a task's exception as retrieved; the next call that requests records raises it."""
    if not task.cancelled():
        task.exception()


async def _soon(event: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(event.wait(), TURN)
    except TimeoutError:
        return
