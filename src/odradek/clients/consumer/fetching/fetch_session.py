"""KIP-227: what a broker remembers of our fetches, so that only changes travel.

In: everything that is wanted of one broker now. Out: what the next request has to say, and how its
answer's session fields are taken. With thousands of partitions this is the difference between
some bytes and half a megabyte for each fetch, on both sides. Must not: know positions or states.

Java's `FetchSessionHandler` sends what the broker has to forget as well, and so do we: a partition
whose records wait here isn't wanted, and would else be answered again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.kafka_errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

Key = tuple[bytes | str, int]
"""Topic id (or name, before version 13) and partition number."""
Wanted = tuple[int, int, int]
"""Leader epoch, offset, most bytes."""

SESSIONS_FROM = 7
"""The first version of Fetch that knows sessions."""
TOPIC_IDS_FROM = 13
"""KIP-516: from this version on a topic is named by its id alone."""
SESSION_ERRORS = frozenset(
    (
        FetchSessionIdNotFoundError.code,
        InvalidFetchSessionEpochError.code,
        FetchSessionTopicIdError.code,
    )
)
_LAST_EPOCH = 2**31 - 1
FINAL_EPOCH = -1
"""Asks for the end of the session; without one, for an answer outside of any."""


class FetchSession:
    """The session with one broker; there is none while `id` is 0."""

    __slots__ = ("_by_id", "_known", "epoch", "id")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        """Of the next request; 0: it says everything, and asks for a new session."""
        self._known: Mapping[Key, Wanted] = {}
        self._by_id = False

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[Key, Wanted],
        version: int,
        *,
        changed: bool = True,
    ) -> None:
        """Write into a request what the broker doesn't know yet: nothing, where nothing has changed
        since the request before.
        """
        by_id = version >= TOPIC_IDS_FROM
        if version < SESSIONS_FROM:
            self.id, self.epoch = 0, 0
        elif by_id != self._by_id:
            self.reset()
        self._by_id = by_id
        known = self._known if self.epoch else {}
        if known and not changed:
            request.session_id, request.session_epoch = self.id, self.epoch
            return
        self._known = dict(wanted)
        request.topics = _topics(wanted, known, by_id)
        if version >= SESSIONS_FROM:
            request.session_id, request.session_epoch = self.id, self.epoch
            if known and (known.keys() - wanted.keys()):
                request.forgotten_topics_data = _forgotten(known, wanted, by_id)

    def fill_last(self, request: FetchRequest) -> bool:
        """Write into a request that the broker may forget the session; False where there's none."""
        request.session_id, request.session_epoch = self.id, FINAL_EPOCH
        known, self.id = self.id != 0, 0
        self.reset()
        return known

    def answered(self, session_id: int) -> None:
        """An answer without an error came; the broker may have declined a session (id 0)."""
        if session_id == 0:
            self.id = self.epoch = 0
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Begin again: an answer is missing or was an error, so nobody knows what is remembered.

        The old id goes along once more, so that the broker can forget that session.
        """
        self.epoch = 0

    def refused(self, code: int) -> bool:
        """Take an error of the session's own; say whether asking again at once is worth it."""
        if code not in SESSION_ERRORS:
            self.reset()
            return False
        incremental = self.epoch != 0
        self.reset()
        if code == FetchSessionIdNotFoundError.code:
            self.id = 0
        return incremental  # an error to a request that says everything would only come again


class NoSession(FetchSession):
    """Each request says everything, and the broker remembers none of it."""

    __slots__ = ()

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[Key, Wanted],
        version: int,
        *,
        changed: bool = True,
    ) -> None:
        self.reset()
        super().fill(request, wanted, version, changed=changed)
        if version >= SESSIONS_FROM:
            request.session_epoch = FINAL_EPOCH


def _topics(
    wanted: Mapping[Key, Wanted], known: Mapping[Key, Wanted], by_id: bool
) -> list[FetchTopic]:
    topics: dict[bytes | str, FetchTopic] = {}
    for key, value in wanted.items():
        if known and known.get(key) == value:
            continue
        (topic, number), (leader_epoch, offset, most) = key, value
        entry = topics.get(topic)
        if entry is None:
            entry = topics[topic] = FetchTopic()
            if by_id:
                entry.topic_id = topic  # type: ignore[assignment]
            else:
                entry.topic = topic  # type: ignore[assignment]
        entry.partitions.append(
            FetchPartition(number, leader_epoch, offset, partition_max_bytes=most)
        )
    return list(topics.values())


def _forgotten(
    known: Mapping[Key, Wanted], wanted: Mapping[Key, Wanted], by_id: bool
) -> list[ForgottenTopic]:
    topics: dict[bytes | str, ForgottenTopic] = {}
    for key in known.keys() - wanted.keys():
        entry = topics.get(key[0])
        if entry is None:
            entry = topics[key[0]] = ForgottenTopic()
            if by_id:
                entry.topic_id = key[0]  # type: ignore[assignment]
            else:
                entry.topic = key[0]  # type: ignore[assignment]
        entry.partitions.append(key[1])
    for entry in topics.values():
        entry.partitions.sort()
    return list(topics.values())
