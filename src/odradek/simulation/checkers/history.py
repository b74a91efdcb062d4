"""Record the calls and results of clients, on a simulated cluster or on real ones.

In: calls of a driver of clients: transactions with their writes and consumed records, their
outcomes, and the records that readers with `read_committed` saw, in order. Out: a `History` that
`history_check` judges and that can be stored as JSON lines. A record of an idempotent producer is a
transaction alone. Values must be unique in the whole history. Must not judge, or know clients,
clusters or time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from odradek.common.types import TopicPartition


class TransactionOutcome(StrEnum):
    """Outcome of a transaction as reported to the client."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No outcome was reported (killed, timed out, or still open): readers decide it."""


@dataclass(slots=True)
class Write:
    """One record that was passed to a producer."""

    partition: TopicPartition
    value: str
    offset: int | None = None
    """Acknowledged offset, if there is one."""


@dataclass(slots=True)
class Transaction:
    """Records and consumed offsets that are committed together or not at all."""

    name: str
    producer: str
    """A transactional id, or the name of one idempotent producer."""
    incarnation: int = 0
    """Counts the `init_transactions` of a producer: a higher one has fenced the lower ones."""
    group: str | None = None
    """The group whose offsets it commits."""
    outcome: TransactionOutcome = TransactionOutcome.UNKNOWN
    writes: list[Write] = field(default_factory=list)
    inputs: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Offsets of the consumed records, whose positions it commits."""

    def wrote(self, partition: TopicPartition, value: str) -> Write:
        """Add a record that is passed to the producer; its offset may be set later."""
        write = Write(partition, value)
        self.writes.append(write)
        return write

    def consumed(self, partition: TopicPartition, offset: int) -> None:
        """Add a consumed record."""
        self.inputs.append((partition, offset))

    def settled(self, outcome: TransactionOutcome) -> None:
        """Set the outcome that the client got or requested."""
        self.outcome = outcome


@dataclass(slots=True)
class Observation:
    """Records that one reader saw in one partition, from one offset on, in order."""

    reader: str
    partition: TopicPartition
    seen: list[tuple[int, str]] = field(default_factory=list)
    complete: bool = False
    """Whether the reader began at the partition's beginning and reached the end after the run."""

    def saw(self, offset: int, value: str) -> None:
        """Add a record that the reader got."""
        self.seen.append((offset, value))


class History:
    """All transactions and observations, in the order in which they were added."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.readings: list[Observation] = []
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        """Committed offsets at the end of the run: group → partition → offset."""

    def begin(
        self, producer: str, incarnation: int = 0, *, group: str | None = None
    ) -> Transaction:
        """Add a transaction that a producer begins."""
        name = f"{producer}#{incarnation}/{len(self.transactions)}"
        made = Transaction(name, producer, incarnation, group)
        self.transactions.append(made)
        return made

    def sent(
        self, producer: str, partition: TopicPartition, value: str, offset: int | None = None
    ) -> Transaction:
        """Add one record of an idempotent producer; with its offset if it was acknowledged."""
        made = self.begin(producer)
        made.wrote(partition, value).offset = offset
        if offset is not None:
            made.settled(TransactionOutcome.COMMITTED)
        return made

    def reading(
        self, reader: str, partition: TopicPartition, *, complete: bool = False
    ) -> Observation:
        """Add a reading: a reader begins, or begins again at another offset."""
        made = Observation(reader, partition, complete=complete)
        self.readings.append(made)
        return made

    def group_ends(self, group: str, offsets: Iterable[tuple[TopicPartition, int]]) -> None:
        """Set the offsets that a group has committed at the end of the run."""
        self.committed.setdefault(group, {}).update(offsets)

    # JSON lines

    def lines(self) -> Iterator[str]:
        """Yield one line of JSON for each transaction, reading and group."""
        for made in self.transactions:
            writes = [[*w.partition, w.value, w.offset] for w in made.writes]
            inputs = [[*partition, offset] for partition, offset in made.inputs]
            place = [made.name, made.producer, made.incarnation, made.group, made.outcome.value]
            yield json.dumps({"transaction": place, "writes": writes, "inputs": inputs})
        for read in self.readings:
            head = [read.reader, *read.partition, read.complete]
            yield json.dumps({"reading": head, "seen": read.seen})
        for group, offsets in self.committed.items():
            rows = [[*partition, offset] for partition, offset in offsets.items()]
            yield json.dumps({"group": group, "committed": rows})
