"""Commit the ends of finished batches to a group, for lag monitoring (`commitOffsets=group`).

In: the end of each finished batch. Out: OffsetCommit requests without a membership, in order. Must
not: fail or delay the query. These offsets are never read back. The first commit of a run is
awaited for at most a second: it has to open connections, and Spark kills this process at the end of
a run, so a short run (`availableNow` without new records) could end before the commit is sent.
Later commits aren't awaited: they can finish while the next batch runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.spark.driver.offsets import Positions, StreamOffset
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

ALL_EVERY_S = 60.0
"""Seconds after which all offsets are committed again, in case some were refused.

In between, only changed offsets are committed. After a group has refused a first commit, nothing is
committed for this time.
"""

FIRST_WAIT_S = 1.0
"""Seconds that a run waits for its first commit."""


Make = Callable[[Mapping[str, Any]], "Consumer"]
"""Creates a consumer with a `group.id`, which sends its requests in a background thread."""


class GroupProgress:
    """Commits of one run of a query to a consumer group."""

    def __init__(self, options: SourceOptions, make: Make, clock: Clock) -> None:
        self._options, self._make, self._clock = options, make, clock
        self._client: Consumer | None = None
        self._told: Positions = {}
        self._all_at: float | None = None
        self._refused_at: float | None = None

    def commit(self, end: StreamOffset | None) -> None:
        """Commit a batch's end offsets to the group; only a run's first commit is awaited."""
        if self._options.commit_group is None or end is None or end.cluster is None:
            return
        now = self._clock.now()
        if self._refused_at is not None and now - self._refused_at < ALL_EVERY_S:
            return
        if self._all_at is None or now - self._all_at >= ALL_EVERY_S:
            self._told, self._all_at = {}, now
        news = {tp: at for tp, at in end.positions.items() if self._told.get(tp) != at}
        if not news:
            return
        self._told = end.positions
        try:
            if self._client is None:
                self._client = self._make(self._options.group_config(end.cluster))
                with suppress(KafkaTimeoutError):  # don't delay the query in an outage
                    self._client.commit(news, timeout=FIRST_WAIT_S)
                    return
            self._client.commit_async(news)  # the client logs later failures
        except KafkaError as error:
            self.close()
            self._all_at, self._refused_at = None, now
            logger.warning(
                "commitOffsets: the offsets of the query could not be committed to group %s. The "
                "query continues; the next attempt is in %.0f s. %s",
                self._options.commit_group,
                ALL_EVERY_S,
                error,
            )

    def close(self) -> None:
        """Close the client; commits in flight have one second to finish."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaError):  # the client has logged unfinished commits
                client.close(timeout=1.0)


def make_committer(config: Mapping[str, Any]) -> Consumer:
    """Create the consumer that commits; imported here, since most queries have no group."""
    from odradek.api.consumer import Consumer

    return Consumer(dict(config))
