"""Watch a group consumer's subscription: topics by name or by pattern, and their changes.

In: the caller's subscription, metadata. Out: the current topics; the start of the membership once
they are known, and its rejoins when others match. A classic group's pattern is resolved here, with
a list of all topics every metadata.max.age.ms; with KIP-848 the broker does that. Must not: know
assignments.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable

from odradek.clients.any_broker import Brokers
from odradek.clients.client_engine import FINAL_TOPIC_ERRORS
from odradek.clients.consumer.group.group_commits import patience
from odradek.clients.consumer.group.member import ThisMember
from odradek.clients.consumer.group.membership import MemberState
from odradek.clients.consumer.group.unmatched_pattern import pattern_cure, unmatched
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.missing_topics import WARN_AFTER_S
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, KafkaError, first_use
from odradek.common.errors.kafka import error_for
from odradek.common.topic_names import check_topic
from odradek.network.flow import START, Flow, Signal, Wait

logger = logging.getLogger("odradek.consumer")

LIST_FIRST, LIST_MOST = 0.5, 10.0
"""Initial and maximum number of seconds before topics are listed again after a failure.

A rebalance within `LIST_FIRST` after a listing causes no other listing.
"""


RE2_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
"""Flags that brokers' regular expressions (RE2/J) have as well, with their letters."""


def with_flags(pattern: str | re.Pattern[str]) -> str:
    """Return the text of a pattern for brokers, with its flags as a prefix such as `(?i)`.

    Raises `ConfigurationError` for flags that brokers can't apply. Names of topics are ASCII, so
    `re.ASCII` makes no difference.
    """
    if isinstance(pattern, str):
        return pattern
    text = pattern.pattern
    flags = re.RegexFlag(pattern.flags) & ~(re.UNICODE | re.ASCII | re.DEBUG)
    letters = "".join(letter for flag, letter in RE2_FLAGS.items() if flags & flag)
    rest = flags & ~re.RegexFlag(sum(RE2_FLAGS))
    if rest:
        raise ConfigurationError(
            f"pattern {text!r}: with group.protocol=consumer, brokers match the topics, and they "
            f"have no flag {rest.name}: write the pattern without it"
        )
    return f"(?{letters}){text}" if letters else text


class TopicWatch:
    """The subscription of one group consumer."""

    def __init__(
        self,
        brokers: Brokers,
        config: Config,
        subscription: SubscriptionState,
        member: ThisMember,
    ) -> None:
        self._brokers = brokers
        self._engine = brokers.engine
        self._metadata = brokers.metadata
        self._config = config
        self._subscription = subscription
        self._member = member
        self.active = False
        self.pattern: str | None = None
        self._names: tuple[str, ...] = ()
        self._matched: tuple[str, ...] = ()
        self._wanted: tuple[str, ...] = ()
        """Names that were last requested from the metadata."""
        self._compiled: re.Pattern[str] | None = None
        self.unmatched: tuple[float, str] | None = None
        """Time since which no topic has matched the pattern, and a description; else None.

        It is always None with KIP-848: brokers match the pattern, and don't return the topics.
        """
        self._rebalances = False
        self._listed_at = -math.inf
        self._list_at = 0.0
        self._asked = Signal()
        self._serial = 0
        self._told: dict[str, int] = {}
        """Errors of topics that were already reported to the caller."""
        self._unlisted = Backoff(ExponentialBackoff(LIST_FIRST, LIST_MOST), brokers.rng)

    # Caller's thread

    def subscribe(self, topics: Collection[str], pattern: str | re.Pattern[str] | None) -> bool:
        """Set another subscription; if it is invalid, raise and keep the old one.

        Returns whether it differs: a repeated `subscribe` to the same topics mustn't rebalance.
        """
        compiled, text = None, None
        if pattern is not None:
            if topics:
                raise ConfigurationError("subscribe() takes topics or a pattern, not both")
            text = pattern if isinstance(pattern, str) else pattern.pattern
            if not text:
                raise ConfigurationError("the pattern is empty")
            if self._member.by_epoch:
                text = with_flags(pattern)
            else:
                try:
                    compiled = re.compile(pattern)
                except (re.error, OverflowError, RecursionError) as error:
                    raise ConfigurationError(f"pattern {text!r}: {error}") from error
        elif not topics:
            raise ConfigurationError("subscribe() needs topics or a pattern")
        for topic in topics:
            check_topic(topic)
        names = tuple(sorted(set(topics)))
        before = self._names, self.pattern, self._compiled
        if self.active and before == (names, text, compiled):
            return False
        self._names, self.pattern, self._compiled = names, text, compiled
        self._matched = ()
        self._list_at = 0.0
        self.active = True
        return True

    def topics(self) -> list[str]:
        """Return the subscribed topics; empty for a pattern that the broker resolves."""
        return list(self._names or self._matched)

    def forget_unused(self, topics: Iterable[str]) -> None:
        """Drop these topics from the metadata, unless they are subscribed or assigned."""
        used = {*self.topics(), *(p.topic for p in self._subscription.partitions)}
        self._metadata.forget_topics(t for t in topics if t not in used)

    # Engine's step

    def begin(self, _: float) -> None:
        """Join with a new subscription once its topics are known."""
        self.stop()
        self._told.clear()
        self._engine.start(self._run(self._serial))

    def end(self) -> None:
        """Note that nothing is subscribed any more."""
        self.active = False
        self.stop()
        wanted = (*self._wanted, *self._matched)
        self._names = self._matched = self._wanted = ()
        self.pattern = self._compiled = None
        self.forget_unused(wanted)

    def stop(self) -> None:
        """Stop watching the topics; the subscription remains."""
        self._serial += 1
        self.unmatched = None
        self._asked.notify()

    def list_again(self) -> None:
        """List topics for a pattern again during a rebalance, unless the last list is recent."""
        if self._compiled is not None and self._engine.now >= self._listed_at + LIST_FIRST:
            self._rebalances = True
            self._asked.notify()

    def _run(self, serial: int) -> Flow[None]:
        """Watch until the subscription changes."""
        now = yield START
        metadata = self._metadata
        self._unlisted.succeeded()
        self.forget_unused(self._wanted)
        self._wanted = self._names
        metadata.want(self._names)
        if self._compiled is not None:
            now = yield from self._list(serial, now)
        while serial == self._serial and not self._all_answered():
            now = yield Wait((metadata.changed, self._asked))
        membership = self._member.membership
        if serial != self._serial or membership is None:
            return
        if membership.state is MemberState.UNJOINED:
            membership.start(now)
        else:
            membership.rejoin("the subscription has changed", now)
        while True:
            listed = self._list_at if self._compiled is not None else None
            now = yield Wait((metadata.changed, self._asked), listed)
            if serial != self._serial:
                return
            if self._compiled is not None and (self._rebalances or now >= self._list_at):
                before = self._matched
                now = yield from self._list(serial, now)
                membership = self._member.membership
                if serial == self._serial and before != self._matched and membership is not None:
                    membership.rejoin(f"pattern {self.pattern!r} matches other topics", now)
            elif metadata.snapshot is not None:
                self._tell_errors()

    def _no_match(self, names: Collection[str], now: float) -> None:
        """Note that no topic matches the pattern, and warn after a while (R-IN-6)."""
        since = now if self.unmatched is None else self.unmatched[0]
        if self.unmatched is None:
            self._engine.start(self._warn(since))
        self.unmatched = since, unmatched(self.pattern or "", names)

    def _warn(self, since: float) -> Flow[None]:
        """Warn, unless a topic has matched meanwhile or the subscription has changed."""
        now = yield START
        while now < since + WARN_AFTER_S:
            now = yield Wait((self._asked,), since + WARN_AFTER_S)
            if self.unmatched is None or self.unmatched[0] != since:
                return
        if self.unmatched is not None:
            text, cure = self.unmatched[1], pattern_cure(self._config)
            waited = now - since
            logger.warning(
                "group %s: %s (waited %.0f s). %s", self._member.group_id, text, waited, cure
            )

    def _topics_there(self, deadline: float) -> Flow[list[str]]:
        with first_use():  # few consumers have a pattern
            from odradek.clients.descriptions import list_topics
        internal = not self._config["exclude.internal.topics"]
        return list_topics(self._brokers, deadline, internal=internal)

    def _all_answered(self) -> bool:
        metadata = self._metadata
        if metadata.snapshot is None:
            return False
        self._tell_errors()
        return all(
            t in metadata.snapshot.topics or t in metadata.topic_errors for t in self.topics()
        )

    def _list(self, serial: int, now: float) -> Flow[float]:
        """Resolve the pattern; keep the known topics if no broker answers."""
        only_more, self._rebalances = now < self._list_at, False
        config = self._config
        try:
            names = yield from self._topics_there(now + patience(config))
        except KafkaError:
            names = list(self._matched)
            again = self._unlisted.failed(self._engine.now)
        else:
            again = self._engine.now + config["metadata.max.age.ms"]
            self._unlisted.succeeded()
        self._listed_at = now = self._engine.now
        if only_more:
            names = sorted({*names, *self._matched})
        else:
            self._list_at = again
        if serial != self._serial or self._compiled is None:
            return now
        matched = tuple(n for n in names if self._compiled.fullmatch(n))
        if matched:
            self.unmatched = None
        elif self._unlisted.failures == 0:
            self._no_match(names, now)
        gone = set(self._matched).difference(matched)
        self._matched = matched
        self.forget_unused(gone)
        self._metadata.want(matched)
        return now

    def _tell_errors(self) -> None:
        """Let the next poll raise the error of a topic that can't be read, once."""
        errors = self._metadata.topic_errors
        for name in self._names:
            code = errors.get(name, 0)
            if code in FINAL_TOPIC_ERRORS and self._told.get(name) != code:
                error = error_for(code, f"topic {name}").needing("READ", name)
                self._member.complain(error)
            self._told[name] = code
