"""Log a client's outages: their beginnings and ends, and summaries in between (R-EV-1).

In: all events of one client, as a listener of its `EventLog`; the time, as a component of its
engine. Out: a few log lines at WARNING and INFO, and `current` for `explain()`. (`EventLog` logs
each single event at DEBUG.) Must not: influence the client, or use more memory in a longer outage.

Terms in log lines, as in R-MD-3: an *attempt* is one connection attempt or one metadata request; a
*round* is one pass over all brokers that can be asked; a *retry* is a caller's request that is sent
again. Connection attempts are counted separately for known brokers and bootstrap addresses. A
two-minute outage takes about ten lines. If outages follow each other closely, only the first
`FULLY_LOGGED_OUTAGES` have lines for beginning and end; for the others, summaries are logged.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from odradek.common.errors import DnsError
from odradek.common.outage import (
    BOOTSTRAP,
    CALM,
    EXPIRED,
    FIRST_SPACING,
    KNOWN,
    LONGEST_SPACING,
    NAMED,
    ONE,
    REBOOTSTRAP,
    RETRY,
    ROUND,
    Counts,
    Outage,
    Spacing,
    named,
    number,
    plain,
)
from odradek.common.printable import sentence

if TYPE_CHECKING:
    from odradek.common.events import Event

logger = logging.getLogger("odradek")

QUIET_AFTER_S = 5.0
"""Seconds after its last failure when an address counts as not needed, if others answer.

A client connects to needed addresses at least every second.
"""
NO_NAME = f"{DnsError.__name__}: "
"""Prefix of a connection attempt's error if the host name couldn't be resolved."""
FULLY_LOGGED_OUTAGES = 3
"""Number of outages in a row whose beginnings and ends are logged."""


Fields = Mapping[str, Any]
Handler = Callable[["OutageLog", float, Fields], None]


class OutageLog:
    """Log of one client's outages: a listener of its events and a component of its engine."""

    def __init__(
        self, client: str, bootstrap: Collection[str], cure: Callable[[], str] = str
    ) -> None:
        """Set `cure`, which returns the advice for a client that has never reached its cluster."""
        self._client = client
        self._bootstrap = frozenset(bootstrap)
        self._cure = cure
        self.resting = True
        """Whether no log line is due and no outage lasts, so that `advance` has nothing to do."""
        self.known = False
        """Whether the client has ever reached the cluster."""
        self.known_since: float | None = None
        """Time when the client first reached the cluster; None before that."""
        self.current: Outage | None = None
        self.counts = Counts()
        self.counts_since = 0.0
        self.in_a_row = 0
        """Number of outages in a row, each at most `CALM` seconds after the previous one."""
        self.last_ended = -math.inf
        self.out_before = 0.0
        """Total seconds of outages since `counts_since`, without the current outage."""
        self._step = FIRST_SPACING
        self._next_line = math.inf
        self._up_untold = False
        self._told = False  # whether the last rebootstrap was logged
        self._ended = False
        self._pending: dict[int, str] = {}  # addresses of pending attempts
        self._mute: set[str] = set()  # addresses with a silent connection
        self._spacings: dict[str, Spacing] = {}

    # Listener

    def __call__(self, event: Event) -> None:
        """Count an event of the client, and log what it means for outages."""
        handler = self._HANDLERS.get(event.kind)
        if handler is not None and not self._ended:
            handler(self, event.at, event.fields)
            self.resting = self.current is None and self._next_line == math.inf

    def _dial(self, now: float, fields: Fields) -> None:
        address = fields["address"]
        self._pending[fields["connection"]] = address
        if self.current is not None:
            self.counts.dials[self._class(address)] += 1

    def _ready(self, now: float, fields: Fields) -> None:
        address = fields["address"]
        self._pending = {c: a for c, a in self._pending.items() if a != address}

    def _disconnected(self, now: float, fields: Fields) -> None:
        self._pending.pop(fields["connection"], None)
        self._mute.discard(fields["address"])
        if fields.get("failure"):
            in_flight = fields.get("in_flight") or 0
            more = f", {number(in_flight, 'request')} in flight" if in_flight else ""
            self._failed(now, fields, "connection lost", more)

    def _dial_failed(self, now: float, fields: Fields) -> None:
        self._failed(now, fields, "connection attempt failed", "")
        self._pending.pop(fields["connection"], None)
        self._mute.discard(fields["address"])
        failed = fields["error"].startswith(NO_NAME)
        counts = self.counts.names if failed else self.counts.attempts
        counts[self._class(fields["address"])] += 1

    def _dns_failed(self, now: float, fields: Fields) -> None:
        # R-CS-6: the address is kept and tried again; this line is logged even if the outage began
        # with another address.
        address = fields["address"]
        if not self.known:  # the line about the attempt has the cause
            return
        text = (
            f"the host name of {address} can't be resolved ({fields['error']}); the client will "
            "retry"
        )
        self._seldom(f"name {address}", logging.WARNING, text, now)

    def _silent(self, now: float, fields: Fields) -> None:
        if fields.get("held"):  # the broker may hold a write
            return
        what = "no response" if fields.get("ready") else ("no response to the connection attempt")
        self._failed(
            now, {**fields, "error": f"nothing received for {fields.get('seconds')} s"}, what, ""
        )
        self._mute.add(fields["address"])

    def _heard(self, now: float, fields: Fields) -> None:
        address = fields["address"]
        self._mute.discard(address)
        outage = self.current
        if outage is not None and fields.get("ready"):
            self._worked(outage, address, now)

    def _metadata_failed(self, now: float, fields: Fields) -> None:
        if fields.get("what") == "dial" or not fields.get("failure", True):
            return  # it was counted before, or is no failure
        self._failed(now, fields, "metadata request failed", "")
        self.counts.attempts[self._class(fields["address"])] += 1

    def _round_failed(self, now: float, fields: Fields) -> None:
        outage = self.current
        if outage is None:
            return
        self.counts.others[ROUND] += 1
        outage.nobody_answers()
        if outage.told and self.counts.others[ROUND] == 1:
            failing = outage.failing if self.known else outage.unsaid()
            if not failing:
                return
            self._say(
                logging.WARNING,
                f"no broker answers: the metadata refresh failed with every address "
                f"({named(failing)}); next refresh in {float(fields.get('backoff') or 0.0):.2f} s",
            )

    def _rebootstrap(self, now: float, fields: Fields) -> None:
        outage = self.current
        if outage is not None:
            self.counts.others[REBOOTSTRAP] += 1
            outage.nobody_answers()
            self._told = outage.told and self.counts.others[REBOOTSTRAP] == 1
        else:
            self._told = self._spacings.setdefault("rebootstrap", Spacing()).allows(now)
        if self._told:
            known = number(len(fields["known"]), "known broker")
            self._say(
                logging.WARNING,
                f"rebootstrap: {fields['why']}; starting again from bootstrap.servers ({known} "
                "before)",
            )

    def _rebootstrapped(self, now: float, fields: Fields) -> None:
        if self._told:
            self._say(
                logging.INFO,
                f"rebootstrap done after {fields['seconds']:.1f} s: {fields['address']} answered "
                f"for cluster {fields['cluster_id']}",
            )

    def _metadata(self, now: float, fields: Fields) -> None:
        first, self.known = not self.known, True
        if first:
            self.known_since = now
        outage = self.current
        if outage is None:
            return
        address = fields["address"]
        outage.answered(now, address)
        if outage.total or first or not outage.failing:
            self._over(outage, now, f"{address} answered")

    def _proved(self, now: float, fields: Fields) -> None:
        if self.current is not None:
            self._worked(self.current, fields["address"], now)

    def _retry(self, now: float, fields: Fields) -> None:
        if self.current is not None:
            self.counts.others[RETRY] += 1

    def _expired(self, now: float, fields: Fields) -> None:
        if self.current is not None:
            self.counts.others[EXPIRED] += 1
        self._seldom("expired", logging.WARNING, f"timed out: {fields.get('what')}", now)

    def _foreign(self, now: float, fields: Fields) -> None:
        address = fields["address"]
        self._seldom(
            f"foreign {address}",
            logging.ERROR,
            f"{address} belongs to cluster {fields.get('found')}, not to "
            f"{fields.get('expected')}: its answer was rejected",
            now,
        )

    def _broken(self, now: float, fields: Fields) -> None:
        self._say(logging.ERROR, f"the client failed and can't continue: {fields.get('error')}")
        self._forget()

    def _closed(self, now: float, fields: Fields) -> None:
        outage = self.current
        if outage is not None:
            self._say(
                logging.INFO,
                f"the client was closed during an outage of {now - outage.begun:.1f} s; "
                f"{self.counts.in_words()}",
            )
        self._forget()

    # Methods that the engine calls: log lines that are due without an event

    def advance(self, now: float) -> bool:
        """Log the line that is due, if there is one."""
        if now < self._next_line and self.current is None:
            return False
        outage = self.current
        if outage is not None and not outage.total and self._not_needed_at(outage) <= now:
            gone = ", ".join(list(outage.failing)[:NAMED])
            end = max(outage.answered_at or now, outage.last_failure)
            self._over(outage, end, f"other brokers answer, and the client no longer needs {gone}")
        if now >= self._next_line:
            self._summary(now)
        self.resting = self.current is None and self._next_line == math.inf
        return False

    def next_deadline(self, now: float) -> float | None:
        """Return when `advance` must be called next even if no event occurs."""
        outage = self.current
        if outage is None and self._next_line == math.inf:
            return None
        due = self._next_line
        if outage is not None and not outage.total:
            ends = self._not_needed_at(outage)
            due = ends if ends < math.inf and outage.told else min(due, ends)
        return None if due == math.inf else due

    def abort(self, error: Exception, now: float) -> None:
        """Forget the outage, as the client has ended; other code logs `broken` and `closed`."""
        self._forget()

    # Beginning and end of outages

    def _failed(self, now: float, fields: Fields, what: str, more: str) -> None:
        address, error = fields["address"], fields["error"]
        outage = self.current
        if outage is None:
            one = ONE[self._class(address)]
            outage = self._begin(now, f"{one} {address}: {what} ({plain(error)}){more}")
            outage.said.add((address, error))
        outage.failed(now, address, error)
        if now >= self._next_line:
            self._summary(now)

    def _begin(self, now: float, what: str) -> Outage:
        again = now - self.last_ended <= CALM
        self.in_a_row = self.in_a_row + 1 if again else 1
        if not again:
            self._step = FIRST_SPACING
        told = self.in_a_row <= FULLY_LOGGED_OUTAGES
        if told:
            self.counts, self.counts_since, self.out_before = Counts(), now, 0.0
        for address in self._pending.values():  # attempts that began before the outage
            self.counts.dials[self._class(address)] += 1
        if told or self._next_line == math.inf:
            self._next_line = now + self._step
        self._up_untold = False
        outage = self.current = Outage(now, what, told, first=not self.known)
        if told:
            number = "" if self.in_a_row == 1 else f" (number {self.in_a_row} in a row)"
            text = f"outage started{number}: {what}"
            if outage.first:
                text = f"the cluster hasn't been reached yet: {sentence(what)} {self._cure()}"
                text = text.rstrip()
            self._say(logging.WARNING, text)
        return outage

    def _worked(self, outage: Outage, address: str, now: float) -> None:
        outage.answered(now, address)
        if not outage.failing and not outage.total:
            self._over(outage, now, f"{address} answers again")

    def _not_needed_at(self, outage: Outage) -> float:
        """Return when the outage ends because the client doesn't need the failed addresses."""
        if outage.answered_at is None or outage.total:
            return math.inf
        if any(a in outage.failing for a in (*self._pending.values(), *self._mute)):
            return math.inf
        return outage.last_failure + QUIET_AFTER_S

    def _over(self, outage: Outage, end: float, why: str) -> None:
        seconds = end - outage.begun
        self.current, self.last_ended = None, end
        self.out_before += seconds
        if outage.told:
            self._next_line = math.inf
            over = "reached the cluster" if outage.first else "outage over"
            # Log the end at the level of the beginning, so that readers of one get the other, too.
            self._say(
                logging.WARNING,
                f"{over} after {seconds:.1f} s: {why}; {self.counts.in_words()}",
            )
        else:
            self._up_untold = True

    def _summary(self, now: float) -> None:
        outage = self.current
        if outage is not None and outage.told and self._not_needed_at(outage) < math.inf:
            return  # the outage is probably over, as the next event will show
        self._step = min(2 * self._step, LONGEST_SPACING)
        self._next_line = math.inf if outage is None else now + self._step
        if outage is None and not self._up_untold:
            return
        self._up_untold = False
        if outage is not None and outage.told:
            how = "no broker answers" if outage.total else "other brokers answer"
            state = f"outage continues after {now - outage.begun:.1f} s ({how})"
            if outage.first:
                state = f"the cluster hasn't been reached for {now - outage.begun:.1f} s"
        else:
            out = self.out_before + (now - outage.begun if outage is not None else 0.0)
            state = (
                f"unstable: {self.in_a_row} outages in a row, down for {out:.1f} of the last "
                f"{now - self.counts_since:.1f} s, now " + ("down" if outage is not None else "up")
            )
        failing = {} if outage is None else outage.failing
        if outage is not None and not self.known:
            failing = outage.unsaid()
        causes = f"; {named(failing)}" if failing else ""
        self._say(logging.WARNING, f"{state}; {self.counts.in_words()}{causes}")

    # Helpers

    def _class(self, address: str) -> str:
        return BOOTSTRAP if address in self._bootstrap else KNOWN

    def _seldom(self, key: str, level: int, text: str, now: float) -> None:
        spacing = self._spacings.setdefault(key, Spacing())
        held_back = spacing.held_back
        if spacing.allows(now):
            spacing.held_back = 0
            self._say(
                level,
                text
                + (
                    f" ({number(held_back, 'similar message')} suppressed before)"
                    if held_back
                    else ""
                ),
            )

    def _forget(self) -> None:
        self.current, self._next_line, self._up_untold = None, math.inf, False
        self._ended = True
        self._pending.clear()
        self._mute.clear()

    def _say(self, level: int, text: str) -> None:
        logger.log(level, "[%s] %s", self._client, text)

    _HANDLERS: ClassVar[dict[str, Handler]] = {
        "dial": _dial,
        "ready": _ready,
        "disconnected": _disconnected,
        "dial_failed": _dial_failed,
        "dns_failed": _dns_failed,
        "silent": _silent,
        "heard": _heard,
        "metadata_failed": _metadata_failed,
        "round_failed": _round_failed,
        "rebootstrap": _rebootstrap,
        "rebootstrapped": _rebootstrapped,
        "metadata": _metadata,
        "proved": _proved,
        "retry": _retry,
        "expired": _expired,
        "foreign_cluster": _foreign,
        "broken": _broken,
        "closed": _closed,
    }
