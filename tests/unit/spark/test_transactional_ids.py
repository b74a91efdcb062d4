"""R-TX-3: each attempt has its own transactional id, so zombies can't abort a decided batch."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.spark.memory_producer import MemoryLog, MemoryProducer
from tests.unit.spark.test_exactly_once import (
    DiedError,
    Rows,
    abort,
    commit,
    decided,
    message,
    run_batch,
    write,
)

from odradek.common.errors import KafkaTimeoutError
from odradek.spark.sink.sink_errors import ReplayError, SinkWriteError
from odradek.spark.sink.sink_messages import SinkCommit


@pytest.mark.parametrize("slow", [0.0, 60.0])
def test_tasks_of_a_repeated_batch_do_not_abort_transactions_that_were_to_be_committed(
    log: MemoryLog, slow: float
) -> None:
    decided(log, ["0"], ["1"], ["2"])
    log.steps.clear()

    def wait(what: str, _: MemoryProducer) -> None:
        log.clock.at += slow * (what == "send")

    log.before = wait
    again = [write(log, ["0", "1"], 0, run="later"), write(log, ["2"], 1, run="later")]
    assert "end" not in log.steps
    assert log.values() == []
    commit(log, again)
    assert log.values() == ["0", "1", "2"]
    assert log.pending == {}


@pytest.mark.parametrize("step", ["fence", "offsets of groups", "init", "send"])
def test_a_zombie_task_aborts_no_transaction_that_a_driver_decided_to_commit_meanwhile(
    log: MemoryLog, step: str
) -> None:
    """A driver decides while a zombie task is paused, and dies; a third run completes the batch."""
    seen = list[Any]()

    def overtake(what: str, producer: MemoryProducer) -> None:
        if what == step and not seen:
            seen.append(what)
            log.before = lambda *_: None
            decided(log, ["a"], ["b"], ["c"])

    log.before = overtake
    write(log, ["b"], 1, run="dead")
    run_batch(log, ["a", "b"], ["c"], run="later")
    assert log.values() == ["a", "b", "c"]
    assert log.pending == {}


def test_transactional_ids_are_reused_only_after_a_commit(log: MemoryLog) -> None:
    """Each batch reuses the ids of committed batches; each failed attempt takes a new id."""

    def ids() -> set[str]:
        return {name for name in log.known if "sink-0." in name}

    for batch in range(4):
        run_batch(log, ["a"], batch=batch)
    assert len(ids()) == 1
    write(log, ["b"], batch=4, run="dead")
    write(log, ["b"], batch=4, run="later")
    assert len(ids()) == 2
    run_batch(log, ["b"], batch=4, run="last")
    assert len(ids()) == 3
    for batch in range(5, 8):
        run_batch(log, ["c"], batch=batch, run="last")
    assert len(ids()) == 3
    assert log.pending == {}


def test_a_driver_does_not_decide_to_commit_transactions_that_another_run_may_abort(
    log: MemoryLog,
) -> None:
    """A failed run is paused after it has listed its killed tasks' transactions to abort."""
    late: list[SinkCommit] = [write(log, ["a"], run="later")]
    seen = list[Any]()

    def overtake(what: str, producer: MemoryProducer) -> None:
        if what == "fence":
            log.before = lambda *_: None
            with pytest.raises(SinkWriteError, match="are not open any more"):
                commit(log, late)
            seen.append(log.values())

    log.before = overtake
    abort(log, [None, message(1, batch=0)])
    assert seen == [[]]
    run_batch(log, ["a"], run="last")
    assert log.values() == ["a"]
    assert log.pending == {}


@pytest.mark.parametrize("parts", [(["a", "b"], ["c"]), (["x"], ["y"], ["z"], ["zz"])])
def test_a_commit_decision_with_aborted_and_without_committed_transactions_has_no_effect(
    log: MemoryLog, parts: tuple[Rows, ...]
) -> None:
    """The first transaction of the decision has timed out; the others are open."""
    decided(log, ["a"], ["b"], ["c"], pause=500.0)
    log.clock.at += 500.0
    run_batch(log, *parts, run="later")
    assert log.values() == [row for part in parts for row in part]
    assert log.pending == {}


def test_a_partly_committed_batch_is_checked_before_its_open_transactions_are_committed(
    log: MemoryLog,
) -> None:
    """The first of three transactions is committed, the second timed out, the third is open."""
    second = write(log, ["b"], 1)
    log.clock.at += 500.0
    messages = [write(log, ["a"], 0), second, write(log, ["c"], 2)]
    ends = []

    def die(what: str, _: MemoryProducer) -> None:
        ends.append(what)
        if ends.count("end") == 2:
            raise DiedError

    log.before, log.dead = die, lambda: True
    with pytest.raises(DiedError):
        commit(log, messages)
    log.before, log.dead = lambda *_: None, lambda: False
    log.clock.at += 500.0
    with pytest.raises(ReplayError, match="1 of their transactions are committed"):
        run_batch(log, ["a", "b"], ["c"], run="later")
    assert log.values() == ["a"]
    run_batch(log, ["a"], ["b"], ["c"], run="last")
    assert sorted(log.values()) == ["a", "b", "c"]


@pytest.mark.parametrize("looks", [1, 2])
def test_open_transactions_of_other_attempts_of_a_task_are_aborted(
    log: MemoryLog, looks: int
) -> None:
    """A repeated Spark stage counts attempts from 0 again, so two attempts have one number."""
    run_batch(log, ["x"])
    write(log, ["a"], batch=1)
    kept = write(log, ["a"], batch=1)

    def refuse(what: str, _: MemoryProducer) -> None:
        if what == "ongoing" and looks > 1:
            log.clock.at += 10.0
            raise KafkaTimeoutError("a broker is starting")

    log.before = refuse
    commit(log, [kept], batch=1)
    log.before = lambda *_: None
    if looks > 1:
        run_batch(log, ["b"], batch=2)
    assert log.pending == {}


@pytest.mark.parametrize("missing", [0, 1])
def test_a_failed_batch_leaves_no_transaction_of_a_killed_attempt_open(
    log: MemoryLog, missing: int
) -> None:
    run_batch(log, ["x"])
    write(log, ["a"], batch=1)
    kept = write(log, ["a"], batch=1)
    abort(log, [kept, *[None] * missing], batch=1)
    assert log.pending == {}
