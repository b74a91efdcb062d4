"""What an offset weighs: maxBytesPerTrigger needs bytes, and Kafka only tells offsets.

In: where partitions stand. Out: bytes of keys, values and headers for each offset of a partition,
by a small fetch where the batch will start. Tasks can't tell the driver what they read, and the
sizes of logs that brokers tell are compressed, of all ages, and need rights of their own.

Each batch weighs the partitions that are furthest behind; the others go by what they weighed
before, else by their topic's average. So the estimate follows the data from batch to batch, and is
wrong by as much as sizes change within one. Must not block for long: what gives nothing keeps its
old weight.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.spark.contact import Clients
from odradek.spark.offsets import Positions
from odradek.spark.worker_clients import Clock, ClusterConsumer

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("odradek.spark")

SAMPLED = 16
"""Partitions that are weighed for one batch."""
PATIENCE_S = 2.0
"""How long weighing may take, for all of them together."""
COLUMNS = ("key", "value", "headers")
UNKNOWN = 1024.0
"""Bytes for an offset while nothing could be weighed yet."""


class ByteRates:
    """The weights of one query's partitions; its client is its own, and made on first use."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients, self._clock = clients, clock
        self._client: ClusterConsumer | None = None
        self._weights: dict[TopicPartition, float] = {}
        self._weighed_at: dict[TopicPartition, int] = {}

    def weights(
        self, config: Mapping[str, Any], begins: Positions, ends: Positions
    ) -> dict[TopicPartition, float]:
        """Weigh where it is worth it, and give a weight for every partition."""
        lags = {tp: end - begins[tp] for tp, end in ends.items() if end > begins[tp]}
        behind = heapq.nlargest(SAMPLED, lags, key=lambda tp: (lags[tp], tp))
        wanted = [tp for tp in behind if self._weighed_at.get(tp) != begins[tp]]
        if wanted:
            try:
                self._weigh(config, {tp: begins[tp] for tp in wanted}, ends)
            except KafkaError as error:
                logger.info("weighing records for maxBytesPerTrigger: %s", error)
                self.close()
        return self._for_all(ends)

    def close(self) -> None:
        """Close the client; the next weighing makes another one."""
        if self._client is not None:
            self._clients.drop(self._client)
            self._client = None

    def _weigh(self, config: Mapping[str, Any], begins: Positions, ends: Positions) -> None:
        if self._client is None:
            self._client = self._clients.connect(config)
        client, left = self._client, dict(begins)
        client.assign(list(left), until={tp: ends[tp] for tp in left})
        for tp, begin in left.items():
            client.seek(tp, begin)
        until = self._clock.now() + PATIENCE_S
        while left and (rest := until - self._clock.now()) > 0:
            size = _size(client.poll_arrow(timeout=rest, columns=COLUMNS))
            moved = {tp: at for tp in left if (at := client.position(tp)) > left[tp]}
            offsets = sum(at - left[tp] for tp, at in moved.items())
            for tp in moved:
                self._weights[tp] = max(1.0, size / offsets)
                self._weighed_at[tp] = left.pop(tp)
        client.assign([])

    def _for_all(self, ends: Positions) -> dict[TopicPartition, float]:
        sums: dict[str, list[float]] = {}
        for tp, weight in self._weights.items():
            sums.setdefault(tp.topic, []).append(weight)
        averages = {topic: sum(found) / len(found) for topic, found in sums.items()}
        overall = sum(averages.values()) / len(averages) if averages else UNKNOWN
        return {tp: self._weights.get(tp, averages.get(tp.topic, overall)) for tp in ends}


def _size(batch: pa.RecordBatch | None) -> int:
    """Count bytes of keys, values and headers, without what Arrow adds to each row."""
    if batch is None:
        return 0
    import pyarrow.compute as pc

    found: int = batch.column("headers").nbytes if _has_any(batch.column("headers")) else 0
    for name in ("key", "value"):
        found += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
    return found


def _has_any(column: pa.Array) -> bool:
    return int(column.null_count) < len(column)
