"""Simulate operators: admin clients that change and read groups, and check what they read.

In: a client of a schedule, a stage (simulation and cluster). Out: calls as `Admin` makes them, and
violations: a result that wasn't true at any moment of its call. Each operator has groups that only
this operator changes. A change that failed may still take effect, at once or later (R-RT-1), so its
value remains possible. Must not cause faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from odradek.clients.admin import cluster, group_offsets, groups, offsets, topics
from odradek.clients.admin.admin_call import AdminCall
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import GroupIdNotFoundError
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.runs.schedule import TOPIC
from odradek.simulation.runs.workload import AskingDriver

OWN = 3
"""Number of groups that each operator has for itself."""
PROBE = 10.0
"""Timeout in seconds of the call that shows that the operator has recovered."""
ASKED_AGAIN = 0.08
"""Minimum time in seconds before a request is repeated: the lowest `retry.backoff.ms`."""
LEVEL = "read_uncommitted"
FIRST = TopicPartition(TOPIC, 0)

Offsets = set[int | None]
"""Offsets that a group may have committed; None if the group may not exist."""


class GroupBook:
    """Possible committed offsets of one group: now, and at any time since each open read began."""

    def __init__(self) -> None:
        self.possible: Offsets = {None}
        self.changing = False
        self._doubtful: Offsets = set()
        self._looks: list[Offsets] = []

    def begin(self, value: int | None) -> None:
        """Note that a change of the offset to this value begins (None: a deletion)."""
        self.changing = True
        self._doubtful.add(value)
        self._set(self.possible | {value})

    def ended(self, value: int | None, *, done: bool, once: bool) -> None:
        """Note that a change ends.

        A change that wasn't `done` may still take effect. A change that was repeated (`once` is
        False) may take effect again: a broker also handles requests whose connection has ended.
        """
        self.changing = False
        if done and once:
            self._doubtful.discard(value)
        if done:
            self._set({value, *self._doubtful})

    def look(self) -> Offsets:
        """Begin a read; return its possible results, which changes extend until the read ends."""
        seen = set(self.possible)
        self._looks.append(seen)
        return seen

    def looked(self, seen: Offsets) -> None:
        """End the read to which `look` has returned these possible results."""
        self._looks = [one for one in self._looks if one is not seen]

    def _set(self, possible: Offsets) -> None:
        self.possible = possible
        for seen in self._looks:
            seen |= possible


class OperatorDriver(AskingDriver):
    """An admin client that makes all of an operator's calls."""

    engine: AdminEngine
    _probed = False

    def make(self, host: Any) -> AdminEngine:
        """Return the admin client's engine."""
        return AdminEngine(self.config, host.rng())

    def begin(self) -> None:
        """Note that the operator's groups don't exist yet."""
        self.books = {f"{self.name}.{n}": GroupBook() for n in range(OWN)}

    def operate(self) -> None:
        """Make one of an operator's calls, chosen at random."""
        timeout = self.rng.uniform(0.05, 6.0)
        group = self.rng.choice([*self.books])
        call = self.rng.choices(
            (self._set, self._delete, self._committed, self._describe, self._ends, self._list),
            (4, 1, 3, 3, 2, 1),
        )[0]
        if call in (self._set, self._delete) and self.books[group].changing:
            # make one change at a time, because the order of two changes would be unknown
            call = self._committed
        call(group, timeout)

    # Changes

    def _set(self, group: str, timeout: float) -> None:
        offset = self.done + 1
        self._change(group, offset, group_offsets.alter(group, {FIRST: offset}), timeout)

    def _delete(self, group: str, timeout: float) -> None:
        self._change(group, None, groups.delete(group), timeout)

    def _change(self, group: str, value: int | None, call: AdminCall[Any], timeout: float) -> None:
        book, begun = self.books[group], self.world.now
        book.begin(value)

        def settle(results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
            once = self.world.now - begun < ASKED_AGAIN
            book.ended(value, done=not errors, once=once)

        self._carry_out(f"{call.what}: {group} to {value}", call, timeout, settle)

    # Reads

    def _committed(self, group: str, timeout: float) -> None:
        def see(found: Any) -> int | None:
            return found[FIRST].offset if FIRST in found else None

        self._look(group_offsets.listing([*self.books], False), timeout, see)

    def _describe(self, group: str, timeout: float) -> None:
        self._look(groups.describe_consumer([*self.books], False), timeout, None)

    def _look(
        self, call: AdminCall[Any], timeout: float, see: Callable[[Any], int | None] | None
    ) -> None:
        """Read all groups with one call; without `see`, check only whether they exist."""
        seen = {group: book.look() for group, book in self.books.items()}

        def check(results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
            for group, possible in seen.items():
                self.books[group].looked(possible)
                if group in results:
                    found = results[group]
                    if see is None:
                        right = possible != {None} and found.group_id == group
                    else:
                        right = see(found) in possible
                    if not right:
                        self._untrue(call.what, group, results[group], possible)
                elif isinstance(errors.get(group), GroupIdNotFoundError) and None not in possible:
                    self._untrue(call.what, group, errors[group], possible)
                elif group not in errors and None not in errors:
                    self._untrue(call.what, group, "nothing", possible)

        self._carry_out(call.what, call, timeout, check)

    def _ends(self, group: str, timeout: float) -> None:
        there = self.cluster.topics[TOPIC].partitions
        places = {TopicPartition(TOPIC, p.index): p.log.high_watermark for p in there}

        def check(results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
            for at, found in results.items():
                if found.offset != places[at]:  # no client writes to this topic
                    self._untrue("list of offsets", str(at), found.offset, {places[at]})

        self._carry_out(
            "list of offsets",
            offsets.listing(dict.fromkeys(places, "LATEST"), LEVEL),
            timeout,
            check,
        )

    def _list(self, group: str, timeout: float) -> None:
        """List groups, topics or brokers, and check that each listed one exists."""
        kind = self.rng.randrange(3)
        if kind == 0:
            begun = {g: book.look() for g, book in self.books.items()}
            leaders = self._leaders()

            def check(results: Any, errors: Mapping[Any, KafkaError]) -> None:
                told = {g.group_id for g in results.get(None, ())} & set(begun)
                # If the group's coordinator moves, both brokers' responses may lack the group.
                whole = None in results and leaders == self._leaders()
                for one, possible in begun.items():
                    self.books[one].looked(possible)
                    if one in told and possible == {None}:
                        self._untrue("list of groups", one, "it", possible)
                    elif whole and one not in told and None not in possible:
                        self._untrue("list of groups", one, "nothing", possible)

            self._carry_out("list of groups", groups.listing((), (), None), timeout, check)
        elif kind == 1:
            self._same("list of topics", topics.names(False), timeout, lambda found: TOPIC in found)
        else:
            ids = set(self.cluster.brokers)
            described = cluster.describe(False, False)
            self._same(
                *("description of the cluster", described, timeout),
                lambda found: {b.id for b in found.brokers} <= ids,
            )

    def _leaders(self) -> list[tuple[int | None, int]]:
        """Return the leaders of the groups' coordinator partitions, with their leader epochs."""
        there = self.cluster.topics.get("__consumer_offsets")
        return [(p.leader, p.leader_epoch) for p in there.partitions] if there else []

    def _same(
        self, what: str, call: AdminCall[Any], timeout: float, right: Callable[[Any], bool]
    ) -> None:
        def check(results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
            if None in results and not right(results[None]):
                self._untrue(what, "", results[None], ())

        self._carry_out(what, call, timeout, check)

    # Common to all calls

    def _carry_out(
        self,
        what: str,
        call: AdminCall[Any],
        timeout: float,
        check: Callable[[Mapping[Any, Any], Mapping[Any, KafkaError]], None],
    ) -> None:
        """Make a call; `check` gets results and errors by item.

        The item is None if the call has no items, or if no item could be requested.
        """
        flow = self.asks.call(
            lambda deadline: call.flow(self.engine, deadline), self.seconds(timeout), call.what
        )

        def then(found: Any) -> None:
            check(found if isinstance(found, dict) else {None: found}, {})

        def failed(error: BaseException) -> None:
            self.judged(error, what)
            if isinstance(error, KafkaError):
                # An error of the whole call, for example a timeout, may have no results and errors
                # by item.
                check(error.results, error.errors or {None: error})

        self.caller.begin(f"{self.name}: {what}", flow, then, failed)

    def _untrue(self, what: str, of: str, found: Any, possible: Iterable[Any]) -> None:
        text = f"{what}: {of} {found!r} was never so; possible: {sorted(possible, key=str)}"
        self.wrong.append(Violation(f"{self.world.now}: {self.name}: {text}"))

    def probe(self) -> None:
        """Read all groups with one call, to show that the operator has recovered."""
        call = group_offsets.listing([*self.books], False)
        self._carry_out(call.what, call, PROBE, self._found)

    def _found(self, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
        self._probed = not errors and set(results) == set(self.books)

    def finished(self) -> bool:
        """Return whether the call of `probe` has returned all groups."""
        return self._probed
