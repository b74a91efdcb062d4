"""Which faults and events a soak has hit, and which kinds it should have hit and didn't.

In: counts by kind. Out: a failure in words for each required kind with a count of 0. Must not: know
clusters or clients.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

LONG = 900.0
"""Seconds of faults from which on each kind is required: each fault has come twice by then."""
EVENTS: Mapping[str, str] = {
    "rebalances": "a member of a group got or gave back partitions",
    "partitions lost": "a member was removed from its group",
    "zombies fenced": "a producer was fenced by its successor and learned it at its commit",
    "transactions aborted": "a transaction was aborted",
    "commits refused": "a commit of a member that had been stopped was rejected",
    "members stopped": "SIGSTOP of a process with a consumer",
    "topics recreated": "a topic was deleted and created again under its readers",
    "partitions added": "a topic got a partition while it was written and read",
    "answers lost": "a broker's answer to a request was dropped, with its connection",
    "produce answers lost": "the same for an answer to a write",
    "transaction answers lost": "the same for EndTxn or an offset commit of a transaction",
    "answers throttled": "a broker answered with a throttle time",
    "tokens fetched again": "a client got another OAuth token before the old one expired",
    "sessions reauthenticated": "a connection was authenticated again, as its session ended",
    "connections lost": "an established connection ended without the client's closing it",
    "connection attempts failed": "a broker refused a connection, or it timed out",
    "rebootstraps": "a client started again from bootstrap.servers",
    "retries": "a request was sent again",
    "silent brokers": "a broker kept its connection and answered nothing",
    "copies restarted": "the process of `odradek copy` was killed and started again",
    "copies stopped": "the process of `odradek copy` was stopped with SIGSTOP",
    "partitions moved": "an admin client moved the replicas of a partition",
    "admin calls": "calls of admin clients that were answered",
    "polls cancelled": "a poll of an asyncio consumer was cancelled",
    "slopes": "series of resources that were long enough to be judged",
}
"""Kinds of events other than faults, with their meanings."""
BY_EVENT: Mapping[str, str] = {
    "reauthenticated": "sessions reauthenticated",
    "disconnected": "connections lost",
    "dial_failed": "connection attempts failed",
    "rebootstrap": "rebootstraps",
    "retry": "retries",
    "silent": "silent brokers",
}
"""Kinds that the clients' own events report (`odradek.common.events`)."""


class Coverage:
    """Numbers of faults and events by kind."""

    def __init__(self, required: Iterable[str]) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(required, 0))

    def add(self, kind: str, count: int = 1) -> None:
        """Count events of a kind, if it is one that this soak is able to hit."""
        if kind not in self.counts and kind not in EVENTS:
            raise ValueError(f"unknown kind of event: {kind}")
        self.counts[kind] += count

    def read_events(self, folder: Path) -> None:
        """Count the events that clients have written as JSON lines."""
        for event in events_of(folder):
            if (kind := BY_EVENT.get(event.get("kind", ""))) is not None:
                self.add(kind)


def events_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the events in all files; the last line of a killed process may be incomplete."""
    for path in sorted(folder.glob("**/*.jsonl")):
        with path.open() as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue


def missed(counts: Mapping[str, int], seconds: float, longest: float = LONG) -> list[str]:
    """Return a failure for each kind that a run of this many seconds has to hit and didn't."""
    if seconds < longest:
        return []
    return [
        f"nothing was hit of: {kind} ({EVENTS.get(kind, 'a fault')}): this run shows nothing of it"
        for kind, count in counts.items()
        if not count
    ]
