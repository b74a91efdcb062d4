"""Define an outage, with its counters, and the texts that describe it.

In: counts and errors that `outage_log` collects. Out: values and texts for log lines and for
`explain()`. Must not: log, or know the source of the counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

FIRST_SPACING, LONGEST_SPACING = 5.0, 60.0
"""Seconds until the first summary in the log, and the maximum to which this wait doubles."""
CALM = 30.0
"""Maximum seconds between two outages for the second one to continue the first one's summaries."""
NAMED = 3
"""Maximum number of errors in a log line, and of addresses per error."""
KNOWN, BOOTSTRAP = "known brokers", "bootstrap addresses"
ONE = {KNOWN: "known broker", BOOTSTRAP: "bootstrap address"}


class Spacing:
    """A limit on repeated log messages: the first at once, further ones at growing intervals.

    After a quiet period of `CALM` seconds, the next message is logged at once again.
    """

    __slots__ = ("_last", "_next", "_step", "held_back")

    def __init__(self) -> None:
        self._step = FIRST_SPACING
        self._last = self._next = -math.inf
        self.held_back = 0
        """Number of messages that weren't logged since the last logged one."""

    def allows(self, now: float) -> bool:
        """Return whether a message may be logged now; count it if not."""
        if now - self._last > CALM:
            self._step, self._next = FIRST_SPACING, -math.inf
        self._last = now
        if now < self._next:
            self.held_back += 1
            return False
        self._next = now + self._step
        self._step = min(2 * self._step, LONGEST_SPACING)
        return True


ROUND, RETRY, REBOOTSTRAP = "failed metadata refresh", "retried request", "rebootstrap"
EXPIRED, DNS = "timed-out batch or call", "failed name resolution"


class Counts:
    """Counts of events since an outage began."""

    __slots__ = ("attempts", "dials", "names", "others")

    def __init__(self) -> None:
        self.dials: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        """Number of failed connection attempts, by kind of address (`KNOWN` or `BOOTSTRAP`)."""
        self.names: Counter[str] = Counter()
        """Number of failed name resolutions (without a connection attempt), by kind of address."""
        self.others: Counter[str] = Counter()
        """Number of other events, by kind: `ROUND`, `RETRY`, `REBOOTSTRAP`, `EXPIRED`."""

    def in_words(self) -> str:
        """Return a text with the counts that aren't zero."""
        parts = []
        for kind in (KNOWN, BOOTSTRAP):
            counts = []
            if self.names[kind]:
                counts = [number(self.names[kind], DNS)]
            if self.dials[kind] or self.attempts[kind]:
                counts.append(number(self.dials[kind], "connection attempt"))
                counts.append(number(self.attempts[kind], "failure"))
            if counts:
                parts.append(f"{kind}: {', '.join(counts)}")
        kinds = (ROUND, RETRY, REBOOTSTRAP, EXPIRED)
        parts += [number(self.others[kind], kind) for kind in kinds if self.others[kind]]
        return "; ".join(parts) or "no attempts yet"


class Outage:
    """One outage of one client; times are in seconds on the engine's clock."""

    __slots__ = (
        *("answered_at", "begun", "failing", "first", "last_failure", "said", "told", "total"),
        "what",
    )

    def __init__(self, begun: float, what: str, told: bool, *, first: bool = False) -> None:
        self.begun = begun
        self.what = what
        """Text about the failure with which the outage began."""
        self.told = told
        """Whether the outage's beginning and end are logged, each as one line."""
        self.first = first
        """Whether the client has never reached its cluster."""
        self.total = first
        """Whether no broker answers; if False, some addresses fail while others work."""
        self.last_failure = -math.inf
        self.answered_at: float | None = None
        """Time of the first response since the last failure."""
        self.failing: dict[str, str] = {}
        """Addresses that failed and haven't answered since, with their last error."""
        self.said: set[tuple[str, str]] = set()
        """Pairs of address and error that were already logged."""

    def unsaid(self) -> dict[str, str]:
        """Return the failing addresses with errors not logged yet; mark these as logged."""
        new = {a: error for a, error in self.failing.items() if (a, error) not in self.said}
        self.said.update(new.items())
        return new

    def failed(self, now: float, address: str, error: str) -> None:
        """Note that an address failed, with this error."""
        self.failing[address] = error
        self.last_failure, self.answered_at = now, None

    def answered(self, now: float, address: str) -> None:
        """Note that an address answered."""
        self.failing.pop(address, None)
        if self.answered_at is None:
            self.answered_at = now

    def nobody_answers(self) -> None:
        """Note that all addresses have failed."""
        self.total = True


def number(count: int, what: str) -> str:
    """Return a count with its noun, such as `1 rebootstrap` or `2 rebootstraps`."""
    if count == 1:
        return f"1 {what}"
    plural = {ROUND: "failed metadata refreshes", EXPIRED: "timed-out batches or calls"}
    return f"{count} {plural.get(what, what + 's')}"


def plain(error: str) -> str:
    """Return an error's text without the name of its class."""
    name, colon, text = error.partition(": ")
    return text if colon and name.endswith("Error") else error


def named(failing: Mapping[str, str]) -> str:
    """Return a text with each error and the first few addresses that have it."""
    groups: dict[str, list[str]] = {}
    for address, error in failing.items():
        groups.setdefault(plain(error).rstrip("."), []).append(address)
    found = [
        ", ".join(addresses[:NAMED])
        + (f" and {len(addresses) - NAMED} more" if len(addresses) > NAMED else "")
        + f": {error}"  # the error is last: it may end with advice
        for error, addresses in list(groups.items())[:NAMED]
    ]
    if len(groups) > NAMED:
        found.append(f"{sum(map(len, list(groups.values())[NAMED:]))} others")
    return "; ".join(found)
