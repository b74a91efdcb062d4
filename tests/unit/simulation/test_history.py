"""The check of histories: each anomaly in a history made by hand, and good ones without any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import History, Transaction, TransactionOutcome
from odradek.simulation.checkers.history_check import Kind, check

A, B, IN = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("in", 0)


def kinds(history: History) -> list[Kind]:
    return sorted({anomaly.kind for anomaly in check(history)})


def transaction(
    history: History,
    values: Sequence[tuple[TopicPartition, str]],
    outcome: TransactionOutcome = TransactionOutcome.COMMITTED,
    *,
    producer: str = "p",
    incarnation: int = 0,
    inputs: Sequence[int] = (),
) -> Transaction:
    made = history.begin(producer, incarnation, group="g" if inputs else None)
    for partition, value in values:
        made.wrote(partition, value)
    for offset in inputs:
        made.consumed(IN, offset)
    made.outcome = outcome
    return made


def read(
    history: History,
    partition: TopicPartition,
    seen: Sequence[tuple[int, str]],
    *,
    complete: bool = True,
    reader: str = "r",
) -> None:
    reading = history.reading(reader, partition)
    for offset, value in seen:
        reading.saw(offset, value)
    reading.complete = complete


def good() -> History:
    """Two transactions over two partitions, an aborted one between them, one input each."""
    history = History()
    read(history, IN, [(0, "i0"), (1, "i1")])
    transaction(history, [(IN, "i0")], producer="source")
    transaction(history, [(IN, "i1")], producer="source")
    transaction(history, [(A, "a0"), (B, "b0")], inputs=[0])
    transaction(history, [(A, "a1"), (B, "b1")], TransactionOutcome.ABORTED, inputs=[1])
    transaction(history, [(A, "a2"), (B, "b2")], inputs=[1])
    read(history, A, [(0, "a0"), (4, "a2")])
    read(history, B, [(0, "b0"), (4, "b2")])
    read(history, A, [(4, "a2")], complete=False, reader="late")
    history.group_ends("g", [(IN, 2)])
    return history


def test_a_good_history_has_no_anomaly() -> None:
    assert check(good()) == []


def test_a_history_comes_back_from_its_lines() -> None:
    history = good()
    history.transactions[0].writes[0].offset = 7
    lines = list(history.lines())
    again = History.from_lines(lines)
    assert list(again.lines()) == lines
    assert again.transactions == history.transactions
    assert [str(a) for a in check(again)] == [str(a) for a in check(history)] != []


def test_values_must_be_unique() -> None:
    history = good()
    transaction(history, [(A, "a0")])
    with pytest.raises(ValueError, match="'a0' was written twice"):
        check(history)


def lost(history: History) -> None:
    transaction(history, [(A, "a3")])


def lost_in_one_place(history: History) -> None:
    transaction(history, [(A, "a3"), (B, "b3")])
    history.readings[1].saw(9, "a3")


def seen_and_gone(history: History) -> None:
    transaction(history, [(A, "a3")], TransactionOutcome.UNKNOWN)
    read(history, A, [(9, "a3")], complete=False, reader="early")


def twice(history: History) -> None:
    history.readings[1].saw(9, "a2")


def in_two_partitions(history: History) -> None:
    history.readings[2].saw(9, "a2")


def aborted(history: History) -> None:
    history.readings[1].seen.insert(1, (2, "a1"))
    history.readings[2].seen.insert(1, (2, "b1"))


def from_nowhere(history: History) -> None:
    history.readings[1].saw(9, "never")


def unknown_and_partial(history: History) -> None:
    transaction(history, [(A, "a3"), (B, "b3")], TransactionOutcome.UNKNOWN)
    history.readings[2].saw(9, "b3")


def swapped_within(history: History) -> None:
    transaction(history, [(A, "a3"), (A, "a4")])
    history.readings[1].seen += [(9, "a4"), (10, "a3")]


def swapped_between(history: History) -> None:
    transaction(history, [(A, "a3")])
    transaction(history, [(A, "a4")])
    history.readings[1].seen += [(9, "a4"), (10, "a3")]


def zombie(history: History) -> None:
    transaction(history, [(A, "new")], incarnation=1)
    transaction(history, [(A, "old")], incarnation=0)
    history.readings[1].seen += [(9, "new"), (10, "old")]


def elsewhere(history: History) -> None:
    history.transactions[2].writes[0].offset = 3


def another_value(history: History) -> None:
    transaction(history, [(A, "a3")], TransactionOutcome.UNKNOWN)
    read(history, A, [(4, "a3")], complete=False, reader="other")


def skipped(history: History) -> None:
    transaction(history, [(A, "a3")])
    history.readings[1].saw(9, "a3")
    read(history, A, [(0, "a0"), (9, "a3")], complete=False, reader="hasty")


def repeated(history: History) -> None:
    read(history, A, [(0, "a0"), (4, "a2"), (0, "a0")], complete=False, reader="dizzy")


def not_to_the_end(history: History) -> None:
    read(history, A, [(0, "a0")], reader="lazy")


def circle(history: History) -> None:
    read(history, IN, [(0, "i0"), (1, "i1"), (2, "x"), (3, "y")])
    one = transaction(history, [(IN, "x")], producer="one", inputs=[3])
    other = transaction(history, [(IN, "y")], producer="other", inputs=[2])
    one.group, other.group = "g1", "g2"
    history.readings[0].seen += [(2, "x"), (3, "y")]


def reads_itself(history: History) -> None:
    transaction(history, [(IN, "x")], producer="one", inputs=[2]).group = "g1"
    history.readings[0].seen += [(2, "x")]


def reads_the_future(history: History) -> None:
    """Its first transaction consumed what its second one wrote."""
    transaction(history, [(A, "a3")], producer="one", inputs=[2]).group = "g1"
    transaction(history, [(IN, "x")], producer="one")
    history.readings[0].seen += [(2, "x")]
    history.readings[1].seen += [(9, "a3")]


def consumed_twice(history: History) -> None:
    transaction(history, [(A, "a3")], producer="q", inputs=[1])
    history.readings[1].saw(9, "a3")


def consumed_twice_unknown(history: History) -> None:
    transaction(history, [(A, "a3")], TransactionOutcome.UNKNOWN, producer="q", inputs=[1])
    history.readings[1].saw(9, "a3")


def never_consumed(history: History) -> None:
    transaction(history, [(IN, "i2")], producer="source")
    history.readings[0].saw(2, "i2")
    history.group_ends("g", [(IN, 3)])


def committed_by_an_aborted_one(history: History) -> None:
    """Its offsets count, its records don't."""
    transaction(history, [(IN, "i2")], producer="source")
    history.readings[0].saw(2, "i2")
    transaction(history, [(A, "a3")], TransactionOutcome.UNKNOWN, inputs=[2])
    history.group_ends("g", [(IN, 3)])


def not_committed(history: History) -> None:
    history.group_ends("g", [(IN, 1)])


BAD: list[tuple[Callable[[History], None], list[Kind]]] = [
    (lost, [Kind.LOST_WRITE]),
    (lost_in_one_place, [Kind.PARTIAL, Kind.LOST_WRITE]),
    (seen_and_gone, [Kind.READERS_DISAGREE]),
    (twice, [Kind.DUPLICATE]),
    (in_two_partitions, [Kind.DUPLICATE, Kind.WRONG_PLACE]),
    (aborted, [Kind.ABORTED_READ]),
    (from_nowhere, [Kind.UNWRITTEN_READ]),
    (unknown_and_partial, [Kind.PARTIAL]),
    (swapped_within, [Kind.ORDER]),
    (swapped_between, [Kind.ORDER]),
    (zombie, [Kind.ZOMBIE_WRITE]),
    (elsewhere, [Kind.WRONG_PLACE]),
    (another_value, [Kind.READERS_DISAGREE]),
    (skipped, [Kind.READERS_DISAGREE]),
    (repeated, [Kind.READERS_DISAGREE]),
    (not_to_the_end, [Kind.READERS_DISAGREE]),
    (circle, [Kind.CYCLE]),
    (reads_itself, [Kind.CYCLE]),
    (reads_the_future, [Kind.CYCLE]),
    (consumed_twice, [Kind.INPUT_TWICE]),
    (consumed_twice_unknown, [Kind.INPUT_TWICE]),
    (never_consumed, [Kind.INPUT_LOST]),
    (committed_by_an_aborted_one, [Kind.INPUT_LOST]),
    (not_committed, [Kind.OFFSET_BEHIND]),
]


@pytest.mark.parametrize(("spoil", "expected"), BAD, ids=[spoil.__name__ for spoil, _ in BAD])
def test_each_anomaly_is_found_and_only_that(
    spoil: Callable[[History], None], expected: list[Kind]
) -> None:
    history = good()
    spoil(history)
    assert kinds(history) == sorted(set(expected))


def test_every_kind_of_anomaly_has_a_bad_history() -> None:
    assert {kind for _, found in BAD for kind in found} == set(Kind)


def test_an_anomaly_says_what_and_where() -> None:
    history = good()
    aborted(history)
    texts = [str(anomaly) for anomaly in check(history)]
    assert "aborted read: 'a1' of p#0/3 in a-0 at 2" in texts


def test_an_unknown_outcome_is_what_readers_saw() -> None:
    history = good()
    transaction(history, [(A, "a3"), (B, "b3")], TransactionOutcome.UNKNOWN, inputs=[2])
    assert check(history) == []  # aborted: nobody saw any of it, and the offset wasn't committed
    history.readings[1].saw(9, "a3")
    history.readings[2].saw(9, "b3")
    assert kinds(history) == [Kind.OFFSET_BEHIND]
    history.group_ends("g", [(IN, 3)])
    assert check(history) == []  # committed: all of it is there


def test_one_without_records_whose_end_nobody_knows_excuses_its_inputs() -> None:
    history = good()
    transaction(history, [(IN, "i2")], producer="source")
    history.readings[0].saw(2, "i2")
    history.group_ends("g", [(IN, 3)])
    assert kinds(history) == [Kind.INPUT_LOST]
    transaction(history, [], TransactionOutcome.UNKNOWN, inputs=[2])
    assert check(history) == []


def test_other_orders_in_other_partitions_are_no_anomaly() -> None:
    """Kafka doesn't isolate writers (what Elle calls G0 happens)."""
    history = History()
    transaction(history, [(A, "a0"), (B, "b0")], producer="p")
    transaction(history, [(A, "a1"), (B, "b1")], producer="q")
    read(history, A, [(0, "a0"), (1, "a1")])
    read(history, B, [(0, "b1"), (1, "b0")])
    assert check(history) == []
