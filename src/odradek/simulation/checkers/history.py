"""Record the calls and results of clients with their times, on simulated clusters or on real ones.

In: the calls that a test makes with clients, a clock. Out: a `History`, which `history_check`
judges and `history_edn` writes in Jepsen's form. It can be stored as JSON lines, one for each
`Operation`, and read back. Times are seconds on one clock for the whole history. Values of records
must be unique in the whole history. Must not judge, or know clients or clusters.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from odradek.common.types import TopicPartition

Place = tuple[TopicPartition, int]
"""A partition and an offset in it."""
NO_OFFSET = -1
NEXT = 1e-9
"""Minimum difference in seconds between two times of a history, so that times define an order."""


class CallResult(StrEnum):
    """Result of an operation, under Jepsen's name for it."""

    OK = "ok"
    """The operation took effect, and the caller was notified of that."""
    FAIL = "fail"
    """The operation certainly took no effect, for example an aborted transaction."""
    INFO = "info"
    """The outcome is unknown, because the client was killed, timed out or is still waiting; later
    reads may decide it."""


class CallKind(StrEnum):
    """Kind of a client's operation, or of an event in the history."""

    SEND = "send"
    """One record of an idempotent producer."""
    TXN = "txn"
    """A transaction: records and consumed offsets that are committed together or not at all."""
    POLL = "poll"
    ASSIGN = "assign"
    """The application assigns partitions to its consumer."""
    SUBSCRIBE = "subscribe"
    """The application subscribes; the positions of its partitions may change."""
    ASSIGNED = "assigned"
    """A rebalance added partitions to a consumer."""
    REVOKED = "revoked"
    """A rebalance removed partitions from a consumer, or the consumer lost them."""
    SEEK = "seek"
    """The application seeks another offset, or the old positions don't exist any more."""
    COMMIT = "commit"
    """A consumer commits offsets."""
    OFFSETS = "offsets"
    """A group's committed offsets at the end, as an observer reads them."""
    CLOSE = "close"
    CRASH = "crash"
    """The process ended without closing its client."""
    HEAL = "heal"
    """The last fault has ended."""


@dataclass(slots=True)
class Write:
    """One record that was passed to a producer."""

    partition: TopicPartition
    value: str
    offset: int | None = None
    """Offset from the acknowledgement; None before it, or if the acknowledgement had no offset."""
    invoked: float = 0.0
    returned: float | None = None
    """Time of the acknowledgement."""


@dataclass(slots=True)
class Operation:
    """One call of one instance of a client; `client` and `incarnation` identify the instance."""

    history: History = field(repr=False, compare=False)
    number: int
    """Position of the operation in the history."""
    call: CallKind
    client: str
    """The transactional id of a producer, or else the client's name."""
    incarnation: int
    """Number of the client's instance. For transactional producers, it counts calls of
    `init_transactions`: a higher one has fenced the lower ones."""
    invoked: float
    returned: float | None = None
    result: CallResult = CallResult.INFO
    group: str | None = None
    """The consumer's group, or the group whose offsets a transaction commits."""
    writes: list[Write] = field(default_factory=list)
    seen: dict[TopicPartition, list[tuple[int, str]]] = field(default_factory=dict)
    """Offsets and values that a poll returned, in order."""
    places: list[Place] = field(default_factory=list)
    """For a transaction, the consumed records whose positions it commits; for other calls,
    partitions with their new positions or committed offsets (`NO_OFFSET` if there are none)."""
    committing: float | None = None
    """Time when a transaction's commit was invoked; a transaction can't be committed before."""
    transaction: int | None = None
    """Number of the transaction in which a poll took place."""
    complete: bool = False
    """Whether a poll after the run has returned all records of its partitions."""
    uncommitted: bool = False
    """Whether a poll also returns records of open and aborted transactions."""

    @property
    def process(self) -> str:
        """Name of the client's instance."""
        return f"{self.client}#{self.incarnation}"

    @property
    def name(self) -> str:
        """Name of the operation for violations' texts."""
        return f"{self.process}/{self.number}"

    @property
    def aborted(self) -> bool:
        """Whether no record may be visible: no commit was invoked, or the transaction failed."""
        never = self.call is CallKind.TXN and self.committing is None
        return self.result is CallResult.FAIL or never

    @property
    def writing(self) -> bool:
        """Whether the operation is a send or a transaction, so that it writes records."""
        return self.call in (CallKind.SEND, CallKind.TXN)

    def wrote(self, partition: TopicPartition, value: str) -> Write:
        """Add a record that is passed to the producer now."""
        write = Write(partition, value, invoked=self.history.now())
        self.writes.append(write)
        return write

    def acknowledged(self, offset: int | None = None, write: Write | None = None) -> None:
        """Note that a record is acknowledged now: `write`, or a send's only record."""
        write = write or self.writes[0]
        write.offset = None if offset is None or offset < 0 else offset
        write.returned = self.history.now()
        if self.call is CallKind.SEND:
            self.ended(CallResult.OK)

    def consumed(self, partition: TopicPartition, offset: int) -> None:
        """Add a consumed record whose offset the transaction commits."""
        self.places.append((partition, offset))

    def saw(self, partition: TopicPartition, offset: int, value: bytes | str | None) -> None:
        """Add a record that a poll returns."""
        text = value if isinstance(value, str) else bytes(value or b"").decode()
        self.seen.setdefault(partition, []).append((offset, text))

    def belongs_to(self, transaction: Operation) -> None:
        """Note the transaction in which a poll took place."""
        self.transaction = transaction.number

    def commits(self) -> None:
        """Note that the commit of a transaction is invoked now; its outcome is unknown again."""
        self.committing, self.result = self.history.now(), CallResult.INFO

    def ended(self, result: CallResult = CallResult.OK) -> None:
        """Note that the operation returns now."""
        self.result, self.returned = result, self.history.now()
        if self.call is CallKind.TXN and result is CallResult.OK and self.committing is None:
            self.committing = self.invoked


class History:
    """All operations, in the order in which they were invoked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Set `clock`, which returns seconds and is the same for all processes of the history."""
        self.operations: list[Operation] = []
        self._clock = clock
        self._instances: Counter[str] = Counter()
        self._last = -math.inf

    def now(self) -> float:
        """Return the time, which is later than any time before, so that times define an order."""
        # A float above 10⁷ can't represent a difference of NEXT.
        after = math.nextafter(self._last, math.inf)
        self._last = max(self._clock(), self._last + NEXT, after)
        return self._last

    def instance(self, client: str) -> int:
        """Return the number of a client's next instance; the first one is 1."""
        self._instances[client] += 1
        return self._instances[client]

    def only(self, clients: Collection[str]) -> History:
        """Return a history with these clients' operations only."""
        found = History(self._clock)
        found.operations = [one for one in self.operations if one.client in clients]
        found._last = self._last
        return found

    # Views

    @property
    def transactions(self) -> list[Operation]:
        """All sends and transactions of the history."""
        return [one for one in self.operations if one.writing]

    @property
    def polls(self) -> list[Operation]:
        """All polls, including the polls that read all records after the run."""
        return [one for one in self.operations if one.call is CallKind.POLL]

    def partitions(self) -> dict[TopicPartition, None]:
        """Return the partitions that were written or read."""
        found: dict[TopicPartition, None] = {}
        for one in self.operations:
            found.update(dict.fromkeys(write.partition for write in one.writes))
            found.update(dict.fromkeys(one.seen))
        return found

    @property
    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """Committed offsets at the end of the run, by group and partition."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for one in self.operations:
            if one.call is CallKind.OFFSETS and one.group is not None:
                found.setdefault(one.group, {}).update(one.places)
        return found

    # Calls

    def invoke(
        self,
        call: CallKind,
        client: str,
        incarnation: int = 0,
        *,
        group: str | None = None,
        places: Iterable[Place] = (),
        uncommitted: bool = False,
    ) -> Operation:
        """Add an operation that is invoked now; `Operation.ended` completes it."""
        number = len(self.operations)
        made = Operation(self, number, call, client, incarnation, self.now(), group=group)
        made.places.extend(places)
        made.uncommitted = uncommitted
        self.operations.append(made)
        return made

    def begin(self, producer: str, incarnation: int = 0, *, group: str | None = None) -> Operation:
        """Add a transaction that a producer begins."""
        return self.invoke(CallKind.TXN, producer, incarnation, group=group)

    def sent(
        self,
        producer: str,
        partition: TopicPartition,
        value: str,
        offset: int | None = None,
        *,
        incarnation: int = 0,
    ) -> Operation:
        """Add the send of one record by an idempotent producer, with its acknowledged offset."""
        made = self.invoke(CallKind.SEND, producer, incarnation)
        made.wrote(partition, value)
        if offset is not None:
            made.acknowledged(offset)
        return made

    def read(
        self,
        reader: str,
        partition: TopicPartition,
        rows: Iterable[tuple[int, bytes | str | None]],
        *,
        complete: bool = False,
    ) -> Operation:
        """Add a poll that returns these records of one partition."""
        made = self.invoke(CallKind.POLL, reader)
        made.seen[partition], made.complete = [], complete
        for offset, value in rows:
            made.saw(partition, offset, value)
        made.ended()
        return made

    def note(
        self,
        call: CallKind,
        client: str,
        incarnation: int = 0,
        partitions: Collection[TopicPartition] = (),
        offset: int = NO_OFFSET,
    ) -> None:
        """Add an event, or a call that takes no time: an assignment, a seek, a crash."""
        places = [(partition, offset) for partition in partitions]
        self.invoke(call, client, incarnation, places=places).ended()

    def group_ends(self, group: str, offsets: Iterable[Place]) -> None:
        """Add the offsets that a group has committed at the end of the run."""
        self.invoke(CallKind.OFFSETS, "observer", group=group, places=offsets).ended()

    # JSON lines

    def lines(self) -> Iterator[str]:
        """Yield one line of JSON for each operation; transactions are numbered by line."""
        numbers: dict[int | None, int] = {
            one.number: line for line, one in enumerate(self.operations)
        }
        for one in self.operations:
            writes = [[*w.partition, w.value, w.offset, w.invoked, w.returned] for w in one.writes]
            row: dict[str, Any] = {
                "call": one.call.value,
                "process": [one.client, one.incarnation],
                "invoked": one.invoked,
                "returned": one.returned,
                "result": one.result.value,
                "group": one.group,
                "writes": writes or None,
                "seen": [[*partition, rows] for partition, rows in one.seen.items()] or None,
                "places": [[*partition, offset] for partition, offset in one.places] or None,
                **{name: getattr(one, name) for name in _OPTIONAL},
                "transaction": numbers.get(one.transaction),
            }
            yield json.dumps({k: v for k, v in row.items() if v is not None and v is not False})

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> History:
        """Read a history that `lines` has written; later operations follow its last time."""
        history = cls(lambda: -math.inf)
        for line in lines:
            row = json.loads(line)
            client, incarnation = row["process"]
            one = history.invoke(CallKind(row["call"]), client, incarnation, group=row.get("group"))
            one.invoked, one.returned = row["invoked"], row.get("returned")
            one.result = CallResult(row["result"])
            for topic, index, value, offset, invoked, returned in row.get("writes", ()):
                place = TopicPartition(topic, index)
                one.writes.append(Write(place, value, offset, invoked, returned))
            for topic, index, rows in row.get("seen", ()):
                one.seen[TopicPartition(topic, index)] = [(o, value) for o, value in rows]
            one.places = [(TopicPartition(t, index), o) for t, index, o in row.get("places", ())]
            for name in _OPTIONAL:
                setattr(one, name, row.get(name, getattr(one, name)))
            history._last = max(history._last, one.invoked, one.returned or one.invoked)
        return history


_OPTIONAL = ("committing", "transaction", "complete", "uncommitted")
