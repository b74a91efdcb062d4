"""Create the errors of records that timed out, with the brokers' errors for their batches (R-RT-2).

In: batches without an outcome, metadata errors of their topics. Out: timeouts with the failed
attempts; the newest error is the cause. Must not: end a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek.clients.producer.batch import ProducerBatch, together
from odradek.common.errors import Attempt, KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import error_for
from odradek.metadata.metadata import Metadata

TOPICS_NAMED = 10
"""Maximum number of topics that an error names."""


class BatchTimeouts:
    """Creates the errors of one producer's calls and batches at their deadlines."""

    def __init__(
        self,
        metadata: Metadata,
        near: Callable[[str], str],
        timed_out: Callable[[str, float, Sequence[Attempt]], KafkaTimeoutError],
    ) -> None:
        """Set `near`, which returns a text with names similar to a missing topic.

        `timed_out` returns a timeout error with the client's connection attempts.
        """
        self._metadata = metadata
        self._near = near
        self._timed_out = timed_out

    def timeout(self, what: str, now: float, batches: Iterable[ProducerBatch]) -> KafkaTimeoutError:
        """Return the error of a call that waited for batches."""
        return self.timed_out(f"timed out waiting for {what}", now, batches)

    def timed_out(
        self, happened: str, now: float, batches: Iterable[ProducerBatch]
    ) -> KafkaTimeoutError:
        """Return a timeout error with the text `happened` and the batches' failed attempts."""
        attempts, latest = self.refusals(batches, now)
        error = self._timed_out(happened, now, attempts)
        error.__cause__ = error.__cause__ or latest
        return error

    def refusals(
        self, batches: Iterable[ProducerBatch], now: float
    ) -> tuple[list[Attempt], KafkaError | None]:
        """Return the errors of brokers for batches, and the metadata errors of their topics.

        Any thread may call this.
        """
        batches = list(batches)
        attempts, latest = together([batch.refusals for batch in batches])
        for topic in sorted({batch.partition.topic for batch in batches})[:TOPICS_NAMED]:
            code = self._metadata.topic_errors.get(topic, 0)
            if code:
                error = error_for(code, f"topic {topic}")
                said = f"{type(error).__name__}: {error}{self._near(topic)}"
                attempts.append(Attempt(None, "Metadata", said, now))
                latest = latest or error
        return attempts, latest
