"""Write a history in the form of Jepsen's Kafka workload (`jepsen.tests.kafka`), as EDN.

In: a `History`. Out: lines of EDN, one map each, in the order of time. The form has restrictions:
processes and keys are integers (a comment at the beginning names the keys), a process has one
operation at a time, and it ends with an unknown result. So overlapping sends of one client belong
to several processes. Offsets that are committed without a transaction aren't written. Must not
judge.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation

ASSIGNING = frozenset(
    (CallKind.ASSIGN, CallKind.SUBSCRIBE, CallKind.ASSIGNED, CallKind.REVOKED, CallKind.SEEK)
)


@dataclass(slots=True)
class _Row:
    """One operation of the history in Jepsen's form."""

    process: str
    f: str
    start: float
    end: float
    result: CallResult
    invoked: str
    """Value of the operation in the line of its invocation."""
    value: str
    """Value of the operation in the line of its completion."""
    rebalanced: dict[TopicPartition, None] = field(default_factory=dict)


def edn_lines(history: History) -> Iterator[str]:
    """Yield one line for each invocation and completion."""
    return _Export(history).lines()


class _Export:
    """The conversion of one history to EDN."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._keys: dict[TopicPartition, int] = {}
        self._end = history.now()
        self._rows: list[_Row] = []
        self._inner: dict[int, list[Operation]] = {}
        """The polls within each transaction, by the transaction's number."""
        self._transactional = {
            write.value
            for one in history.operations
            if one.call is CallKind.TXN
            for write in one.writes
        }
        for one in history.polls:
            if one.transaction is not None:
                self._inner.setdefault(one.transaction, []).append(one)

    def lines(self) -> Iterator[str]:
        """Yield a comment that names the keys, and then the operations."""
        for one in self._history.operations:
            if one.writing or one.call is CallKind.CRASH:
                self._add(one, self._inner.get(one.number, ()))
            elif (one.call, one.transaction) == (
                CallKind.POLL,
                None,
            ) and one.result is not CallResult.FAIL:
                self._add(one, (one,))
        self._assignments()
        names = " ".join(f"{key} {name}" for name, key in self._keys.items())
        yield f"; keys: {names}"
        # An assignment that was moved to the start of a poll remains before that poll.
        rows = sorted(self._rows, key=lambda row: (row.start, row.f != "assign"))
        entries: list[tuple[float, int, str]] = []
        for number, (row, process) in enumerate(zip(rows, _processes(rows), strict=True)):
            head = f":process {process}, :f :{row.f}"
            value = row.value + self._rebalances(row)
            entries += [
                (row.start, 2 * number, f":type :invoke, {head}, :value {row.invoked}"),
                (row.end, 2 * number + 1, f":type :{row.result.value}, {head}, :value {value}"),
            ]
        for index, (time, _, text) in enumerate(sorted(entries)):
            yield f"{{:index {index}, :time {round(time * 1e9)}, {text}}}"

    def _rebalances(self, row: _Row) -> str:
        keys = " ".join(str(self._key(partition)) for partition in row.rebalanced)
        return f", :rebalance-log [{{:keys [{keys}]}}]" if keys else ""

    def _key(self, partition: TopicPartition) -> int:
        return self._keys.setdefault(partition, len(self._keys))

    def _add(self, one: Operation, polls: Iterable[Operation]) -> None:
        """Add a send, a transaction with its polls, a poll or a crash."""
        process, start = one.process, one.invoked
        parts: list[tuple[float, str, str]] = []
        for poll in polls:
            process, start = poll.process, min(start, poll.invoked)
            parts.append((poll.invoked, "[:poll]", f"[:poll {{{self._seen(poll)}}}]"))
        for write in one.writes:
            key, value = self._key(write.partition), json.dumps(write.value)
            offset = "nil" if write.offset is None else write.offset
            sent = f"[:send {key} {value}]"
            known = one.result is CallResult.OK or write.offset is not None
            done = f"[:send {key} [{offset} {value}]]" if known else sent
            parts.append((write.invoked, sent, done))
        parts.sort()
        invoked = " ".join(part for _, part, _ in parts)
        value = " ".join(part for _, _, part in parts)
        crash, result = one.call is CallKind.CRASH, one.result
        if one.call is CallKind.TXN and one.aborted:  # the commit may not be invoked
            result = CallResult.FAIL
        elif crash or one.returned is None:
            result = CallResult.INFO
        self._rows.append(
            _Row(
                process,
                one.call.value,
                start,
                self._end if one.returned is None else one.returned,
                result,
                "nil" if crash else f"[{invoked}]",
                "nil" if crash else f"[{value}]",
            )
        )

    def _seen(self, poll: Operation) -> str:
        found = []
        for partition, rows in poll.seen.items():
            pairs = " ".join(
                f"[{offset} {json.dumps(value)}]"
                for offset, value in rows
                if not (poll.uncommitted and value in self._transactional)
            )
            # Jepsen's check for lost writes fails on a key without records.
            if pairs:
                found.append(f"{self._key(partition)} [{pairs}]")
        return ", ".join(found)

    def _assignments(self) -> None:
        """Add an assignment with the owned partitions after each change.

        Jepsen forgets the position of a key that isn't assigned, so a seek is written as one
        assignment without the key and one with it. Changes during a poll are written before the
        poll, and in its rebalance log.
        """
        spans: dict[str, list[_Row]] = {}
        for row in sorted(self._rows, key=lambda row: row.start):
            spans.setdefault(row.process, []).append(row)
        owned: dict[str, dict[TopicPartition, None]] = {}
        for one in self._history.operations:
            if one.call in ASSIGNING:
                now = owned.setdefault(one.process, {})
                partitions = [partition for partition, _ in one.places]
                kept = partitions
                if one.call is CallKind.SEEK and now:
                    kept = [partition for partition in partitions if partition in now]
                if one.call in (CallKind.ASSIGN, CallKind.SUBSCRIBE):
                    now.clear()
                for partition in partitions:
                    now.pop(partition, None)
                # Jepsen also forgets the positions of partitions that are assigned again.
                if partitions or one.call is CallKind.SUBSCRIBE:
                    self._assign(one, now, spans.get(one.process, []))
                if kept and one.call is not CallKind.REVOKED:
                    now.update(dict.fromkeys(kept))
                    self._assign(one, now, spans.get(one.process, []))

    def _assign(self, one: Operation, owned: Iterable[TopicPartition], rows: list[_Row]) -> None:
        at = bisect_right(rows, one.invoked, key=lambda row: row.start)
        when = one.invoked
        if at and rows[at - 1].end > when:
            row = rows[at - 1]
            when = row.start
            row.rebalanced.update(dict.fromkeys(partition for partition, _ in one.places))
        keys = f"[{' '.join(str(self._key(partition)) for partition in owned)}]"
        self._rows.append(_Row(one.process, "assign", when, when, CallResult.OK, keys, keys))


def _processes(rows: list[_Row]) -> Iterator[int]:
    """Yield each row's process number: the first idle process of its client, or a new one."""
    lanes: dict[str, dict[int, float]] = {}
    count = 0
    for row in rows:
        mine = lanes.setdefault(row.process, {})
        number = next((n for n, free_at in mine.items() if free_at <= row.start), None)
        if number is None:
            number, count = count, count + 1
        mine[number] = row.end
        if row.result is CallResult.INFO:
            del mine[number]
        yield number
