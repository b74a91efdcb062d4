"""Decide which of two ids of a topic is the newer one (R-ID-3).

In: metadata responses and the addresses that sent them. Out: the topics whose id in a response
isn't accepted; the brokers to ask next. A topic that is deleted and recreated gets another id. Ids
are random, so they don't show which topic is newer, and the metadata of a broker may lag: then it
contains the id of the deleted topic. A client that accepted this id would read the deleted topic
from its beginning, and then the newer topic again. Must not: know connections.

The metadata of one broker never goes back in time. So a new id is accepted at once from a broker
that has reported the current id before. Otherwise the client keeps the current id and asks other
brokers, first those that have reported the current id. The new id is accepted if one of these
changes to it, or if all brokers (at most `ANSWERS`) report it and none is known to have reported
the current id. An id that a broker reported before the current id belongs to a deleted topic. If
the topic isn't in the snapshot, because a response lacked it or after a rebootstrap, there is no
topic to keep, so an id is accepted unless it is known to belong to a deleted topic.

As with leader epochs (`reported_epochs`), an id is accepted anyway after `ANSWERS` responses in at
least `SECONDS` if more than half of the brokers report it, because the cluster may have been
restored, or the broker that reported the current id was cut off.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Container, Mapping

from odradek.common.errors.topics import topic_id_text
from odradek.common.types import Address
from odradek.metadata.cluster import NO_ID, Cluster, Epochs, known_id
from odradek.metadata.reported_epochs import ANSWERS, SECONDS
from odradek.metadata.response_comparison import ResponseComparison
from odradek.protocol.messages.metadata import MetadataResponse

logger = logging.getLogger("odradek.metadata")

OLDER_IDS = 8
"""Maximum number of ids of deleted topics that are remembered for one name."""
FORMER = 20
"""Maximum number of brokers outside the cluster that are remembered."""
ALWAYS: tuple[float, int | None] = (float("-inf"), None)


class IdHistory:
    """Ids of one topic besides the current id, and the brokers that reported them."""

    __slots__ = (
        "agreed_before", "answers", "confirmed", "former_named_at", "older", "others", "since",
        "told",
    )  # fmt: skip

    def __init__(self) -> None:
        self.older: dict[bytes, None] = {}
        """Ids of deleted topics with this name."""
        self.others: dict[int, bytes] = {}
        """Last id that each broker reported, if not the current id; empty for an error."""
        self.since: float | None = None
        """Time of the first response with another id; None while no id is in doubt."""
        self.answers = 0
        self.confirmed: set[int] = set()
        """Brokers that have reported the current id since the time `since`."""
        self.told = False
        self.agreed_before = -math.inf
        """When metadata was last requested before brokers reported different ids."""
        self.former_named_at = -math.inf
        """When metadata was last requested that still had the id before the current one."""

    def add_older(self, topic_id: bytes) -> None:
        """Remember the id of a deleted topic."""
        self.older[topic_id] = None
        while len(self.older) > OLDER_IDS:
            del self.older[next(iter(self.older))]

    def forget_others(self, brokers: Collection[int]) -> None:
        """Forget brokers outside the cluster, if there are many."""
        if max(len(self.others), len(self.confirmed)) > FORMER + len(brokers):
            self.others = {b: named for b, named in self.others.items() if b in brokers}
            self.confirmed.intersection_update(brokers)

    def hear(self, now: float, requested_at: float = -math.inf) -> None:
        """Count a response while brokers report different ids.

        `requested_at`: when metadata was last requested before this response.
        """
        if self.since is None:
            self.agreed_before = requested_at
            self.since, self.answers, self.told = now, 0, False
            self.confirmed.clear()
        self.answers += 1

    def is_outvoted(self, brokers: Collection[int], now: float, *, by: bytes) -> bool:
        """Return whether more than half of the brokers report an id; `NO_ID`: the current one.

        No majority is required if each broker shares its address with others, or if all answers
        came through bootstrap addresses, because the brokers' own addresses can't be reached.
        """
        if self.since is None or self.answers < ANSWERS or now < self.since + SECONDS:
            return False
        if not brokers or not (self.others or self.confirmed):
            return by != NO_ID
        votes = Counter(named for b, named in self.others.items() if named and b in brokers)
        votes[NO_ID] = len(self.confirmed.intersection(brokers))
        mine = votes.pop(by, 0)
        return mine >= min(ANSWERS, len(brokers) // 2 + 1) and mine > max(votes.values(), default=0)

    def is_unanimous(self, brokers: Collection[int], topic_id: bytes) -> bool:
        """Return whether all brokers (at most `ANSWERS` of them) report another id."""
        votes = sum(self.others.get(b) == topic_id for b in brokers)
        return len(brokers) > 0 and not self.confirmed and votes >= min(ANSWERS, len(brokers))


class TopicIds:
    """Which brokers reported which topic ids to one client, and when."""

    def __init__(self) -> None:
        self._asked: dict[int, float] = {}
        """Time when the last answered request for all topics was sent, by broker id."""
        self._since: dict[str, tuple[float, int | None]] = {}
        """Time when a topic's current id was accepted, and the broker that reported it.

        A topic that isn't in the dict has had its id since the first response; so a client of many
        topics needs no entry for most topics.
        """
        self._histories: dict[str, IdHistory] = {}
        self.undecided: dict[str, None] = {}
        """Topics for which brokers report different ids."""
        self._listed: tuple[int, ...] = ()
        """Ids of the brokers in the last response."""
        self._recent: set[int] = set()
        """Ids of the brokers in the last two responses."""
        self._peers: set[int] = set()
        """Ids of the brokers in the responses since ids differ; a lagging broker may list few."""
        self._requested_at = -math.inf
        """When the last answered request for all topics was sent."""
        self._answered: dict[Address, None] = {}
        self._first: frozenset[Address] = frozenset()

    def asks_later(self, address: Address) -> bool:
        """Return whether other brokers should be asked before the broker at this address."""
        return address in self._answered or bool(self._first and address not in self._first)

    def former_named_at(self, topic: str) -> float:
        """Return when metadata was last requested that still had the topic's former id."""
        history = self._histories.get(topic)
        return -math.inf if history is None else history.former_named_at

    def forget(self, topic: str) -> None:
        """Forget a topic that isn't used any more."""
        self._since.pop(topic, None)
        self._histories.pop(topic, None)
        self.undecided.pop(topic, None)

    def refused(
        self,
        looked: ResponseComparison,
        epochs: Epochs,
        old: Cluster | None,
        at: Address | None,
        now: float,
        sent_at: float | None,
    ) -> set[str]:
        """Return the topics of a response whose ids aren't accepted.

        `epochs` contains the current ids, `old` the topics that may be kept. `sent_at` is the time
        when the request was sent, or None if it wasn't for all topics.
        """
        there: Container[str] = () if old is None else old.topics
        first = not epochs
        brokers = brokers_by_address(looked.answer)
        broker = brokers.get(at) if at is not None else None
        ids = brokers.values()
        self._recent = {*self._listed, *ids}
        self._peers = self._recent | self._peers if self.undecided else self._recent
        if len(self._peers) > FORMER + len(self._recent):
            self._peers = self._recent
        self._since.update(dict.fromkeys(looked.added, (now, broker)))
        for name in [name for name in self._histories if name in looked.ready.topics]:
            self._confirm(name, broker, ids, now)
        refused: set[str] = set()
        for item in looked.left:
            name = item.name or ""
            present = known_id(epochs, name)
            if item.error_code:
                if present != NO_ID:
                    self._note_error(name, broker)
            elif item.topic_id == present != NO_ID:
                if name in self._histories:
                    self._confirm(name, broker, ids, now)
            elif item.topic_id == NO_ID:
                continue  # no id reported
            elif present == NO_ID:
                self._since[name] = now, broker
            elif (name not in there and not self._is_older(name, item.topic_id)) or self._accepts(
                name, item.topic_id, broker, ids, now
            ):
                self._accept(name, item.topic_id, present, broker, now)
            else:
                refused.add(name)
                self._tell(name, item.topic_id, present, at, now)
        if first:
            self._asked.clear()
            self._since.clear()
        if sent_at is not None:
            self._requested_at = sent_at
        if broker is not None and (first or sent_at is not None):
            self._asked[broker] = now if sent_at is None else sent_at
        if len(self._asked) > FORMER + len(self._recent):  # broker ids may change each time
            self._asked = {b: sent for b, sent in self._asked.items() if b in self._recent}
        self._listed = tuple(ids)
        self._choose_next(brokers, at)
        return refused

    def _is_older(self, name: str, topic_id: bytes) -> bool:
        """Return whether an id belongs to a deleted topic."""
        history = self._histories.get(name)
        return history is not None and topic_id in history.older

    def _accepts(
        self, name: str, topic_id: bytes, broker: int | None, brokers: Collection[int], now: float
    ) -> bool:
        history, older = self._histories.get(name), self._is_older(name, topic_id)
        if not older and broker is not None and self._has_named(name, broker):
            return True  # a broker's metadata never goes back in time
        if history is None:
            history = self._histories[name] = IdHistory()
        history.hear(now, self._requested_at)
        self.undecided[name] = None
        if broker is not None:
            history.others[broker] = topic_id
            history.confirmed.discard(broker)
        history.forget_others(self._recent)
        if history.is_outvoted(brokers, now, by=topic_id):
            logger.warning(
                "topic %s: after %.0f s most brokers still report the topic id %s: it is accepted",
                *(name, SECONDS, topic_id_text(topic_id)),
            )
            return True
        if older or not history.is_unanimous(self._peers, topic_id):
            return False
        return not any(self._has_named(name, b) for b in self._peers)

    def _accept(
        self, name: str, topic_id: bytes, former: bytes, broker: int | None, now: float
    ) -> None:
        history = self._histories.setdefault(name, IdHistory())
        history.older.pop(topic_id, None)
        history.add_older(former)
        agreed = history.since is None
        history.former_named_at = self._requested_at if agreed else history.agreed_before
        history.others = {b: i for b, i in history.others.items() if i != topic_id}
        self._since[name] = now, broker
        self._decide(name, history)

    def _confirm(self, name: str, broker: int | None, brokers: Collection[int], now: float) -> None:
        """Note that a broker reports the current id."""
        history = self._histories[name]
        if broker is not None:
            before = history.others.pop(broker, b"")
            if before:
                history.add_older(before)
            history.confirmed.add(broker)
        if history.since is None:
            return
        history.hear(now)
        others = [i for i in history.others.values() if i]
        if history.is_outvoted(brokers, now, by=NO_ID):
            for topic_id in others:
                history.add_older(topic_id)
        if all(topic_id in history.older for topic_id in others):
            self._decide(name, history)

    def _note_error(self, name: str, broker: int | None) -> None:
        """Note that a broker returned an error for a topic, and so no id."""
        if broker is not None and not self._has_named(name, broker):
            history = self._histories.setdefault(name, IdHistory())
            history.others.setdefault(broker, b"")
        if name in self.undecided:  # the topic may be deleted
            self._decide(name, self._histories[name])

    def _decide(self, name: str, history: IdHistory) -> None:
        history.since = None
        self.undecided.pop(name, None)

    def _has_named(self, name: str, broker: int) -> bool:
        """Return whether a broker has reported the current id, and no other id since then."""
        history = self._histories.get(name)
        if history is not None and broker in history.others:
            return False
        since, first = self._since.get(name, ALWAYS)
        asked = self._asked.get(broker)
        return broker == first or (asked is not None and asked >= since)

    def _tell(
        self, name: str, topic_id: bytes, present: bytes, at: Address | None, now: float
    ) -> None:
        history = self._histories[name]
        begun = now if history.since is None else history.since
        if history.answers == 1:
            logger.info(
                "topic %s: %s reports the topic id %s instead of %s; the client asks other brokers "
                "which one is newer",
                *(name, at, topic_id_text(topic_id), topic_id_text(present)),
            )
        elif now >= begun + SECONDS and not history.told:
            history.told = True
            logger.warning(
                "topic %s: brokers report the topic ids %s and %s, and neither is reported by more "
                "than half of them: the client keeps the first one",
                *(name, topic_id_text(present), topic_id_text(topic_id)),
            )

    def _choose_next(self, brokers: Mapping[Address, int], at: Address | None) -> None:
        """Choose the brokers to ask while ids differ: first those that reported the current id."""
        if not self.undecided:
            if self._answered or self._first:
                self._answered, self._first = {}, frozenset()
            return
        if at is not None:
            if at in self._answered:  # the other brokers have answered or failed
                self._answered = {}
            self._answered[at] = None
        found = {
            address
            for name in self.undecided
            for address, broker in brokers.items()
            if self._has_named(name, broker)
        }
        self._first = frozenset(found - self._answered.keys())


def brokers_by_address(response: MetadataResponse) -> dict[Address, int]:
    """Return the ids of a response's brokers by address, except brokers that share an address."""
    places = [Address(b.host, b.port) for b in response.brokers]
    shared = {at for at, count in Counter(places).items() if count > 1} if len(places) > 1 else ()
    return {
        at: b.node_id for at, b in zip(places, response.brokers, strict=True) if at not in shared
    }
