"""Operators: admin clients that set, delete, look up and list, with books of what can be true.

In: a client of a schedule, a stage. Out: calls as `Admin` makes them, and violations: an answer
that wasn't true at any moment of its call. Each operator has groups of its own, so only it changes
them. A change that failed may have been made, or be made yet (R-RT-1), so its value stays possible.
Must not: cause faults.
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
"""Groups of each operator."""
PROBE = 10.0
"""Seconds that the probe's call gets."""
ASKED_AGAIN = 0.08
"""Seconds before which nothing is sent a second time: the least `retry.backoff.ms`."""
LEVEL = "read_uncommitted"
FIRST = TopicPartition(TOPIC, 0)

Offsets = set[int | None]
"""What a group may have committed; None: there is no such group."""


class GroupBook:
    """What one group can have committed, and could at any moment of the looks that are open."""

    def __init__(self) -> None:
        self.possible: Offsets = {None}
        self.changing = False
        self._doubtful: Offsets = set()
        self._looks: list[Offsets] = []

    def begin(self, value: int | None) -> None:
        """A change was begun."""
        self.changing = True
        self._doubtful.add(value)
        self._set(self.possible | {value})

    def ended(self, value: int | None, *, done: bool, once: bool) -> None:
        """It has ended. One that wasn't done may be yet; one that wasn't asked `once` was done, and
        may be done again, as a broker works on what came on a connection that has gone since.
        """
        self.changing = False
        if done and once:
            self._doubtful.discard(value)
        if done:
            self._set({value, *self._doubtful})

    def look(self) -> Offsets:
        """Somebody looks from now on: what he may see, which grows with what happens meanwhile."""
        seen = set(self.possible)
        self._looks.append(seen)
        return seen

    def looked(self, seen: Offsets) -> None:
        """He has seen it."""
        self._looks = [one for one in self._looks if one is not seen]

    def _set(self, possible: Offsets) -> None:
        self.possible = possible
        for seen in self._looks:
            seen |= possible


class OperatorDriver(AskingDriver):
    """An admin client with everything that it does."""

    engine: AdminEngine
    _probed = False

    def make(self, host: Any) -> AdminEngine:
        """The admin client's engine."""
        return AdminEngine(self.config, host.rng())

    def begin(self) -> None:
        """Books of groups that aren't there yet."""
        self.books = {f"{self.name}.{n}": GroupBook() for n in range(OWN)}

    def operate(self) -> None:
        """One of an operator's calls."""
        timeout = self.rng.uniform(0.05, 6.0)
        group = self.rng.choice([*self.books])
        call = self.rng.choices(
            (self._set, self._delete, self._committed, self._describe, self._ends, self._list),
            (4, 1, 3, 3, 2, 1),
        )[0]
        if call in (self._set, self._delete) and self.books[group].changing:
            call = self._committed  # one change at a time, or nobody knows which came last
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

    # Looks

    def _committed(self, group: str, timeout: float) -> None:
        def see(found: Any) -> int | None:
            return found[FIRST].offset if FIRST in found else None

        self._look(group_offsets.listing([*self.books], False), timeout, see)

    def _describe(self, group: str, timeout: float) -> None:
        self._look(groups.describe_consumer([*self.books], False), timeout, None)

    def _look(
        self, call: AdminCall[Any], timeout: float, see: Callable[[Any], int | None] | None
    ) -> None:
        """All groups at once; without `see` it is told whether there is such a group at all."""
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
                if found.offset != places[at]:  # nobody writes here
                    self._untrue("list of offsets", str(at), found.offset, {places[at]})

        self._carry_out(
            "list of offsets",
            offsets.listing(dict.fromkeys(places, "LATEST"), LEVEL),
            timeout,
            check,
        )

    def _list(self, group: str, timeout: float) -> None:
        """Lists of groups, topics and brokers: what was never there isn't in them."""
        kind = self.rng.randrange(3)
        if kind == 0:
            begun = {g: book.look() for g, book in self.books.items()}
            leaders = self._leaders()

            def check(results: Any, errors: Mapping[Any, KafkaError]) -> None:
                told = {g.group_id for g in results.get(None, ())} & set(begun)
                # A group that moves may be at each broker just when it isn't asked.
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
        """Who coordinates groups, and since which election."""
        there = self.cluster.topics.get("__consumer_offsets")
        return [(p.leader, p.leader_epoch) for p in there.partitions] if there else []

    def _same(
        self, what: str, call: AdminCall[Any], timeout: float, right: Callable[[Any], bool]
    ) -> None:
        def check(results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
            if None in results and not right(results[None]):
                self._untrue(what, "", results[None], ())

        self._carry_out(what, call, timeout, check)

    # What they have in common

    def _carry_out(
        self,
        what: str,
        call: AdminCall[Any],
        timeout: float,
        check: Callable[[Mapping[Any, Any], Mapping[Any, KafkaError]], None],
    ) -> None:
        """Make a call; `check` gets results and errors by item, by None where it is about one
        thing, or where no item could be asked about.
        """
        flow = self.asks.call(
            lambda deadline: call.flow(self.engine, deadline), self.seconds(timeout), call.what
        )

        def then(found: Any) -> None:
            check(found if isinstance(found, dict) else {None: found}, {})

        def failed(error: BaseException) -> None:
            self.judged(error, what)
            if isinstance(error, KafkaError):
                # One about the whole call, as at its deadline, has no items; neither are there any.
                check(error.results, error.errors or {None: error})

        self.caller.begin(f"{self.name}: {what}", flow, then, failed)

    def _untrue(self, what: str, of: str, found: Any, possible: Iterable[Any]) -> None:
        text = f"{what}: {of} {found!r} was never so; possible: {sorted(possible, key=str)}"
        self.wrong.append(Violation(f"{self.world.now}: {self.name}: {text}"))

    def probe(self) -> None:
        """Look at all groups."""
        call = group_offsets.listing([*self.books], False)
        self._carry_out(call.what, call, PROBE, self._found)

    def _found(self, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
        self._probed = not errors and set(results) == set(self.books)

    def finished(self) -> bool:
        """All of them were told of."""
        return self._probed
