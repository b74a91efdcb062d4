"""Histories as a correct cluster leaves them have no anomaly; one wrong step in them is found.

Each damage is also done to a history that was written as JSON lines and read back, and to one in
Jepsen's form, which has less information. `ODRADEK_HISTORY_SEEDS=1000` runs more seeds.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation
from odradek.simulation.checkers.history_check import Kind, check
from odradek.simulation.checkers.history_edn import edn_lines

INS = {"p": TopicPartition("in", 0), "q": TopicPartition("in", 1)}
"""Input of each producer."""
OUT = [TopicPartition("out", n) for n in range(3)]
SEEDS = int(os.environ.get("ODRADEK_HISTORY_SEEDS", "4"))
SEEN_WITHIN = 60.0


class Model:
    """A cluster in a few lines, two producers of transactions, and one reader of their output."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.time = 0.0
        self.history = History(self.clock)
        self.logs: dict[TopicPartition, list[tuple[int, str]]] = {
            p: [] for p in (*INS.values(), *OUT)
        }
        self.ends = dict.fromkeys(self.logs, 0)
        self.hidden: list[tuple[TopicPartition, int, str]] = []
        self.serial = 0
        self.at = dict.fromkeys(INS.values(), 0)
        self.committed = dict.fromkeys(INS.values(), 0)
        self.positions = dict.fromkeys(OUT, 0)
        self.incarnations = {"p": 0, "q": 0}
        self.reader = self.history.instance("reader")
        self.history.note(CallKind.ASSIGNED, "reader", self.reader, OUT)
        for n in range(60):
            place = INS["pq"[n % 2]]
            made = self.history.sent("source", place, f"i{n}")
            self.store([made])
            if self.rng.random() < 0.5:
                made.acknowledged(self.logs[place][-1][0])
        for _ in range(40):
            self.step()
        self.history.note(CallKind.HEAL, "cluster")
        self.time += 5.0
        self.poll_all()
        for name, place in INS.items():
            rest = self.history.invoke(CallKind.POLL, f"{name}'s consumer")
            rest.seen[place] = self.logs[place][self.at[place] :]
            rest.ended()
        self.time += 2 * SEEN_WITHIN
        self.poll()
        self.history.group_ends("g", self.committed.items())
        for partition, log in self.logs.items():
            self.history.read("auditor", partition, log, complete=True)

    def clock(self) -> float:
        self.time += 0.01
        return self.time

    def step(self) -> None:
        """Run one transaction or two at once; the reader polls, seeks, or is replaced."""
        names = self.rng.choice((["p"], ["q"], ["p", "q"], ["q", "p"]))
        self.process(names)
        if self.rng.random() < 0.1:
            self.incarnations[self.rng.choice("pq")] += 1
        which = self.rng.random()
        if which < 0.1:
            self.history.note(CallKind.CRASH, "reader", self.reader)
            self.reader = self.history.instance("reader")
            self.history.note(CallKind.ASSIGNED, "reader", self.reader, OUT)
        elif which < 0.2:
            self.history.note(CallKind.REVOKED, "reader", self.reader, OUT[:1])
            self.history.note(CallKind.ASSIGNED, "reader", self.reader, OUT[:1])
        elif which < 0.3:
            self.history.note(CallKind.SEEK, "reader", self.reader, OUT)
        if which < 0.3:
            places = OUT[:1] if 0.1 <= which < 0.2 else OUT
            self.positions |= {p: self.rng.randrange(self.positions[p] + 1) for p in places}
        else:
            self.poll()

    def poll(self, most: int = 3) -> bool:
        """Let the reader poll."""
        made = self.history.invoke(CallKind.POLL, "reader", self.reader)
        for partition in OUT:
            rows = [row for row in self.logs[partition] if row[0] >= self.positions[partition]]
            for offset, value in rows[:most]:
                made.saw(partition, offset, value)
                self.positions[partition] = offset + 1
        made.ended()
        return bool(made.seen)

    def poll_all(self) -> None:
        """Read every partition from its beginning to its end."""
        self.history.note(CallKind.SEEK, "reader", self.reader, OUT)
        self.positions = dict.fromkeys(OUT, 0)
        while self.poll(10):
            pass

    def store(self, together: list[Operation], *, visible: bool = True) -> None:
        """Append the records of operations that overlap, in a random order of the operations."""
        waiting = [(made, list(made.writes)) for made in together]
        while any(writes for _, writes in waiting):
            made, writes = self.rng.choice([one for one in waiting if one[1]])
            write = writes.pop(0)
            offset = self.ends[write.partition]
            self.ends[write.partition] += self.rng.choice([1, 1, 1, 2, 5])
            if visible:
                self.logs[write.partition].append((offset, write.value))
                if made.call is CallKind.TXN and self.rng.random() < 0.6:
                    made.acknowledged(offset, write)
            else:
                self.hidden.append((write.partition, offset, write.value))

    def process(self, names: list[str]) -> None:
        """Read some inputs, write some outputs, commit or not."""
        visible = self.rng.random() < 0.7
        together = []
        for name in names:
            poll = self.history.invoke(CallKind.POLL, f"{name}'s consumer")
            place = INS[name]
            taken = self.logs[place][self.at[place] : self.at[place] + self.rng.randrange(3)]
            for offset, value in taken:
                poll.saw(place, offset, value)
            poll.ended()
            made = self.history.begin(name, self.incarnations[name], group="g")
            poll.transaction = made.number
            for offset, _ in taken:
                made.consumed(place, offset)
            if visible:
                self.at[place] += len(taken)
                self.committed[place] = taken[-1][0] + 1 if taken else self.committed[place]
            together.append(made)
        for _ in range(self.rng.randrange(1, 4)):
            for made in together:
                self.serial += 1
                made.wrote(self.rng.choice(OUT), f"{self.serial}")
        self.store(together, visible=visible)
        self.finish(together, visible=visible)
        for name in names if not visible else ():
            self.history.note(CallKind.SEEK, f"{name}'s consumer", 0, [INS[name]])

    def finish(self, together: list[Operation], *, visible: bool) -> None:
        for made in together:
            if visible or self.rng.random() < 0.3:
                made.commits()
        for made in together:
            if self.rng.random() < 0.7:
                made.ended(CallResult.OK if visible else CallResult.FAIL)

    # Choices for damages

    def polls(self, least: int = 1, partition: TopicPartition | None = None) -> list[Any]:
        """Return polls of the reader with partitions of which they returned `least` records."""
        return [
            (poll, place)
            for poll in self.history.polls
            if poll.client == "reader"
            for place, rows in poll.seen.items()
            if len(rows) >= least and partition in (None, place)
        ]

    def everywhere(self, change: Callable[[TopicPartition, int, str], Any]) -> None:
        """Change each record that anyone read: to another one, or to None."""
        for poll in self.history.polls:
            for place, rows in poll.seen.items():
                poll.seen[place] = [new for row in rows if (new := change(place, *row)) is not None]

    def whole(self, partition: TopicPartition) -> list[tuple[int, str]]:
        """Return the complete reading of a partition."""
        polls = [p for p in self.history.polls if p.complete and partition in p.seen]
        return polls[0].seen[partition]

    def committed_ones(self, writes: int = 1) -> list[Operation]:
        """Return transactions that were committed."""
        found = [t for t in self.history.transactions if t.call is CallKind.TXN]
        return [t for t in found if t.result is CallResult.OK and len(t.writes) >= writes]


def lose(model: Model) -> set[Kind]:
    gone = model.rng.choice(model.committed_ones()).writes[0].value
    model.everywhere(lambda _, offset, value: None if value == gone else (offset, value))
    return {Kind.LOST_WRITE}


def lose_a_part(model: Model) -> set[Kind]:
    made = model.rng.choice(model.committed_ones(2))
    made.result, gone = CallResult.INFO, made.writes[0].value
    model.everywhere(lambda _, offset, value: None if value == gone else (offset, value))
    return {Kind.PARTIAL}


def repeat(model: Model) -> set[Kind]:
    rows = model.whole(model.rng.choice([p for p in OUT if model.logs[p]]))
    rows.append((10_000, rows[0][1]))
    return {Kind.DUPLICATE}


def reveal(model: Model) -> set[Kind]:
    aborted = {w.value for t in model.history.transactions if t.aborted for w in t.writes}
    partition, offset, value = model.rng.choice([h for h in model.hidden if h[2] in aborted])
    rows = model.whole(partition)
    rows[:] = sorted([*rows, (offset, value)])
    return {Kind.ABORTED_READ}


def invent(model: Model) -> set[Kind]:
    model.whole(OUT[0]).append((10_000, "never written"))
    return {Kind.UNWRITTEN_READ}


def show_early(model: Model) -> set[Kind]:
    """A poll returned a record before the transaction was begun."""
    writers = {w.value: t for t in model.history.transactions for w in t.writes}
    poll, place = model.rng.choice(model.polls())
    made = writers[poll.seen[place][0][1]]
    poll.invoked, poll.returned = made.invoked - 0.2, made.invoked - 0.1
    return {Kind.PRECOMMITTED_READ}


def show_open(model: Model) -> set[Kind]:
    """A poll returned a record of a transaction that was open."""
    writers = {w.value: t for t in model.history.transactions for w in t.writes}
    poll, place = model.rng.choice(model.polls())
    made = writers[poll.seen[place][0][1]]
    poll.returned = poll.invoked + 1e-4
    made.committing = poll.returned + 1e-4
    made.returned = None if made.returned is None else max(made.returned, made.committing + 1e-4)
    return {Kind.PRECOMMITTED_READ}


def swap_within(model: Model) -> set[Kind]:
    """Two records of a transaction are in the other order."""
    some = [
        (one, other)
        for made in model.history.transactions
        for one, other in pairwise(made.writes)
        if one.partition == other.partition and made.result is CallResult.OK
    ]
    one, other = model.rng.choice(some)
    one.offset = other.offset = None
    names = {one.value: other.value, other.value: one.value}
    model.everywhere(lambda _, offset, value: (offset, names.get(value, value)))
    return {Kind.INTERNAL_NONMONOTONIC_SEND}


def _neighbours(model: Model, fits: Callable[[Operation, Operation], bool]) -> None:
    """Exchange the places of two records of a partition, of operations one after the other."""
    writers = {w.value: (t, w) for t in model.history.transactions for w in t.writes}
    some = [
        (one[1], other[1])
        for partition in OUT
        for one, other in pairwise(model.logs[partition])
        if fits(writers[one[1]][0], writers[other[1]][0])
    ]
    one, other = model.rng.choice(some)
    for value in (one, other):
        writers[value][1].offset = None
    names = {one: other, other: one}
    model.everywhere(lambda _, offset, value: (offset, names.get(value, value)))


def swap_between(model: Model) -> set[Kind]:
    _neighbours(model, lambda a, b: a is not b and a.process == b.process)
    return {Kind.NONMONOTONIC_SEND}


def write_as_a_zombie(model: Model) -> set[Kind]:
    _neighbours(model, lambda a, b: a.client == b.client and a.incarnation < b.incarnation)
    return {Kind.ZOMBIE_WRITE}


def overtake(model: Model) -> set[Kind]:
    """A record is before one that was acknowledged before it was sent."""

    def apart(one: Operation, other: Operation) -> bool:
        if one.result is not CallResult.OK or one.returned is None:
            return False
        return one.client != other.client and one.returned < other.invoked

    _neighbours(model, apart)
    return {Kind.REAL_TIME}


def misplace(model: Model) -> set[Kind]:
    writes = [w for t in model.committed_ones() for w in t.writes if w.offset is not None]
    write = model.rng.choice(writes)
    write.offset = (write.offset or 0) + 10_000
    return {Kind.WRONG_PLACE}


def skip(model: Model) -> set[Kind]:
    poll, place = model.rng.choice(model.polls(3))
    del poll.seen[place][1]
    return {Kind.INTERNAL_POLL_SKIP}


def skip_between(model: Model) -> set[Kind]:
    """The first record of a poll is missing that continues an earlier one."""
    poll, place = next(one for one in reversed(model.polls(2)) if _continued(model, *one))
    del poll.seen[place][0]
    return {Kind.POLL_SKIP}


def _continued(model: Model, poll: Operation, place: TopicPartition) -> bool:
    """Return whether the reader's operation before a poll returned the record before its first."""
    mine = [one for one in model.history.operations if one.client == "reader"]
    rows = mine[mine.index(poll) - 1].seen.get(place, [])
    offsets = [offset for offset, _ in model.logs[place]]
    return bool(rows) and rows[-1][0] == offsets[offsets.index(poll.seen[place][0][0]) - 1]


def poll_again(model: Model) -> set[Kind]:
    poll, place = next(one for one in reversed(model.polls()) if _continued(model, *one))
    offsets = [row[0] for row in model.logs[place]]
    before = model.logs[place][offsets.index(poll.seen[place][0][0]) - 1]
    poll.seen[place].insert(0, before)
    return {Kind.NONMONOTONIC_POLL}


def reverse(model: Model) -> set[Kind]:
    poll, place = model.rng.choice(model.polls(2))
    poll.seen[place].reverse()
    return {Kind.INTERNAL_NONMONOTONIC_POLL}


def own_nothing(model: Model) -> set[Kind]:
    poll, place = model.rng.choice(model.polls(1))
    for one in model.history.operations:
        if one.process == poll.process and one.call is CallKind.ASSIGNED:
            one.places = [(p, o) for p, o in one.places if p != place]
    return {Kind.UNOWNED_READ}


def delay(model: Model) -> set[Kind]:
    """After the last fault, one record was returned too late."""
    healed = next(o.invoked for o in model.history.operations if o.call is CallKind.HEAL)
    writes = [
        w
        for t in model.committed_ones()
        for w in t.writes
        if w.partition in [place for _, place in model.polls()]
    ]
    gone = model.rng.choice(writes).value
    for poll in model.history.polls:
        if not poll.complete:
            for place, rows in poll.seen.items():
                poll.seen[place] = [row for row in rows if row[1] != gone]
    assert model.time > healed + SEEN_WITHIN
    return {Kind.UNSEEN, Kind.INTERNAL_POLL_SKIP, Kind.POLL_SKIP}


def hide(model: Model) -> set[Kind]:
    partition = model.rng.choice([p for p in OUT if model.polls(1, p)])
    poll, _ = model.rng.choice(model.polls(1, partition))
    gone = poll.seen[partition][0]
    model.whole(partition).remove(gone)
    return {Kind.READERS_DISAGREE}


def change(model: Model) -> set[Kind]:
    poll, place = model.rng.choice(model.polls(1))
    offset, _ = poll.seen[place][0]
    poll.seen[place][0] = (offset, "another value")
    return {Kind.READERS_DISAGREE, Kind.UNWRITTEN_READ}


def _consumers(model: Model) -> list[Operation]:
    return [made for made in model.committed_ones() if made.places]


def consume_twice(model: Model) -> set[Kind]:
    one, other = model.rng.sample(_consumers(model), 2)
    one.places.append(other.places[0])
    return {Kind.INPUT_TWICE}


def consume_never(model: Model) -> set[Kind]:
    model.rng.choice(_consumers(model)).places.pop()
    return {Kind.INPUT_LOST}


def commit_less(model: Model) -> set[Kind]:
    model.history.group_ends("g", [_consumers(model)[-1].places[-1]])
    return {Kind.OFFSET_TOO_LOW}


def consume_its_own(model: Model) -> set[Kind]:
    places = {v: (p, o) for p in OUT for o, v in model.logs[p]}
    made = model.rng.choice(model.committed_ones())
    made.places.append(places[made.writes[0].value])
    return {Kind.CYCLE}


Damage = Callable[[Model], set[Kind]]
IN_BOTH: tuple[Damage, ...] = (
    *(lose, repeat, reveal, invent, show_early, swap_within, overtake, misplace, skip),
    *(skip_between, poll_again, reverse, own_nothing, delay, hide, change),
)
ONLY_HERE: tuple[Damage, ...] = (
    *(lose_a_part, show_open, swap_between, write_as_a_zombie),
    *(consume_twice, consume_never, commit_less, consume_its_own),
)
"""Jepsen's form doesn't have the time of a commit, names and instances of producers, and groups."""


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history, seen_within=SEEN_WITHIN)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_correct_cluster_leaves_no_anomaly(seed: int) -> None:
    history = Model(seed).history
    assert check(history, seen_within=SEEN_WITHIN) == []
    again = History.of_lines(history.lines())
    assert again.operations == history.operations
    assert check(again, seen_within=SEEN_WITHIN) == []
    assert check(of_edn(edn_lines(history)), seen_within=SEEN_WITHIN) == []


@pytest.mark.parametrize("damage", [*IN_BOTH, *ONLY_HERE], ids=lambda one: one.__name__)
def test_one_wrong_step_is_found(damage: Damage) -> None:
    for seed in range(SEEDS):
        model = Model(seed)
        expected = damage(model)
        assert kinds(model.history) & expected, seed
        assert kinds(History.of_lines(model.history.lines())) & expected, seed


@pytest.mark.parametrize("damage", IN_BOTH, ids=lambda one: one.__name__)
def test_one_wrong_step_is_found_in_what_jepsen_gets(damage: Damage) -> None:
    for seed in range(SEEDS):
        model = Model(seed)
        expected = damage(model)
        assert kinds(of_edn(edn_lines(model.history))) & expected, seed


# Jepsen's form, read back


def edn(text: str) -> Any:
    """Read EDN as JSON: maps become lists of alternating keys and values, keywords strings."""
    text = re.sub(r'("(?:[^"\\]|\\.)*")|:([a-z-]+)|[{}]', _as_json, text).replace("nil", "null")
    text = re.sub(r"(?<=[\]\"\de l])\s+(?=[\[\"\d:n-])", ", ", text)
    return json.loads(text)


def _as_json(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[1]
    if found[2] is not None:
        return f'"{found[2]}"'
    return "[" if found[0] == "{" else "]"


def of_edn(lines: Iterator[str]) -> History:
    """Read what Jepsen's analysis reads, with one open operation for each process."""
    history = History(lambda: 0.0)
    names: dict[int, TopicPartition] = {}
    healed = 0.0
    open_: dict[int, Operation] = {}
    retired: set[int] = set()
    for line in lines:
        if line.startswith(";"):
            words = line.removeprefix("; keys: ").split(" ")
            for key, name in zip(words[::2], words[1::2], strict=True):
                topic, _, index = name.rpartition("-")
                names[int(key)] = TopicPartition(topic, int(index))
            continue
        flat = edn(line)
        row = dict(zip(flat[::2], flat[1::2], strict=True))
        process, time = row["process"], row["time"] / 1e9
        assert process not in retired
        if row["type"] == "invoke":
            assert process not in open_, "a process has one open operation"
            open_[process] = history.invoke(CallKind(row["f"]), str(process))
            open_[process].invoked = time
            continue
        made = open_.pop(process)
        made.returned, made.result = time, CallResult(row["type"])
        if made.result is CallResult.INFO:
            retired.add(process)
        _fill(history, made, row["value"], names)
        healed = max(healed, time)
    whole = [one for one in history.polls if one.invoked > healed - 1.0]
    for one in whole:
        one.complete = bool(one.seen)
    history.note(CallKind.HEAL, "cluster")
    last = max(o.invoked for o in history.polls if not o.complete)
    history.operations[-1].invoked = last - 1.9 * SEEN_WITHIN
    return history


def _fill(history: History, made: Operation, value: Any, names: dict[int, TopicPartition]) -> None:
    if made.call is CallKind.ASSIGN:
        made.places = [(names[key], -1) for key in value]
    for part in value if made.writing or made.call is CallKind.POLL else ():
        if part[0] == "send":
            pair = part[2] if isinstance(part[2], list) else (None, part[2])
            write = made.wrote(names[part[1]], pair[1])
            write.invoked, write.offset = made.invoked, pair[0]
            made.committing = made.invoked
        else:
            pairs = part[1] if len(part) > 1 else []
            for key, rows in zip(pairs[::2], pairs[1::2], strict=True):
                if made.call is CallKind.TXN:
                    poll = history.invoke(CallKind.POLL, made.client)
                    poll.invoked = poll.returned = made.invoked
                    if (
                        made.result is not CallResult.INFO
                    ):  # else it has the time of the history's end
                        poll.returned = made.returned
                    poll.seen[names[key]] = [(o, v) for o, v in rows]
                else:
                    made.seen[names[key]] = [(o, v) for o, v in rows]
