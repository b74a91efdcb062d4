"""What was answered to the attempts of one batch, for the error that may end it (R-RT-2).

In: failed attempts. Out: the last one of each kind and address, as errors list them; the newest
error, which is their cause. Must not: grow with the number of attempts.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from odradek.common.errors import Attempt, KafkaError
from odradek.common.types import Address

MOST = 8
"""Kinds of failures that are kept of a batch."""


class ProduceRefusals:
    """The failures of one batch."""

    __slots__ = ("_last", "latest")

    def __init__(self) -> None:
        self._last: dict[tuple[Address | None, str], Attempt] = {}
        self.latest: KafkaError | None = None
        """The newest one."""

    def note(self, address: Address | None, what: str, error: KafkaError, now: float) -> None:
        """One more attempt failed."""
        kind = type(error).__name__
        self._last.pop((address, kind), None)
        if len(self._last) >= MOST:
            del self._last[next(iter(self._last))]
        self._last[address, kind] = Attempt(address, what, f"{kind}: {error}", now)
        self.latest = error

    def attempts(self) -> list[Attempt]:
        """The last failure of each kind at each address, the newest at the end."""
        return list(self._last.values())


def together(found: Iterable[ProduceRefusals | None]) -> tuple[list[Attempt], KafkaError | None]:
    """The attempts of several batches, those of one kind and address once; the newest error."""
    known = [(a.at, n, a, r) for n, r in enumerate(found) if r for a in r.attempts()]
    known.sort(key=itemgetter(0, 1))
    last = {(a.address, a.error): a for _, _, a, _ in known}  # later ones take the place of earlier
    ordered = sorted(last.values(), key=lambda a: a.at)
    return ordered[-MOST:], known[-1][3].latest if known else None
