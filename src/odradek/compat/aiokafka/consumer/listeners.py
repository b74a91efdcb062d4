"""Calls of a rebalance listener, with the arguments and in the order of aiokafka.

In: the callbacks of `odradek.AsyncConsumer`. Out: calls of a `ConsumerRebalanceListener`, each with
a set; before each assignment a call of `on_partitions_revoked`, as in aiokafka. Exceptions of a
listener are logged and not raised. Must not: decide what is assigned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from inspect import isawaitable

from odradek.common.types import TopicPartition
from odradek.compat.aiokafka import structs
from odradek.compat.aiokafka.abc import ConsumerRebalanceListener
from odradek.compat.aiokafka.consumer.pauses import Pauses

logger = logging.getLogger("odradek.compat")


def theirs(partitions: Iterable[TopicPartition]) -> set[structs.TopicPartition]:
    """Convert partitions to aiokafka's tuples."""
    return {structs.TopicPartition(*partition) for partition in partitions}


class Rebalances:
    """Callbacks for the rebalances of one subscription."""

    def __init__(
        self,
        listener: ConsumerRebalanceListener | None,
        pauses: Pauses,
        locate: Callable[[], None],
        announce: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        """Take the listener and the functions to call at an assignment.

        `locate` looks up positions of assigned partitions; `announce` notes that the program was
        notified of them.
        """
        self._listener = listener
        self._announce = announce
        self._pauses = pauses
        self._locate = locate
        self._said_revoked = False
        self._silent = False
        self.assigned_once = asyncio.Event()

    async def on_assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        """Call the listener for an assignment, with all assigned partitions."""
        self._pauses.assigned(partitions)
        if not self._said_revoked:
            await self._tell("on_partitions_revoked", ())
        self._said_revoked = False
        if self._listener is not None:
            self._announce(partitions)
        await self._tell("on_partitions_assigned", partitions)
        self._locate()
        self.assigned_once.set()

    async def on_revoked(self, _: object, partitions: list[TopicPartition]) -> None:
        """Call the listener for the revocation of all assigned partitions."""
        self._said_revoked = True
        await self._tell("on_partitions_revoked", partitions)

    def hush(self) -> None:
        """Don't call the listener any more, because the consumer stops."""
        self._silent = True

    async def _tell(self, method: str, partitions: Iterable[TopicPartition]) -> None:
        if self._listener is None or self._silent:
            return
        call: Callable[[set[structs.TopicPartition]], object] = getattr(self._listener, method)
        try:
            found = call(theirs(partitions))
            if isawaitable(found):
                await found
        except Exception:
            logger.exception("%s of %r failed", method, self._listener)
