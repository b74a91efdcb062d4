"""Store the decision of a batch, which the driver commits before the batch's first transaction.

In: offsets with metadata, as they are committed. Out: a `Decision`, with a `TaskEntry` for each
task that wrote rows. It is stored as offsets of one transaction of the driver: group `<id>-ledger`
has the head and the first entries, groups `<id>-ledger-1` … have further ones, because brokers
limit the metadata of an offset to 4096 bytes (`offset.metadata.max.bytes`). The offset is the
number of the batch. A task's marker is an offset, too, of group `<id>-<partition>`, committed
together with its rows. Must not: send a request, or decide anything.

Offsets need no additional topic and no scan, and expire with their groups. A file in the checkpoint
would need Spark's file systems in the driver's Python, and couldn't be fenced.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.producer.transaction_state import PreparedTransaction
from odradek.common.types import TopicPartition
from odradek.spark.sink.row_digest import MASK, VERSION
from odradek.spark.sink.sink_errors import ReplayError
from odradek.spark.sink.sink_options import SinkOptions

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Fetch = Callable[[str], Offsets]
"""Returns the committed offsets of a group, after the end of transactions that may change them."""

LEDGER = 2
"""Version of the head's format. In version 1 entries have no ticket."""
IN_ONE = 60
"""Maximum number of entries in one offset, whose metadata then has less than 4000 bytes."""
FOREIGN = (
    *(ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, struct.error),
)
"""Errors of reading metadata that this sink didn't write."""
LOOKS = 10
"""Maximum number of reads until head and entries belong to one decision, as a driver may replace it
between two requests."""

DECIDED, WRITTEN, ACCEPTED, DROPPED = "decided", "written", "accepted", "dropped"
"""States of a decision.

DECIDED: entries may have to be committed; WRITTEN: all are committed; ACCEPTED: `odradek pipeline
resolve` has declared the batch complete; DROPPED: it will be written again.
"""
NOTHING = "nothing"
"""State of a ledger that has no decision and only stores the number of sweeps."""


def sink_id(options: SinkOptions, query: str, part: int | str) -> str:
    """Return the transactional.id of a task's partition or of the driver, or the ledger's group."""
    return f"{options.transactional_id_prefix}-{query}-{options.sink_name}-{part}"


def writer_of(options: SinkOptions, query: str) -> str:
    """Return the name of the query in a marker and a decision."""
    return f"{query!r} with transactionalIdPrefix {options.transactional_id_prefix!r}"


Ticket = tuple[int, int]
"""Producer id and epoch of a partition's counter.

The counter is the transactional id without a ticket, under which no rows are written. Each
initialization returns another ticket.
"""
PLAIN = (-1, -1)
"""Stands for "no ticket": earlier releases wrote rows under the counter's transactional id."""


def with_ticket(counter: str, ticket: Ticket) -> str:
    """Return the transactional.id that the task with this ticket created."""
    return counter if ticket == PLAIN else f"{counter}.{ticket[0]}.{ticket[1]}"


class TaskEntry(NamedTuple):
    """The transaction in which one task wrote its rows of a batch, with their count and digest."""

    partition: int
    producer_id: int
    epoch: int
    version_2: bool
    rows: int
    digest: int
    ticket_id: int = PLAIN[0]
    ticket_epoch: int = PLAIN[1]

    @property
    def is_plain(self) -> bool:
        """Whether an earlier release has prepared the transaction."""
        return self.producer_id >= 0 and (self.ticket_id, self.ticket_epoch) == PLAIN

    def transaction(self, base: str) -> PreparedTransaction:
        """Return the transaction with the rows; `base` is the sink's id without a partition."""
        name = with_ticket(f"{base}{self.partition}", (self.ticket_id, self.ticket_epoch))
        return PreparedTransaction(name, self.producer_id, self.epoch, self.version_2)

    @property
    def content(self) -> tuple[int, int]:
        """Number and digest of the rows."""
        return self.rows, self.digest


NO_TRANSACTION = (-1, -1, False)
"""Replaces producer id, epoch and version if a task of release 0.2 has committed its rows."""
_ENTRIES = {1: struct.Struct(">Iqh?QQ"), LEDGER: struct.Struct(">Iqh?QQqh")}


@dataclass(frozen=True, slots=True)
class Decision:
    """The driver's decision which transactions of a batch are to be committed, and its state."""

    batch: int
    topic: str
    """Topic of the stored offsets."""
    state: str
    entries: tuple[TaskEntry, ...]
    """One entry per task that wrote rows; empty once all of their transactions are committed."""
    writer: str
    run: str | None = None
    """Id of the query's run that made the decision; None if Spark doesn't report it."""
    rows: int = 0
    digest: int | None = 0
    """Sum of the entries' digests; None if a release with another algorithm computed it."""
    following: tuple[int, int] | None = None
    """Producer id and epoch of the next driver, unless another driver comes in between."""
    sweeps: int = 0
    """Number of sweeps, in which a driver aborts transactions that aren't in its decision.

    A task reads this number before its transaction begins. If the number has changed since, a sweep
    may abort the transaction at any time, so no decision lists it.
    """

    def covers(self, batch: int) -> bool:
        """Return whether the decision lists this batch's rows, which mustn't be written again."""
        return self.batch == batch and self.state not in (DROPPED, NOTHING)

    @property
    def unfinished(self) -> tuple[TaskEntry, ...]:
        """Entries that may still have to be committed."""
        return self.entries if self.state == DECIDED else ()

    @property
    def finished(self) -> bool:
        """Whether all rows of the batch are committed, or the user has accepted the loss."""
        return self.state in (WRITTEN, ACCEPTED)

    def offsets(self, base: str) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the offsets to commit by group; `base` is the sink's id without a partition."""
        name, at = sha256(_raw(self.entries)).hexdigest()[:16], TopicPartition(self.topic, 0)
        parts = [self.entries[n : n + IN_ONE] for n in range(0, len(self.entries), IN_ONE)] or [()]
        head = {
            "v": LEDGER,
            "state": self.state,
            "rows": self.rows,
            "digest": f"{self.digest or 0:016x}",
            "hash": VERSION,
            "run": self.run,
            "writer": self.writer,
            "parts": len(parts),
            "next": self.following,
            "sweeps": self.sweeps,
        }
        found = {}
        for number, part in enumerate(parts):
            document = {"n": name, "e": b64encode(_raw(part)).decode(), **({} if number else head)}
            text = json.dumps(document, separators=(",", ":"))
            found[_group(base, number)] = {at: OffsetAndMetadata(self.batch, text)}
        return found


def _group(base: str, part: int) -> str:
    return f"{base}ledger-{part}" if part else f"{base}ledger"


def _raw(entries: Iterable[TaskEntry]) -> bytes:
    return b"".join(_ENTRIES[LEDGER].pack(*entry) for entry in entries)


def _unpacked(text: str, version: int) -> list[TaskEntry]:
    return [TaskEntry(*fields) for fields in _ENTRIES[version].iter_unpack(b64decode(text))]


def read_decision(fetch: Fetch, base: str) -> Decision | None:
    """Return the newest decision; raises `ReplayError` for offsets that no sink wrote."""
    for _ in range(LOOKS):
        offsets = fetch(_group(base, 0))
        if not offsets:
            return None
        try:
            at, head = _newest(offsets)
        except FOREIGN as error:
            raise ReplayError(_foreign(_group(base, 0), next(iter(offsets)))) from error
        batch = offsets[at].offset
        try:
            version = int(head["v"])
            if version > LEDGER:
                raise ReplayError(
                    f"group {_group(base, 0)!r} was written by a newer release of Odradek (format "
                    f"{version}): use that release until the batch is finished."
                )
            entries = _unpacked(head["e"], version)
            for number in range(1, head["parts"]):
                part = fetch(_group(base, number)).get(at)
                found = {} if part is None else json.loads(part.metadata)
                if part is None or part.offset != batch or found["n"] != head["n"]:
                    break  # a driver is replacing this decision
                entries += _unpacked(found["e"], version)
            else:
                return Decision(
                    batch,
                    at.topic,
                    head["state"],
                    tuple(entries),
                    writer=head["writer"],
                    run=head["run"],
                    rows=int(head["rows"]),
                    digest=int(head["digest"], 16) if head["hash"] == VERSION else None,
                    following=tuple(head.get("next") or ()) or None,
                    sweeps=int(head.get("sweeps", 0)),
                )
        except FOREIGN as error:
            raise ReplayError(_foreign(_group(base, 0), at)) from error
    raise ReplayError(
        f"batch {batch}: the groups {_group(base, 0)!r} and {_group(base, 1)!r} … don't belong "
        "together: some of their offsets have expired or were changed. Nothing was written now. "
        f"{resolve_hint()}"
    )


def _newest(offsets: Offsets) -> tuple[TopicPartition, dict[str, Any]]:
    """Return the newest head: each output topic that the sink has used may have a head.

    Of two heads of the same batch, one with state DROPPED or NOTHING is the older.
    """
    last = max(stored.offset for stored in offsets.values())
    heads = {p: json.loads(o.metadata) for p, o in offsets.items() if o.offset == last}
    return min(heads.items(), key=lambda item: item[1]["state"] in (DROPPED, NOTHING))


def resolve_hint() -> str:
    """Return the sentence that names the command for a batch that can't be repeated."""
    return (
        "To see what was written and to decide how to continue, stop the query and run: odradek "
        "pipeline resolve CHECKPOINT (a batch job: --query JOBID)"
    )


@dataclass(frozen=True, slots=True)
class Marker:
    """Description of a task's last write, committed with its transaction."""

    batch: int
    rows: int
    digest: int | None
    """None if a release with another algorithm computed it: only `rows` can be compared."""
    run: str | None
    writer: str | None = None
    """Name of the query that wrote the rows (`writer_of`); None in markers of old releases."""
    transaction: tuple[int, int] | None = None
    """Producer id and epoch of the transaction; None in markers that release 0.2 wrote."""
    created: Ticket = PLAIN
    """Ticket in the name of the transactional id, of the attempt that first used the id."""
    used: Ticket = PLAIN
    """Ticket of the attempt that wrote the rows, perhaps under another attempt's id."""

    def stored(self) -> OffsetAndMetadata:
        """Return the marker as an offset with metadata, for the commit."""
        document = {
            "v": VERSION,
            "rows": self.rows,
            "digest": f"{self.digest or 0:016x}",
            "run": self.run,
            "writer": self.writer,
            "txn": self.transaction,
            "id": [*self.created, *self.used],
        }
        return OffsetAndMetadata(self.batch, json.dumps(document, separators=(",", ":")))


def read_marker(offsets: Offsets, group: str) -> tuple[Marker, str] | None:
    """Return the newest marker among a group's offsets, and its topic.

    A group has several markers if the batches' topics differ. Raises `ReplayError` for offsets that
    this sink didn't write.
    """
    if not offsets:
        return None
    tp = max(offsets, key=lambda p: offsets[p].offset)
    stored = offsets[tp]
    try:
        document = json.loads(stored.metadata)
        known = document["v"] == VERSION
        rows, text, run = int(document["rows"]), str(document["digest"]), document["run"]
        number, writer = int(text, 16) if known else None, document.get("writer")
        txn = document.get("txn")
        identity = None if txn is None else (int(txn[0]), int(txn[1]))
        tickets = [int(number) for number in document.get("id", (*PLAIN, *PLAIN))]
        created, used = (tickets[0], tickets[1]), (tickets[2], tickets[3])
        marker = Marker(stored.offset, rows, number, run, writer, identity, created, used)
        return marker, tp.topic
    except FOREIGN as error:
        raise ReplayError(_foreign(group, tp)) from error


def _foreign(group: str, tp: TopicPartition) -> str:
    return (
        f"group {group!r} has an offset for {tp} that isn't a marker of this sink, so another "
        "application commits to it. Set option transactionalIdPrefix to a name that nothing else "
        "uses."
    )


def totals(contents: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return number and digest of all tasks' rows; neither depends on the division into tasks."""
    rows = digest = 0
    for count, part in contents:
        rows, digest = rows + count, (digest + part) & MASK
    return rows, digest
