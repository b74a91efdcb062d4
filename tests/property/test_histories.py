"""Histories of a correct cluster have no anomaly; each kind of damage is found.

The damage is found, too, after the history was written as JSON lines and read back, and in Jepsen's
form, which has less information. `ODRADEK_HISTORY_SEEDS=1000` runs more seeds.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.tools.loading import load_tool

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation
from odradek.simulation.checkers.history_check import Kind, check
from odradek.simulation.checkers.history_edn import edn_lines

INS = {"p": TopicPartition("in", 0), "q": TopicPartition("in", 1)}
"""Input partition of each producer."""
OUT = [TopicPartition("out", n) for n in range(3)]
SEEDS = int(os.environ.get("ODRADEK_HISTORY_SEEDS", "4"))
SEEN_WITHIN = 60.0
spoilt: Any = load_tool("spoilt_histories")
ONLY_HERE = {"input lost", "input twice", "offset too low", "open read", "own read", "poll skip"}
ONLY_HERE.add("reordered pipeline")
"""Jepsen's form has no groups, one time for a transaction and its polls, and a process of a client
for each of its operations that overlap."""


class Model:
    """A minimal cluster, two transactional producers, and one reader of their output."""

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
        waiting: list[tuple[Operation, int]] = []
        for n in range(60):
            place = INS["pq"[n % 2]]
            made = self.history.sent(f"source {n % 4 // 2}", place, f"i{n}")
            self.store([made])
            waiting.append((made, self.logs[place][-1][0]))
            while waiting and self.rng.random() < 0.6:
                made, offset = waiting.pop(0)
                if self.rng.random() < 0.8:
                    made.acknowledged(offset)
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
        """Poll with the reader, and record the call in the history."""
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


def damaged(name: str) -> Iterator[tuple[History, set[Kind]]]:
    """Yield damaged histories, each with the anomalies of which one must be found."""
    for seed in range(SEEDS):
        spoiler = spoilt.Spoiler(Model(seed).history, random.Random(seed))
        expected = spoilt.DAMAGES[name](spoiler)
        if expected is not None:
            yield spoiler.history, expected


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history, seen_within=SEEN_WITHIN)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_of_a_correct_cluster_has_no_anomaly(seed: int) -> None:
    history = Model(seed).history
    assert check(history, seen_within=SEEN_WITHIN) == []
    again = History.of_lines(history.lines())
    assert again.operations == history.operations
    assert check(again, seen_within=SEEN_WITHIN) == []
    assert check(of_edn(edn_lines(history)), seen_within=SEEN_WITHIN) == []


@pytest.mark.parametrize("damage", spoilt.DAMAGES)
def test_an_anomaly_inserted_into_a_history_is_found(damage: str) -> None:
    found = list(damaged(damage))
    assert found, "no history has a place for it"
    for history, expected in found:
        assert kinds(history) & expected
        assert kinds(History.of_lines(history.lines())) & expected
        # In Jepsen's form, the damage may be reported as another kind.
        assert damage in ONLY_HERE or kinds(of_edn(edn_lines(history)))


# Reading Jepsen's form


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
                    ):  # an unknown result has the time of the history's end
                        poll.returned = made.returned
                    poll.seen[names[key]] = [(o, v) for o, v in rows]
                else:
                    made.seen[names[key]] = [(o, v) for o, v in rows]
