"""Explain a consumer's reading: its partitions, and their lag.

In: the engine's subscription, read from any thread. Out: a frozen dataclass and its line of text.
Must not: change anything, ask brokers, or wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.outage import number

if TYPE_CHECKING:
    from odradek.clients.consumer.subscription_state import SubscriptionState
    from odradek.metadata.metadata import Metadata

MOST_NAMED = 3
"""Maximum number of partitions with outdated metadata that the text names."""


@dataclass(frozen=True, slots=True)
class ReadingExplanation:
    """A consumer's progress in its assigned partitions, as of the last fetch responses."""

    partitions: int
    paused: int
    unknown: int
    """Number of partitions whose lag is unknown: without a position, or before the first fetch."""
    lag: int
    """Total lag, in offsets, of the partitions whose lag is known."""
    furthest: str | None
    """The partition with the largest lag; None without lag."""
    older: tuple[str, ...] = ()
    """Partitions that aren't read because metadata is older than their position, and why (KIP-320).
    """

    def __str__(self) -> str:
        parts = [f"lag {number(self.lag, 'offset')}" if self.lag else "no lag"]
        if self.furthest is not None:
            parts[0] += f", most of it in {self.furthest}"
        if self.unknown == self.partitions:
            parts = []
        if self.unknown:
            parts.append(f"lag unknown for {self.unknown}")
        if self.paused:
            parts.append(f"{self.paused} paused (lag as of the last fetch)")
        parts += [f"not reading {text}" for text in self.older[:MOST_NAMED]]
        if len(self.older) > MOST_NAMED:
            more = number(len(self.older) - MOST_NAMED, "more partition")
            parts.append(f"not reading {more} for the same reason")
        return f"partitions: {self.partitions}; {'; '.join(parts)}"


def explain_reading(
    subscription: SubscriptionState, metadata: Metadata
) -> ReadingExplanation | None:
    """Return the explanation; None if nothing is assigned."""
    lags, states = subscription.lags(), list(subscription.partitions.values())
    if not lags:
        return None
    known = {partition: lag for partition, lag in lags.items() if lag is not None}
    furthest = max(known, key=lambda partition: known[partition], default=None)
    return ReadingExplanation(
        partitions=len(lags),
        paused=sum(state.paused for state in states),
        unknown=len(lags) - len(known),
        lag=sum(known.values()),
        furthest=str(furthest) if furthest is not None and known[furthest] else None,
        older=tuple(
            f"{state.partition}: {why}"
            for state in states
            if (why := metadata.heard.why(state.partition)) is not None
        )
        if metadata.heard
        else (),
    )
