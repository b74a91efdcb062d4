"""Estimate the bytes per offset: maxBytesPerTrigger counts bytes, but Kafka only reports offsets.

In: positions of partitions. Out: bytes of keys, values and headers per offset of a partition,
measured by a small fetch at the start of the next batch. Tasks can't report to the driver what they
read. The log sizes that brokers report are compressed, cover records of all ages, and need
additional permissions.

Before each batch, the partitions with the largest lag are sampled; the others keep their last
estimate, or use their topic's average. So the estimate follows the data from batch to batch, and is
wrong by as much as sizes change within a batch. Without any sample there is no estimate. Must not:
block for long: a late response is still read, and counts for a later batch (R-RB-9).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.clients.consumer.records import NoSuchOffsetError
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.spark.driver.cluster_client import Clients
from odradek.spark.driver.offsets import Positions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

SAMPLED = 16
"""Maximum number of partitions that are sampled for one batch."""
PATIENCE_S = 2.0
"""Seconds for which a batch waits for all of its samples together."""
WAITED_S = 10.0
"""Age of a request, in seconds, at which a batch stops waiting for its sample; a late response is
still used."""
STALE_S = 60.0
"""Seconds for which an older estimate is used without a warning."""
COLUMNS = ("key", "value", "headers", "topic", "partition", "offset")
NAMED = 5
"""Maximum number of partitions that a log line names."""


@dataclass(frozen=True, slots=True)
class SampleFetch:
    """A fetch of a few sample records that is in progress."""

    begin: int
    until: int
    since: float
    """Time of the first request."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Estimated bytes between two offsets of each partition; None for an unknown size."""

    starts: Positions
    """First existing offsets: after the batch's start if the log's beginning was deleted."""
    sizes: Mapping[TopicPartition, float | None]
    """Bytes per offset, from `starts` on; None if unknown."""


class ByteRates:
    """Estimated record sizes of one query's partitions, sampled with a client of its own."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients, self._clock = clients, clock
        self._client: Consumer | None = None
        self._sizes: dict[TopicPartition, float] = {}
        self._firsts: dict[TopicPartition, tuple[int, int]] = {}
        """For each partition, the requested offset of its sample and the first offset that exists
        at or after it."""
        self._under_way: dict[TopicPartition, SampleFetch] = {}
        self._last_error: KafkaError | None = None
        self._told: set[str] = set()
        """Topics for which a missing estimate was logged."""

    def weigh(self, config: Mapping[str, Any], begins: Positions, ends: Positions) -> Weighed:
        """Sample records where that is worthwhile, and return an estimate for every partition."""
        lags = {tp: end - begins[tp] for tp, end in ends.items() if end > begins[tp]}
        self._under_way = {tp: s for tp, s in self._under_way.items() if tp in lags}
        chosen = [tp for tp in self._worth_most(lags) if self._at(tp) != begins[tp]]
        now = self._clock.now()
        try:
            self._ask(config, {tp: SampleFetch(begins[tp], ends[tp], now) for tp in chosen})
        except KafkaError as error:
            self._last_error = error
            self.close()
        sizes = self._for_all(ends)
        self._tell(sizes)
        starts = {tp: min(self._start(tp, begins[tp]), end) for tp, end in ends.items()}
        return Weighed(starts, sizes)

    def forget(self, topics: Collection[str]) -> None:
        """Drop the estimates for topics that were recreated."""
        for kept in (self._sizes, self._firsts, self._under_way):
            for tp in [tp for tp in kept if tp.topic in topics]:
                del kept[tp]

    def close(self) -> None:
        """Close the client; the next `weigh` creates a new one."""
        if self._client is not None:
            self._clients.drop(self._client)
            self._client = None

    # -- sampling -------------------------------------------------------------------------

    def _worth_most(self, lags: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return partitions to sample: one per topic without an estimate, then by largest lag."""
        free = {tp: lag for tp, lag in lags.items() if tp not in self._under_way}
        known = {tp.topic for tp in self._sizes}
        leads: dict[str, TopicPartition] = {}
        for tp, lag in free.items():
            first = leads.get(tp.topic)
            if tp.topic not in known and (first is None or (lag, tp) > (free[first], first)):
                leads[tp.topic] = tp
        leading = set(leads.values())
        return heapq.nlargest(SAMPLED, free, key=lambda tp: (tp in leading, free[tp], tp))

    def _ask(self, config: Mapping[str, Any], wanted: Mapping[TopicPartition, SampleFetch]) -> None:
        self._under_way |= wanted
        anew: Iterable[TopicPartition] = wanted
        if self._client is None:
            if not self._under_way:
                return
            self._client = self._clients.connect(config)
            anew = list(self._under_way)
        self._assign_what_is_left(self._client)
        for tp in anew:
            self._client.seek(tp, self._under_way[tp].begin)
        self._collect(self._client)

    def _collect(self, client: Consumer) -> None:
        """Read responses until the time limit; later calls read later responses."""
        now, errors = self._clock.now(), 0
        waits = any(now - sample.since < WAITED_S for sample in self._under_way.values())
        until = now + PATIENCE_S if waits else now
        asked = len(self._under_way)
        while errors <= SAMPLED:
            if len(self._under_way) < asked:
                self._assign_what_is_left(client)
                asked = len(self._under_way)
            if not self._under_way:
                break
            timeout = max(0.0, until - self._clock.now())
            try:
                batch = client.poll_arrow(timeout=timeout, columns=COLUMNS)
                if batch is not None and batch.num_rows:
                    self._take(batch)
                self._take_empty(client)
            except NoSuchOffsetError as error:
                errors += 1
                if not self._goes_to_beginning(client, error):
                    self._last_error = error
                continue
            except KafkaError as error:
                if error.fatal or client.ended is not None:
                    raise
                errors += 1  # the error concerns one partition only
                self._last_error = error
                continue
            if batch is None and len(self._under_way) == asked:
                break

    def _take(self, batch: pa.RecordBatch) -> None:
        """Measure one partition's records, from the first existing one."""
        tp = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        sample = self._under_way.pop(tp, None)
        if sample is None:
            return
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        self._sizes[tp] = max(1.0, _size(batch) / (last + 1 - first))
        self._firsts[tp] = sample.begin, first

    def _take_empty(self, client: Consumer) -> None:
        """Finish samples that found no records: only markers, aborted records and gaps."""
        for tp, sample in list(self._under_way.items()):
            if client.position(tp, timeout=0.0) >= sample.until:
                del self._under_way[tp]
                self._firsts[tp] = sample.begin, sample.until

    def _goes_to_beginning(self, client: Consumer, error: NoSuchOffsetError) -> bool:
        """Seek to the log start if retention has deleted the position; return False if it hasn't.

        The code that reads the batch decides whether the loss of these records is allowed.
        """
        tp, begin = error.partition, error.log_start
        if tp not in self._under_way or begin is None or begin <= error.position:
            return False
        client.seek(tp, begin)
        return True

    def _assign_what_is_left(self, client: Consumer) -> None:
        """Assign the unsampled partitions; if an end is unchanged, its fetch stays in flight."""
        client.assign(
            list(self._under_way), until={tp: s.until for tp, s in self._under_way.items()}
        )

    # -- results --------------------------------------------------------------------------

    def _at(self, tp: TopicPartition) -> int | None:
        found = self._firsts.get(tp)
        return None if found is None else found[0]

    def _start(self, tp: TopicPartition, begin: int) -> int:
        found = self._firsts.get(tp)
        return begin if found is None or found[0] != begin else max(found)

    def _for_all(self, ends: Positions) -> dict[TopicPartition, float | None]:
        sums: dict[str, list[float]] = {}
        for tp, size in self._sizes.items():
            sums.setdefault(tp.topic, []).append(size)
        averages = {topic: sum(found) / len(found) for topic, found in sums.items()}
        return {tp: self._sizes.get(tp, averages.get(tp.topic)) for tp in ends}

    def _tell(self, sizes: Mapping[TopicPartition, float | None]) -> None:
        """Log once per topic that sampling fails, and once that it works again."""
        now = self._clock.now()
        failing = sorted(
            tp
            for tp, sample in self._under_way.items()
            if sizes[tp] is None or now - sample.since >= STALE_S
        )
        if not failing:
            if self._told:
                logger.warning(
                    "maxBytesPerTrigger: record sizes of all partitions can be sampled again"
                )
            self._told, self._last_error = set(), None
        elif not self._told.issuperset(tp.topic for tp in failing):
            self._told.update(tp.topic for tp in failing)
            waited = now - min(self._under_way[tp].since for tp in failing)
            named = ", ".join(map(str, failing[:NAMED]))
            more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
            logger.warning(
                "maxBytesPerTrigger: the driver can't sample the record sizes of %s%s (%s). Until "
                "it can, it uses the last known sizes, and batches contain few records of "
                "partitions that were never sampled: the limit holds, but the query may be "
                "slower. If this persists, check that the driver can reach the brokers and that "
                "its user has the READ permission on the topic.",
                named,
                more,
                self._last_error or f"no answer to a fetch for {waited:.0f} s",
            )


def _size(batch: pa.RecordBatch) -> int:
    """Count bytes of keys, values and headers, without the bytes that Arrow adds to each row."""
    import pyarrow.compute as pc

    headers = batch.column("headers")
    found: int = headers.nbytes if headers.null_count < len(headers) else 0
    for name in ("key", "value"):
        found += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
    return found
