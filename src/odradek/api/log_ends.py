"""Compare positions with the current logs, for Spark's driver and tasks.

In: a consumer, and positions with their leader epochs. Out: log ends with the leaders' epochs, and
where the logs diverge from the positions. Must not: move a position, or be exported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer
    from odradek.clients.consumer.fetching.offsets import ListedOffset
    from odradek.clients.descriptions import TopicDescription
    from odradek.common.types import TopicPartition

KnownEpoch = tuple[int, str | None]
"""The leader epoch of a position, -1 if unknown, and the id of its topic."""


class LogEnds:
    """Calls to the leaders of partitions, through the connections of a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    @property
    def reads_committed(self) -> bool:
        """Whether the consumer reads committed records only, up to last stable offsets."""
        return self._consumer._engine.isolation == 1  # noqa: SLF001

    def has_other_ids(self, topic_ids: Mapping[str, str]) -> bool:
        """Return whether the consumer's metadata has another id for one of these topics.

        If so, the leaders of another topic with the same name answer the consumer's calls.
        """
        wanted = {name: UUID(topic_id).bytes for name, topic_id in topic_ids.items()}
        return self._consumer._engine.has_other_ids(wanted)  # noqa: SLF001

    def fetches_by_name(self, timeout: float) -> bool:
        """Return whether a broker's Fetch identifies topics by name, even recreated ones."""
        engine = self._consumer._engine  # noqa: SLF001
        return self._consumer._call(engine.fetches_by_name, timeout, "versions of Fetch")  # noqa: SLF001

    def ends(
        self, epochs: Mapping[TopicPartition, KnownEpoch], timeout: float, *, stable: bool = True
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the end of each log, with the epoch of the leader that answered.

        `epochs`: for each partition the leader epoch of a position (-1: unknown) and its topic's
        id. A leader of an older epoch gets no request: it can't check the position. `stable`:
        return last stable offsets if the consumer reads committed records only.
        """
        heard = {
            tp: (epoch, UUID(topic_id).bytes if topic_id else bytes(16))
            for tp, (epoch, topic_id) in epochs.items()
        }
        engine = self._consumer._engine  # noqa: SLF001 - both are of this package
        return self._consumer._call(  # noqa: SLF001
            lambda deadline: engine.log_ends(heard, deadline, stable=stable), timeout, "end offsets"
        )

    def descriptions(
        self, topics: Collection[str], timeout: float
    ) -> tuple[int, list[dict[str, TopicDescription | None]]]:
        """Return the number of brokers, and for each broker that answers, its topic descriptions.

        The description of a topic that the broker doesn't know is None.
        """
        engine = self._consumer._engine  # noqa: SLF001
        return self._consumer._call(  # noqa: SLF001
            lambda deadline: engine.descriptions_by_each(topics, deadline),
            *(timeout, "descriptions of topics by each broker"),
        )

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the end offset of each leader epoch; -1 if the leader doesn't know the epoch."""
        engine = self._consumer._engine  # noqa: SLF001
        return self._consumer._call(  # noqa: SLF001
            lambda deadline: engine.epoch_ends(epochs, deadline), timeout, "ends of leader epochs"
        )
