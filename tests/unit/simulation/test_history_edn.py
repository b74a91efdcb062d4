"""Histories written in the EDN format of Jepsen's Kafka workload."""

from __future__ import annotations

from itertools import count

import pytest

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, CallResult, History
from odradek.simulation.checkers.history_edn import edn_lines

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def made() -> History:
    """Return a history whose times are the seconds 0, 1, 2, and so on."""
    ticks = count()
    return History(lambda: float(next(ticks)))


def completions(history: History) -> list[str]:
    """Return the lines of completed operations, without their indices and times."""
    lines = [line for line in edn_lines(history) if ":type" in line and ":invoke" not in line]
    return [line[line.index(":type") : -1] for line in lines]


def test_a_transaction_and_its_polls_are_one_operation() -> None:
    history = made()
    txn = history.begin("p", 1)
    poll = history.invoke(CallKind.POLL, "c", 1)
    poll.transaction = txn.number
    poll.saw(A, 4, "x")
    poll.ended()
    write = txn.wrote(B, "y")
    txn.acknowledged(7, write)
    txn.commits()
    txn.ended()
    assert completions(history) == [
        ':type :ok, :process 0, :f :txn, :value [[:poll {0 [[4 "x"]]}] [:send 1 [7 "y"]]]'
    ]


@pytest.mark.parametrize("told", [True, False])
def test_a_transaction_that_was_not_committed_has_failed(told: bool) -> None:
    history = made()
    txn = history.begin("p")
    txn.wrote(A, "x")
    if told:
        txn.commits()
        txn.ended(CallResult.FAIL)
    assert completions(history) == [':type :fail, :process 0, :f :txn, :value [[:send 0 "x"]]']


def test_a_poll_lists_no_partition_without_records() -> None:
    history = made()
    history.read("all", A, [], complete=True)
    history.read("all", B, [(0, "x")], complete=True)
    assert completions(history) == [
        ":type :ok, :process 0, :f :poll, :value [[:poll {}]]",
        ':type :ok, :process 0, :f :poll, :value [[:poll {0 [[0 "x"]]}]]',
    ]


def test_overlapping_sends_of_a_producer_get_different_process_numbers() -> None:
    history = made()
    first, second = history.sent("p", A, "x"), history.sent("p", A, "y")
    second.acknowledged(1)
    first.acknowledged(0)
    history.sent("p", A, "z")
    history.sent("p", A, "w", 3)
    assert completions(history) == [
        ':type :ok, :process 1, :f :send, :value [[:send 0 [1 "y"]]]',
        ':type :ok, :process 0, :f :send, :value [[:send 0 [0 "x"]]]',
        ':type :ok, :process 1, :f :send, :value [[:send 0 [3 "w"]]]',
        ':type :info, :process 0, :f :send, :value [[:send 0 "z"]]',
    ]


def test_a_seek_is_written_as_an_assignment_without_the_partition_and_one_with_it() -> None:
    history = made()
    history.note(CallKind.ASSIGNED, "c", 1, [A, B])
    history.note(CallKind.SEEK, "c", 1, [B], 5)
    history.note(CallKind.REVOKED, "c", 1, [A])
    values = [line.rpartition(":value ")[2] for line in completions(history)]
    assert values == ["[]", "[0 1]", "[0]", "[0 1]", "[1]"]
