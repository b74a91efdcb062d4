"""The history checker finds each anomaly in handwritten histories, and none in correct ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation
from odradek.simulation.checkers.history_check import Kind, check

A, B, IN = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("in", 0)


HOMES = {"a": A, "b": B, "i": IN}
Spoil = Callable[[History], object]


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history, seen_within=60.0)}


def transaction(
    history: History,
    values: Sequence[tuple[TopicPartition, str]],
    outcome: CallResult = CallResult.OK,
    *,
    producer: str = "p",
    incarnation: int = 0,
    inputs: Sequence[int] = (),
) -> Operation:
    made = history.begin(producer, incarnation, group="g" if inputs else None)
    for partition, value in values:
        made.wrote(partition, value)
    for offset in inputs:
        made.consumed(IN, offset)
    made.commits()
    made.ended(outcome)
    return made


def read(
    history: History,
    partition: TopicPartition,
    seen: Sequence[tuple[int, str]],
    *,
    complete: bool = True,
    reader: str = "r",
) -> None:
    history.read(reader, partition, seen, complete=complete)


def good() -> History:
    """Build a history of two committed transactions and an aborted one, with an input each."""
    history = History(lambda: 0.0)
    transaction(history, [(IN, "i0")], producer="source")
    transaction(history, [(IN, "i1")], producer="source")
    read(history, IN, [(0, "i0"), (1, "i1")])
    transaction(history, [(A, "a0"), (B, "b0")], inputs=[0])
    transaction(history, [(A, "a1"), (B, "b1")], CallResult.FAIL, inputs=[1])
    transaction(history, [(A, "a2"), (B, "b2")], inputs=[1])
    read(history, A, [(0, "a0"), (4, "a2")])
    read(history, B, [(0, "b0"), (4, "b2")])
    read(history, A, [(4, "a2")], complete=False, reader="late")
    history.group_ends("g", [(IN, 2)])
    return history


def test_a_correct_history_has_no_anomaly() -> None:
    assert check(good()) == []


def test_a_history_is_written_as_json_lines_and_can_be_read_again() -> None:
    history = good()
    lines = [json.loads(line) for line in history.lines()]
    assert [one["call"] for one in lines] == [one.call for one in history.operations]
    wrote = history.transactions[0].writes[0]
    assert lines[0]["writes"] == [["in", 0, "i0", None, wrote.invoked, None]]
    again = History.of_lines(history.lines())
    assert again.operations == history.operations
    assert list(again.lines()) == list(history.lines())


def test_values_must_be_unique() -> None:
    history = good()
    transaction(history, [(A, "a0")])
    with pytest.raises(ValueError, match="'a0' was written twice"):
        check(history)


def wrote(
    *values: str,
    outcome: CallResult = CallResult.OK,
    group: str | None = None,
    **how: Any,
) -> Spoil:
    """Add a transaction with these values; the first letter of each names its partition."""

    def spoil(history: History) -> None:
        made = transaction(history, [(HOMES[v[0]], v) for v in values], outcome, **how)
        made.group = group or made.group

    return spoil


def saw(reader: TopicPartition, *more: tuple[int, str], at: int | None = None) -> Spoil:
    """Add values to those that the reader of a whole partition saw, at the end or at `at`."""

    def spoil(history: History) -> None:
        poll = history.polls[(IN, A, B).index(reader)]
        seen = poll.seen[reader]
        poll.returned = history.now()
        where = len(seen) if at is None else at
        seen[where:where] = more

    return spoil


def also_read(*seen: tuple[int, str], complete: bool = False) -> Spoil:
    """Add another reader of partition A."""
    return lambda history: read(history, A, seen, complete=complete, reader="other")


def acknowledged(offset: int) -> Spoil:
    """Change the offset that was acknowledged for the first record of partition A."""
    return lambda history: setattr(history.transactions[2].writes[0], "offset", offset)


def committed(offset: int) -> Spoil:
    return lambda history: history.group_ends("g", [(IN, offset)])


MAYBE = CallResult.INFO
ABORTED_WAS_SEEN = (saw(A, (2, "a1"), at=1), saw(B, (2, "b1"), at=1))
BAD: dict[str, tuple[set[Kind], tuple[Spoil, ...]]] = {
    "lost": ({Kind.LOST_WRITE}, (wrote("a3"),)),
    "lost in one place": (
        {Kind.PARTIAL, Kind.LOST_WRITE},
        (wrote("a3", "b3"), saw(A, (9, "a3"))),
    ),
    "seen and gone": ({Kind.READERS_DISAGREE}, (wrote("a3", outcome=MAYBE), also_read((9, "a3")))),
    "twice": ({Kind.DUPLICATE}, (saw(A, (9, "a2")),)),
    "in two partitions": ({Kind.DUPLICATE, Kind.WRONG_PLACE}, (saw(B, (9, "a2")),)),
    "aborted": ({Kind.ABORTED_READ}, ABORTED_WAS_SEEN),
    "from nowhere": ({Kind.UNWRITTEN_READ}, (saw(A, (9, "never")),)),
    "unknown and partial": (
        {Kind.PARTIAL},
        (wrote("a3", "b3", outcome=MAYBE), saw(B, (9, "b3"))),
    ),
    "swapped within": (
        {Kind.INTERNAL_NONMONOTONIC_SEND},
        (wrote("a3", "a4"), saw(A, (9, "a4"), (10, "a3"))),
    ),
    "swapped between": (
        {Kind.NONMONOTONIC_SEND, Kind.REAL_TIME},
        (wrote("a3"), wrote("a4"), saw(A, (9, "a4"), (10, "a3"))),
    ),
    "zombie": (
        {Kind.ZOMBIE_WRITE},
        (wrote("a new", incarnation=1), wrote("a old"), saw(A, (9, "a new"), (10, "a old"))),
    ),
    "elsewhere": ({Kind.WRONG_PLACE}, (acknowledged(3),)),
    "another value": ({Kind.READERS_DISAGREE}, (wrote("a3", outcome=MAYBE), also_read((4, "a3")))),
    "skipped": (
        {Kind.INTERNAL_POLL_SKIP},
        (wrote("a3"), saw(A, (9, "a3")), also_read((0, "a0"), (9, "a3"))),
    ),
    "repeated": ({Kind.INTERNAL_NONMONOTONIC_POLL}, (also_read((0, "a0"), (4, "a2"), (0, "a0")),)),
    "skipped between polls": (
        {Kind.POLL_SKIP},
        (wrote("a3"), saw(A, (9, "a3")), also_read((0, "a0")), also_read((9, "a3"))),
    ),
    "polled again": ({Kind.NONMONOTONIC_POLL}, (also_read((4, "a2")), also_read((4, "a2")))),
    "of another member": (
        {Kind.UNOWNED_READ},
        (lambda h: h.note(CallKind.ASSIGNED, "other", 0, [B]), also_read((0, "a0"))),
    ),
    "overtaken": (
        {Kind.REAL_TIME},
        (wrote("a3", producer="q"), wrote("a4", producer="s"), saw(A, (9, "a4"), (10, "a3"))),
    ),
    "before its commit": (
        {Kind.PRECOMMITTED_READ},
        (lambda h: setattr(h.polls[1], "returned", h.transactions[2].writes[0].invoked),),
    ),
    "never polled": (
        {Kind.UNSEEN},
        (
            *(wrote("a3"), saw(A, (9, "a3"))),
            lambda h: h.note(CallKind.HEAL, "cluster"),
            lambda h: setattr(h.invoke(CallKind.POLL, "late"), "invoked", 1000.0),
        ),
    ),
    "not to the end": ({Kind.READERS_DISAGREE}, (also_read((0, "a0"), complete=True),)),
    "circle": (
        {Kind.CYCLE},
        (
            wrote("ix", producer="one", inputs=[3], group="g1"),
            wrote("iy", producer="other", inputs=[2], group="g2"),
            saw(IN, (2, "ix"), (3, "iy")),
        ),
    ),
    "reads itself": (
        {Kind.CYCLE},
        (wrote("ix", producer="one", inputs=[2], group="g1"), saw(IN, (2, "ix"))),
    ),
    # The producer's first transaction consumes a record that its second transaction writes.
    "reads the future": (
        {Kind.CYCLE},
        (
            wrote("a3", producer="one", inputs=[2], group="g1"),
            wrote("ix", producer="one"),
            *(saw(IN, (2, "ix")), saw(A, (9, "a3"))),
        ),
    ),
    "consumed twice": (
        {Kind.INPUT_TWICE},
        (wrote("a3", producer="q", inputs=[1]), saw(A, (9, "a3"))),
    ),
    "consumed twice, of unknown outcome": (
        {Kind.INPUT_TWICE},
        (wrote("a3", outcome=MAYBE, producer="q", inputs=[1]), saw(A, (9, "a3"))),
    ),
    "never consumed": (
        {Kind.INPUT_LOST},
        (wrote("i2", producer="source"), saw(IN, (2, "i2")), committed(3)),
    ),
    # The transaction's offsets are committed, but its records were aborted.
    "committed by an aborted one": (
        {Kind.INPUT_LOST},
        (
            *(wrote("i2", producer="source"), saw(IN, (2, "i2"))),
            *(wrote("a3", outcome=MAYBE, inputs=[2]), committed(3)),
        ),
    ),
    "not committed": ({Kind.OFFSET_TOO_LOW}, (committed(1),)),
}


def spoilt(*how: Spoil) -> History:
    history = good()
    for spoil in how:
        spoil(history)
    return history


@pytest.mark.parametrize("name", BAD)
def test_each_anomaly_is_found_without_others(name: str) -> None:
    expected, how = BAD[name]
    assert kinds(spoilt(*how)) == expected


def test_a_group_whose_offsets_the_cluster_has_lost_may_consume_records_twice() -> None:
    history = spoilt(*BAD["consumed twice"][1])
    assert [anomaly.kind for anomaly in check(history, lost_groups=["other"])] == [Kind.INPUT_TWICE]
    assert check(history, lost_groups=["g"]) == []


def test_every_kind_of_anomaly_has_an_example() -> None:
    assert {kind for found, _ in BAD.values() for kind in found} == set(Kind)


def test_an_anomaly_names_its_record_and_offset() -> None:
    texts = [str(anomaly) for anomaly in check(spoilt(*ABORTED_WAS_SEEN))]
    assert "aborted read: 'a1' of p#0/4 in a-0 at 2" in texts


def test_records_never_polled_are_found_even_if_another_poll_returned_no_records() -> None:
    history = good()
    history.read("idle", TopicPartition("empty", 0), [], complete=False)
    for spoil in BAD["never polled"][1]:
        spoil(history)
    assert kinds(history) == {Kind.UNSEEN}


def test_an_unknown_transaction_result_is_inferred_from_the_records_read() -> None:
    history = spoilt(wrote("a3", "b3", outcome=MAYBE, inputs=[2]))
    assert check(history) == []  # aborted: no record was read, no offset committed
    saw(A, (9, "a3"))(history)
    saw(B, (9, "b3"))(history)
    assert kinds(history) == {Kind.OFFSET_TOO_LOW}
    history.group_ends("g", [(IN, 3)])
    assert check(history) == []  # committed: its records were read, its offset too


def test_inputs_of_an_empty_transaction_with_an_unknown_result_are_not_lost() -> None:
    history = spoilt(wrote("i2", producer="source"), saw(IN, (2, "i2")), committed(3))
    assert kinds(history) == {Kind.INPUT_LOST}
    transaction(history, [], MAYBE, inputs=[2])
    assert check(history) == []


def test_two_transactions_may_be_written_in_different_orders_in_two_partitions() -> None:
    """Kafka doesn't isolate writers from each other (the anomaly that Elle calls G0)."""
    history = History(lambda: 0.0)
    p, q = history.begin("p"), history.begin("q")
    for partition, name in ((A, "a"), (B, "b")):
        p.wrote(partition, f"{name}0")
        q.wrote(partition, f"{name}1")
    for made in (p, q):
        made.commits()
    for made in (p, q):
        made.ended()
    read(history, A, [(0, "a0"), (1, "a1")])
    read(history, B, [(0, "b1"), (1, "b0")])
    assert check(history) == []


@pytest.mark.parametrize("uptime", [0.0, 1e5, 1e9])
def test_times_in_a_history_are_distinct_after_any_uptime(uptime: float) -> None:
    history = History(lambda: uptime)
    times = [history.now() for _ in range(10)]
    assert times == sorted(set(times))


def test_an_extract_of_a_history_numbers_its_operations_and_transactions_from_0() -> None:
    history = History(lambda: 0.0)
    history.sent("another", IN, "i0")
    made = history.begin("p", group="g")
    history.invoke(CallKind.POLL, "c").belongs_to(made)
    history.invoke(CallKind.POLL, "c").belongs_to(history.begin("another"))
    part = History.of_lines(history.only({"p", "c"}).lines())
    assert [(one.number, one.transaction) for one in part.operations] == [
        (0, None),
        (1, 0),
        (2, None),
    ]
