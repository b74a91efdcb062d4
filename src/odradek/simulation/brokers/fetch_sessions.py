"""Keep Fetch sessions as a broker does (KIP-227).

In: a Fetch request, complete or with changes only. Out: the complete request, and the response
without unchanged partitions. A broker drops all sessions when its process ends, and the oldest if
there are too many. Must not change a request: in message mode it is the client's own object.
"""

from __future__ import annotations

import random

from odradek.common.errors import kafka as errors
from odradek.protocol.messages import fetch as f

LARGEST_CACHE = 50
"""Maximum number of sessions of one broker (1000 in Kafka); low, so that tests evict sessions."""

MAX_ID = 2**31 - 1

Key = tuple[str, bytes, int]


class BrokerFetchSession:
    """A fetch session; `id` is 0 for a fetch without a session."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.epoch = 1
        self.full = True
        """Whether the current response must contain every partition of the session."""
        self._partitions: dict[Key, f.FetchPartition] = {}
        self._told: dict[Key, tuple[int, int]] = {}
        """The high watermark and the log start offset that were last sent, by partition."""

    def update(self, request: f.FetchRequest) -> None:
        """Apply a request's added, changed and forgotten partitions to the session."""
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                key = (gone.topic, gone.topic_id, number)
                self._partitions.pop(key, None)
                self._told.pop(key, None)
        for topic in request.topics:
            for part in topic.partitions:
                self._partitions[topic.topic, topic.topic_id, part.partition] = part

    def whole(self, request: f.FetchRequest) -> f.FetchRequest:
        """Return the request with all of the session's partitions, in the session's order."""
        topics: list[f.FetchTopic] = []
        for (name, topic_id, _), part in self._partitions.items():
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, topic_id):
                topics.append(f.FetchTopic(name, topic_id))
            topics[-1].partitions.append(part)
        return f.FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=request.isolation_level,
            rack_id=request.rack_id,
            topics=topics,
        )

    def finish(self, response: f.FetchResponse) -> f.FetchResponse:
        """Drop the response's unchanged partitions; move those with records to the queue's end."""
        topics = []
        for topic in response.responses:
            news = []
            for part in topic.partitions:
                key = (topic.topic, topic.topic_id, part.partition_index)
                if part.records and key in self._partitions:
                    self._partitions[key] = self._partitions.pop(key)
                if self._is_news(key, part):
                    news.append(part)
            if self.full:
                topics.append(topic)
            elif news:
                topics.append(f.FetchableTopicResponse(topic.topic, topic.topic_id, news))
        return f.FetchResponse(
            session_id=self.id, responses=topics, node_endpoints=response.node_endpoints
        )

    def _is_news(self, key: Key, part: f.PartitionData) -> bool:
        """Return whether a partition has changed, as Kafka's `CachedPartition` decides.

        After an error the end offsets are sent again, too.
        """
        ends = (part.high_watermark, part.log_start_offset)
        known = self._told.get(key) == ends
        if part.error_code:
            self._told.pop(key, None)
        else:
            self._told[key] = ends
        asked = part.error_code or part.records or part.preferred_read_replica >= 0
        return bool(asked) or not known


class FetchSessions:
    """All Fetch sessions of one broker's process."""

    def __init__(self, rng: random.Random) -> None:
        """Set `rng`, a generator that no other broker uses, for session ids."""
        self._sessions: dict[int, BrokerFetchSession] = {}
        self._rng = rng

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Drop all sessions, because the process has ended."""
        self._sessions.clear()

    def session(self, request: f.FetchRequest) -> BrokerFetchSession:
        """Return the updated session of a request, or raise the error that Kafka returns."""
        if request.session_epoch <= 0:
            self._sessions.pop(request.session_id, None)
            single = request.session_epoch < 0
            session = BrokerFetchSession(0 if single else self._rng.randint(1, MAX_ID))
            if not single:
                self._sessions[session.id] = session
            while len(self._sessions) > LARGEST_CACHE:
                del self._sessions[next(iter(self._sessions))]
        else:
            found = self._sessions.get(request.session_id)
            if found is None:
                raise errors.FetchSessionIdNotFoundError(f"session {request.session_id}")
            if request.session_epoch != found.epoch:
                raise errors.InvalidFetchSessionEpochError(f"epoch {request.session_epoch}")
            session = found
            session.epoch += 1
            session.full = False
        session.update(request)
        return session
