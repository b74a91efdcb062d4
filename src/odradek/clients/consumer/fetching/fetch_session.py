"""Track the Fetch session of a broker (KIP-227), so that requests only contain changes.

In: all partitions that are requested from one broker now. Out: the content of the next request; the
handling of the session fields in its response. With thousands of partitions a request shrinks from
half a megabyte to some bytes, on both sides. Must not: know positions or states.

As in Java's `FetchSessionHandler`, requests also name the partitions that the broker should forget:
those with buffered records aren't needed, and would otherwise be returned with each incremental
fetch.

The fetch that closes a session uses another connection than the fetch that the broker holds,
because a broker answers the requests of a connection in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from odradek.common.errors.kafka import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

Key = tuple[bytes | str, int]
"""Topic id (or name, before version 13) and partition number."""
Wanted = tuple[int, int, int]
"""Leader epoch, offset and maximum number of bytes of a request."""

SESSIONS_FROM = 7
"""First version of Fetch with sessions."""
TOPIC_IDS_FROM = 13
"""First version of Fetch that names a topic by its id alone (KIP-516)."""
SESSION_ERRORS = frozenset(
    (
        FetchSessionIdNotFoundError.code,
        InvalidFetchSessionEpochError.code,
        FetchSessionTopicIdError.code,
    )
)
_LAST_EPOCH = 2**31 - 1
FINAL_EPOCH = -1
"""Session epoch of a fetch that ends the session, or that uses none."""


class SessionFields(TypedDict, total=False):
    """The fields of a request that concern the session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class FetchSession:
    """The session with one broker; while `id` is 0, there is none."""

    __slots__ = ("_by_id", "_known", "epoch", "id")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        """Epoch of the next request; 0: a full request, which begins a new session."""
        self._known: Mapping[Key, Wanted] = {}
        self._by_id = False

    def says(
        self, wanted: Mapping[Key, Wanted], version: int, *, changed: bool = True
    ) -> SessionFields:
        """Return the session's fields and the partitions that changed since the last request."""
        by_id = version >= TOPIC_IDS_FROM
        if version < SESSIONS_FROM:
            self.id, self.epoch = 0, 0
        elif by_id != self._by_id:
            self.reset()
        self._by_id = by_id
        said: SessionFields = {}
        if version >= SESSIONS_FROM:
            said["session_id"], said["session_epoch"] = self.id, self.epoch
        known = self._known if self.epoch else {}
        if known and not changed:
            return said
        self._known = dict(wanted)
        said["topics"] = _topics(wanted, known, by_id)
        if known and (known.keys() - wanted.keys()):
            said["forgotten_topics_data"] = _forgotten(known, wanted, by_id)
        return said

    def ends(self) -> SessionFields:
        """Return the fields that let the broker forget the session."""
        said: SessionFields = {"session_id": self.id, "session_epoch": FINAL_EPOCH}
        self.id = 0
        self.reset()
        return said

    def answered(self, session_id: int) -> None:
        """Note a response without an error; the broker may have declined a session (id 0)."""
        if session_id == 0:
            self.id = self.epoch = 0
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Start a new session after a lost response or an error: the broker's state is unknown.

        The old id is sent once more, so that the broker can forget that session.
        """
        self.epoch = 0

    def refused(self, code: int) -> bool:
        """Handle an error of the session; return whether an immediate retry is useful."""
        if code not in SESSION_ERRORS:
            self.reset()
            return False
        incremental = self.epoch != 0
        self.reset()
        if code == FetchSessionIdNotFoundError.code:
            self.id = 0
        return incremental  # after a full request, another one would fail as well


class NoSession(FetchSession):
    """Used instead of a session: each request is full, and the broker keeps no state."""

    __slots__ = ()

    def says(
        self, wanted: Mapping[Key, Wanted], version: int, *, changed: bool = True
    ) -> SessionFields:
        """Return the session's fields and all requested partitions."""
        self.reset()
        said = super().says(wanted, version, changed=changed)
        if version >= SESSIONS_FROM:
            said["session_epoch"] = FINAL_EPOCH
        return said


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
            name: Any = topic
            entry = FetchTopic(topic_id=name) if by_id else FetchTopic(name)
            topics[topic] = entry
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
            name: Any = key[0]
            entry = ForgottenTopic(topic_id=name) if by_id else ForgottenTopic(name)
            topics[name] = entry
        entry.partitions.append(key[1])
    for entry in topics.values():
        entry.partitions.sort()
    return list(topics.values())
