"""Exactly-once batches: tasks prepare transactions, the driver commits; replays and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.memory_producer import MemoryLog, MemoryProducer
from tests.unit.spark.sink_model import played
from tests.volume import WHOLE

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors.kafka import InvalidTransactionTimeoutError
from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import MissingTopicError, OutageError
from odradek.spark.options.option_table import STREAM
from odradek.spark.sink.batch_commit import BEYOND, abort_batch, commit_batch
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.ledger import (
    IN_ONE,
    Decision,
    Marker,
    TaskEntry,
    read_decision,
    read_marker,
    sink_id,
)
from odradek.spark.sink.resolving import BatchState, Remedy, Resolution, resolve
from odradek.spark.sink.sink_clients import ProducerCache
from odradek.spark.sink.sink_driver import CONTACT_S, FENCE_S
from odradek.spark.sink.sink_errors import ReplayError, SinkRowError, SinkWriteError
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options
from odradek.spark.sink.sink_schema import SinkColumns

SEEDS, PARTS = (10_000, 6) if WHOLE else (75, 3)
T0 = TopicPartition("t", 0)
Rows = list[str]


class DiedError(BaseException):
    """Raised in the code under test to simulate a killed process."""


def options(**given: str) -> SinkOptions:
    base = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery": "exactly_once"}
    return parse_sink_options({**base, **given}, STREAM)


def write(
    log: MemoryLog,
    rows: Rows,
    partition: int = 0,
    *,
    batch: int = 0,
    run: str | None = "run",
    query: str = "query",
    **given: str,
) -> SinkCommit:
    """Write one task's rows as two Arrow batches, and prepare its transaction."""
    task = SinkTask(partition, 0, batch, query, run)
    columns = SinkColumns(("value",), "t")
    work = TransactionalTask(
        *(options(**given), columns, task),
        clients=ProducerCache(log.make),
        prepared=log.prepared,
        clock=log.clock,
    )
    parts = [rows[:2], [], rows[2:]]
    return work.write(iter([pa.RecordBatch.from_pydict({"value": part}) for part in parts]))


def commit(log: MemoryLog, messages: Sequence[Any], *, batch: int = 0, **given: str) -> None:
    commit_batch(
        *(options(**given), messages),
        batch=batch,
        make=log.make,
        prepared=log.prepared,
        clock=log.clock,
    )


def abort(log: MemoryLog, messages: Sequence[Any], *, batch: int = 0, **given: str) -> None:
    abort_batch(
        *(options(**given), messages),
        batch=batch,
        make=log.make,
        prepared=log.prepared,
        clock=log.clock,
    )


def run_batch(log: MemoryLog, *parts: Rows, **given: Any) -> list[SinkCommit]:
    """Write and commit a batch as Spark does; each of `parts` contains one task's rows."""
    given = {"batch": 0, **given}
    messages = [write(log, rows, p, **given) for p, rows in enumerate(parts)]
    of_task = ("run", "query")
    commit(log, messages, **{k: v for k, v in given.items() if k not in of_task})
    return messages


def resolved(log: MemoryLog, batch: int | None, choice: Remedy = Remedy.NONE) -> Resolution:
    return resolve(
        *(options(), "query", batch, choice),
        make=log.make,
        prepared=log.prepared,
        clock=log.clock,
    )


def aborted_in_part(log: MemoryLog) -> None:
    """Decide to commit batch 0 of two tasks; commit the first, let the second time out."""
    messages = [write(log, ["a", "b"], 0), write(log, ["c"], 1)]
    died = []

    def die(what: str, _: MemoryProducer) -> None:
        died.append(what)
        if died.count("end") == 2:
            raise DiedError

    log.before, log.dead = die, lambda: True
    with pytest.raises(DiedError):
        commit(log, messages)
    log.before, log.dead = lambda *_: None, lambda: False
    log.clock.at += 1000.0
    assert log.values() == ["a", "b"]


def decided(log: MemoryLog, *parts: Rows, pause: float = 0.0) -> None:
    """Write a batch; its driver dies after it has stored its decision to commit."""
    messages = [write(log, parts[0])]
    log.clock.at += pause
    messages += [write(log, rows, p) for p, rows in enumerate(parts[1:], 1)]

    def die(what: str, _: MemoryProducer) -> None:
        if what == "end":
            raise DiedError

    log.before, log.dead = die, lambda: True
    with pytest.raises(DiedError):
        commit(log, messages)
    log.before, log.dead = lambda *_: None, lambda: False


def of_02(log: MemoryLog, partition: int, rows: int, digest: int = 0, batch: int = 0) -> None:
    """Store a task's committed marker in the format of release 0.2."""
    text = Marker(batch, rows, digest, "old").stored().metadata.replace(',"txn":null', "")
    log.offsets[f"odradek-query-sink-{partition}"] = {T0: OffsetAndMetadata(batch, text)}


# Without faults


def test_rows_become_visible_when_the_driver_commits(log: MemoryLog) -> None:
    messages = [write(log, ["a", "b", "c"], 0), write(log, [], 1), write(log, ["d"], 2)]
    assert [m.rows for m in messages] == [3, 0, 1]
    assert log.values() == []
    assert messages[1].transaction is None
    assert log.made == 2  # a task without rows creates no producer
    order = [log.steps.index(s) for s in ("offsets of a group", "init", "send", "flush", "marker")]
    assert order == sorted(order)
    log.steps.clear()
    commit(log, messages)
    assert log.values() == ["a", "b", "c", "d"]
    steps = [s for s in log.steps if s in ("init", "describe", "commit", "end")]
    assert steps == ["init", "describe", "commit", "describe", "end", "end", "commit"]
    marker = log.offsets["odradek-query-sink-0"][T0]
    assert marker.offset == 0
    assert '"rows":3' in marker.metadata
    assert (log.made, log.in_use) == (3, [])


def test_a_repeated_batch_is_skipped_even_if_its_rows_are_divided_into_other_tasks(
    log: MemoryLog,
) -> None:
    run_batch(log, ["a", "b"], ["c"])
    plans: list[tuple[Rows, ...]] = [(["c", "a"], ["b"]), (["a", "b", "c"],)]
    for parts in [*plans, (["a"], ["b"], [], ["c"])]:
        again = run_batch(log, *parts, run="later")
        assert [m.skipped for m in again] == [bool(rows) for rows in parts]
    run_batch(log, ["d"], batch=1)
    assert log.values() == ["a", "b", "c", "d"]


def test_a_finished_batch_repeated_with_other_rows_fails_until_the_user_resolves_it(
    log: MemoryLog,
) -> None:
    """If they come from rand(), they mustn't be written; after a restored checkpoint they must."""
    run_batch(log, ["a", "b"], ["c"])
    for run in "run", "later", None:
        with pytest.raises(ReplayError, match=r"with 3 rows .* repeated with 4 .* --accept-loss"):
            run_batch(log, ["x"], ["y"], ["z", "zz"], run=run)
    assert resolved(log, 0).outcome is BatchState.COMPLETE
    assert resolved(log, 0, Remedy.ACCEPT_LOSS).outcome is BatchState.ACCEPTED
    run_batch(log, ["x"], ["y"], ["z", "zz"], run="later")
    assert log.values() == ["a", "b", "c"]
    assert resolved(log, 0, Remedy.REPEAT).outcome is BatchState.REPEATED
    run_batch(log, ["x"], ["y"], ["z", "zz"], run="later")
    run_batch(log, ["d"], batch=1, run="later")
    assert log.values() == ["a", "b", "c", "x", "y", "z", "zz", "d"]


def test_a_second_write_of_a_batch_needs_a_different_sink_name(log: MemoryLog) -> None:
    """Without sinkName, the second write of a foreachBatch function looks like a replay."""
    log.topics = ("t", "u")
    run_batch(log, ["a"])
    for run in "run", "later", None:
        with pytest.raises(ReplayError, match=r"already written with 1 row .* different sinkName"):
            run_batch(log, ["b"], run=run)
    with pytest.raises(ReplayError, match=r"to topic 't'.* for topic 'u'.* different sinkName"):
        write(log, ["a"], topic="u")
    run_batch(log, ["a"], topic="u", sinkName="second")
    assert log.values() == ["a", "a"]


def test_writing_a_lower_batch_number_fails(log: MemoryLog) -> None:
    run_batch(log, ["a"], batch=7)
    with pytest.raises(
        ReplayError, match="batch 7 was already written, and batch numbers must increase"
    ):
        write(log, ["z"], batch=6)
    assert log.values() == ["a"]


# Zombies, killed drivers, and batches repeated with other tasks


@pytest.mark.parametrize(
    "step", ["offsets of a group", "fence", "init", "send", "flush", "prepare", "marker"]
)
@pytest.mark.parametrize("late", [0.0, 60.0])
def test_a_task_whose_batch_another_run_writes_meanwhile_writes_no_duplicates(
    log: MemoryLog, step: str, late: float
) -> None:
    """Write the whole batch in another run, before the given step of the first run's task."""

    def overtake(what: str, producer: MemoryProducer) -> None:
        if what == step:
            log.before = lambda *_: None
            run_batch(log, ["a", "b"], run="other")
            log.clock.at += late

    log.before = overtake
    if step in ("offsets of a group", "fence"):  # the task learns that the batch is finished
        assert write(log, ["a", "b"]).skipped
    elif late or step in ("flush", "prepare", "marker"):
        with pytest.raises(SinkWriteError, match="Another attempt of this task"):
            write(log, ["a", "b"])
    else:
        commit(log, [write(log, ["a", "b"])])
    assert log.pending == {}
    assert log.values() == ["a", "b"]


def test_a_zombie_driver_with_more_tasks_than_its_successor_commits_nothing(log: MemoryLog) -> None:
    """The first driver stops before its decision to commit; the next run has fewer tasks."""
    old = [write(log, ["a"], 0), write(log, ["b"], 1), write(log, ["c"], 2)]
    run_batch(log, ["a", "b", "c"], run="later")
    assert log.pending == {}  # the new driver aborted the transaction of the third task
    commit(log, old)  # the first driver resumes, after the batch was written
    assert log.pending == {}
    assert log.values() == ["a", "b", "c"]


def test_transactions_of_killed_tasks_are_aborted_if_the_next_run_has_fewer_tasks(
    log: MemoryLog,
) -> None:
    """An open transaction would hide later rows, also of other producers, for 15 minutes."""
    run_batch(log, ["a"])
    for partition in range(3):
        write(log, ["b"], partition, batch=1, run="killed")
    run_batch(log, ["b"], [], batch=1, run="later")
    assert log.pending == {}
    write(log, ["c"], 7, batch=2, run="later")  # a zombie task of run "later"
    run_batch(log, ["c"], batch=2, run="later")
    assert log.pending == {}
    write(log, ["d"], 7, batch=3, run=None)
    run_batch(log, ["d"], batch=3, run=None)  # in a batch job, Spark reports no run id
    run_batch(log, ["e"], batch=4, run=None)
    write(log, ["f"], 7, batch=5, run=None)
    run_batch(log, ["f"], batch=5, run=None)
    assert log.pending == {}


def test_a_late_driver_does_not_abort_tasks_of_the_next_batch(log: MemoryLog) -> None:
    old = [write(log, ["a"], run="old")]
    run_batch(log, ["a"], run="new")
    running = [write(log, ["b"], 0, batch=1, run="new"), write(log, ["c"], 1, batch=1, run="new")]
    commit(log, old)
    commit(log, running, batch=1)
    assert log.values() == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["", "[" * 4000, "[]", "null", '{"v": 1}', '"x"'])
def test_offset_metadata_of_another_application_raises_replay_error(
    log: MemoryLog, text: str
) -> None:
    for part in "0", "ledger":
        log.offsets = {f"odradek-query-sink-{part}": {T0: OffsetAndMetadata(0, text)}}
        with pytest.raises(ReplayError, match="isn't a marker of this sink"):
            write(log, ["a"])


def test_a_commit_decision_whose_transactions_timed_out_does_not_block_later_batches(
    log: MemoryLog,
) -> None:
    """All transactions that it lists timed out, and the repeated batch has no rows."""
    decided(log, ["a"], ["b"])
    log.clock.at += 1000.0
    run_batch(log, [], run="later")
    assert resolved(log, 1).outcome is BatchState.NOTHING
    run_batch(log, ["c"], batch=1, run="later")
    assert log.values() == ["c"]


def test_a_partly_committed_batch_blocks_the_next_batch_until_the_user_resolves_it(
    log: MemoryLog,
) -> None:
    """Spark repeats the batch without tasks, so the error is raised for the next batch."""
    aborted_in_part(log)
    commit(log, [])
    with pytest.raises(ReplayError, match="batch 0 was not finished: 1 of 2 transactions"):
        run_batch(log, ["d"], batch=1)
    assert resolved(log, 1).outcome is BatchState.PARTLY
    assert resolved(log, 1, Remedy.ACCEPT_LOSS).outcome is BatchState.ACCEPTED
    run_batch(log, ["d"], batch=1)
    assert log.values() == ["a", "b", "d"]
    with pytest.raises(ReplayError, match="batch numbers must increase"):
        resolved(log, 0)


def test_a_partly_committed_batch_repeated_for_another_topic_is_written_there_once(
    log: MemoryLog,
) -> None:
    log.topics = ("t", "u")
    aborted_in_part(log)
    resolved(log, 0, Remedy.REPEAT)
    for run in "later", "last":
        run_batch(log, ["a", "b"], ["c"], topic="u", run=run)
    assert log.values() == ["a", "b", "a", "b", "c"]


@pytest.mark.parametrize("wide", [2, 40])
def test_a_task_committed_by_release_0_2_after_a_downgrade_is_found(
    log: MemoryLog, wide: int
) -> None:
    run_batch(log, ["a"])
    first = write(log, ["b"], wide, batch=9, query="other")
    of_02(log, wide, 1, first.digest, batch=1)
    if wide == 2:
        messages = run_batch(log, [], [], ["b"], batch=1, run="later")
        assert messages[2].skipped
    else:
        with pytest.raises(ReplayError, match="other tasks than now"):
            run_batch(log, ["b"], batch=1, run="later")
    assert log.values() == ["a"]


STEPS = ["init", "offsets of a group", "describe", "marker", "commit", "end"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("parts", [(["a", "b"], ["c"]), (["c", "a", "b"],), (["x"], ["y"], ["z"])])
def test_after_a_driver_is_killed_at_any_step_the_rows_of_exactly_one_run_are_written(
    log: MemoryLog, step: str, nth: int, parts: tuple[Rows, ...]
) -> None:
    messages = [write(log, ["a", "b"], 0), write(log, ["c"], 1)]
    count = []

    def die(what: str, _: MemoryProducer) -> None:
        count.append(what)
        if count.count(step) == nth:
            raise DiedError

    log.before, log.dead = die, lambda: True
    try:
        commit(log, messages)
    except DiedError:
        pass
    else:
        assert nth == 2, "there is no second one of these"
    log.before, log.dead = lambda *_: None, lambda: False
    decided = '"state":' in str(log.offsets)
    log.clock.at += 40.0  # the transaction that stores the decision times out
    if decided and parts[0] == ["x"]:
        with pytest.raises(ReplayError, match="repeated with 3"):
            run_batch(log, *parts, run="later")
        resolved(log, 0, Remedy.ACCEPT_LOSS)
    run_batch(log, *parts, run="later")
    expected = ["a", "b", "c"] if decided else [row for part in parts for row in part]
    assert sorted(log.values()) == sorted(expected)


def test_rows_of_a_transaction_aborted_after_the_decision_to_commit_are_written_again(
    log: MemoryLog,
) -> None:
    aborted_in_part(log)
    again = run_batch(log, ["b", "a"], ["c"], run="later")
    assert [m.skipped for m in again] == [True, False]
    assert log.values() == ["a", "b", "c"]
    run_batch(log, ["d"], batch=1)
    assert log.values() == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "parts", [(["a", "b", "c"],), (["a", "b"], ["x"]), (["a", "b"], ["c"], ["d"])]
)
def test_a_partly_committed_batch_repeated_with_other_tasks_commits_no_further_rows(
    log: MemoryLog, parts: tuple[Rows, ...]
) -> None:
    aborted_in_part(log)
    messages = [write(log, rows, p, run="later") for p, rows in enumerate(parts)]
    with pytest.raises(ReplayError, match="1 of their transactions are committed"):
        commit(log, messages)
    abort(log, messages)
    log.settle()
    assert log.values() == ["a", "b"]
    run_batch(log, ["a", "b"], ["c"], run="later")
    assert log.values() == ["a", "b", "c"]


def test_a_batch_with_a_timed_out_transaction_fails_before_the_decision_to_commit(
    log: MemoryLog,
) -> None:
    messages = [write(log, ["a"], 0)]
    log.clock.at += 900.0
    messages.append(write(log, ["b"], 1))
    with pytest.raises(SinkWriteError, match=r"1 of 2 tasks are not open .*\(900 s\)"):
        commit(log, messages)
    abort(log, messages)
    assert log.values() == []
    run_batch(log, ["a"], ["b"])
    assert log.values() == ["a", "b"]


def test_before_kafka_3_0_a_timed_out_transaction_is_found_only_after_the_decision(
    log: MemoryLog,
) -> None:
    log.before_3_0 = True
    run_batch(log, ["a"], ["b"])
    messages = [write(log, ["c"], 0, batch=1)]
    log.clock.at += 900.0
    messages.append(write(log, ["d"], 1, batch=1))
    with pytest.raises(SinkWriteError, match="had already aborted 1 of 2 transactions"):
        commit(log, messages, batch=1)
    assert log.values() == ["a", "b", "d"]
    run_batch(log, ["c"], ["d"], batch=1)
    assert log.values() == ["a", "b", "d", "c"]


@pytest.mark.parametrize("step", ["init", "describe", "end"])
def test_a_driver_fenced_by_another_run_commits_nothing(log: MemoryLog, step: str) -> None:
    messages = [write(log, ["a"])]

    def overtake(what: str, _: MemoryProducer) -> None:
        if what == step:
            log.before = lambda *_: None
            run_batch(log, ["a"], run="other")

    log.before = overtake
    if step != "describe":  # the other run wrote the batch, or completed it
        commit(log, messages)
    else:
        with pytest.raises(SinkWriteError, match=r"are not open any more|taken over"):
            commit(log, messages)
    log.settle()
    assert log.values() == ["a"]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_random_schedule_writes_each_row_once(part: int) -> None:
    """The module `sink_model` describes the random schedules."""
    models = [played(seed) for seed in range(part, SEEDS, PARTS)]
    assert [c for model in models for c in model.complaints] == []
    assert any(model.refused for model in models)
    assert sum(model.repeated for model in models) > len(models) // 2


# The command that resolves a batch


def test_the_resolve_command_completes_a_decided_batch(log: MemoryLog) -> None:
    assert resolved(log, 0).outcome is BatchState.NOTHING
    messages = [write(log, ["a"], 0), write(log, ["b"], 1)]
    assert resolved(log, 0).outcome is BatchState.NOTHING

    def die(what: str, _: MemoryProducer) -> None:
        if what == "end":
            raise DiedError

    log.before, log.dead = die, lambda: True
    with pytest.raises(DiedError):
        commit(log, messages)
    log.before, log.dead = lambda *_: None, lambda: False
    found = resolved(log, 0)
    assert (found.outcome, found.rows(committed=True)) == (BatchState.COMPLETE, 2)
    assert log.values() == ["a", "b"]
    assert resolved(log, None).outcome is BatchState.COMPLETE
    run_batch(log, ["b", "a"], run="later")
    assert log.values() == ["a", "b"]


@pytest.mark.parametrize("choice", [Remedy.ACCEPT_LOSS, Remedy.REPEAT])
def test_a_partly_committed_batch_is_finished_by_accepting_the_loss_or_by_repeating_it(
    log: MemoryLog, choice: Remedy
) -> None:
    aborted_in_part(log)
    found = resolved(log, 0)
    assert found.outcome is BatchState.PARTLY
    assert [(p.partition, p.rows, p.committed) for p in found.parts] == [
        (0, 2, True),
        (1, 1, False),
    ]
    done = resolved(log, 0, choice)
    assert done.outcome is (
        BatchState.ACCEPTED if choice is Remedy.ACCEPT_LOSS else BatchState.REPEATED
    )
    run_batch(log, ["x"], ["y"], ["z"], run="later")
    run_batch(log, ["d"], batch=1)
    more = [] if choice is Remedy.ACCEPT_LOSS else ["x", "y", "z"]
    assert log.values() == ["a", "b", *more, "d"]


# Batches that release 0.2 began; its tasks committed their transactions themselves


def test_tasks_committed_by_release_0_2_are_compared_and_skipped(log: MemoryLog) -> None:
    first = write(log, ["a"], 1, batch=9, query="other")
    of_02(log, 1, 1, first.digest)
    messages = run_batch(log, ["b"], ["a"])
    assert [m.skipped for m in messages] == [False, True]
    assert log.values() == ["b"]
    of_02(log, 1, 1, 77)
    del log.offsets["odradek-query-sink-ledger"]
    with pytest.raises(ReplayError, match=r"sink partition 1 .* digest 0000000000000077|digest"):
        write(log, ["a"], 1)


def test_a_task_committed_by_0_2_is_skipped_if_another_transaction_was_aborted(
    log: MemoryLog,
) -> None:
    first = write(log, ["b"], 1, batch=9, query="other")
    of_02(log, 1, 1, first.digest)
    decided(log, ["a"], ["b"])
    log.clock.at += 1000.0
    again = run_batch(log, ["a"], ["b"], run="later")
    assert [m.skipped for m in again] == [False, True]
    assert log.values() == ["a"]  # release 0.2 wrote the other row


def test_rows_that_0_2_wrote_in_tasks_that_no_longer_have_rows_are_found(log: MemoryLog) -> None:
    of_02(log, 2, 5, batch=3)
    plans: list[tuple[Rows, ...]] = [(["a"],), (["a"], [], [])]
    for parts in plans:
        messages = [write(log, rows, p, batch=3) for p, rows in enumerate(parts)]
        with pytest.raises(ReplayError, match=r"'odradek-query-sink-2' wrote 5 rows .* resolve"):
            commit(log, messages, batch=3)
        abort(log, messages, batch=3)
    found = resolved(log, 3)
    assert (found.outcome, found.rows(committed=True)) == (BatchState.PARTLY, 5)
    resolved(log, 3, Remedy.REPEAT)
    run_batch(log, ["a"], ["b"], batch=3)
    assert log.values() == ["a", "b"]
    assert BEYOND > 2


def test_a_checkpoint_of_release_0_2_is_continued(log: MemoryLog) -> None:
    of_02(log, 0, 5, batch=3)
    of_02(log, 9, 5, batch=3)
    run_batch(log, ["a"], ["b"], batch=4)
    assert log.values() == ["a", "b"]
    with pytest.raises(ReplayError, match="batch numbers must increase"):
        write(log, ["a"], batch=2)


# Errors


@pytest.mark.parametrize(
    "step", ["cluster", "init", "offsets of a group", "send", "flush", "prepare", "marker"]
)
def test_a_killed_task_attempt_leaves_no_rows_and_the_next_attempt_writes_them(
    log: MemoryLog, step: str
) -> None:
    def die(what: str, _: MemoryProducer) -> None:
        if what == step:
            raise DiedError

    log.before, log.dead = die, lambda: True
    with pytest.raises(DiedError):
        write(log, ["a"])
    log.before, log.dead = lambda *_: None, lambda: False
    run_batch(log, ["a"])
    assert log.values() == ["a"]
    assert log.in_use == []


@pytest.mark.parametrize("step", ["cluster", "init", "offsets of a group", "flush", "marker"])
def test_the_sink_waits_for_the_end_of_an_outage_at_each_step(log: MemoryLog, step: str) -> None:
    def fall(what: str, _: MemoryProducer) -> None:
        if what == step:
            log.before = lambda *_: None
            log.down_until = log.clock.now() + 120

    log.before = fall
    message = write(log, ["a"], batch=1)
    for at_driver in "init", "offsets of a group", "describe", "end":
        log.before = fall
        step = at_driver
    commit(log, [message], batch=1)
    assert log.values() == ["a"]


@pytest.mark.parametrize("step", ["init", "marker", "commit", "end"])
def test_a_lost_response_neither_loses_nor_duplicates_rows(log: MemoryLog, step: str) -> None:
    from odradek.common.errors import KafkaTimeoutError

    def lose(what: str, _: MemoryProducer) -> None:
        if what == step:
            log.after = lambda *_: None
            raise KafkaTimeoutError("no answer")

    messages = [write(log, ["a"], 0), write(log, ["b"], 1)]
    if step != "commit":  # the client itself resolves a lost response to a commit
        log.after = lose
    commit(log, messages)
    assert log.values() == ["a", "b"]


def test_a_wrong_address_and_a_too_long_outage_raise_outage_error(log: MemoryLog) -> None:
    log.down_until = log.clock.now() + 10_000
    begin = log.clock.now()
    with pytest.raises(
        OutageError, match=r"timed out after 20 s .*option kafka\.bootstrap\.servers"
    ):
        write(log, ["a"])
    assert log.clock.now() - begin == 20
    with pytest.raises(OutageError, match=r"300 s .*\(option outageTolerance\)"):
        write(log, ["a"], batch=1, outageTolerance="5m")


def test_errors_name_rejected_rows_and_missing_topics(log: MemoryLog) -> None:
    log.refuse = "big"
    with pytest.raises(SinkRowError, match="row 3 of this task: too large"):
        write(log, ["a", "b", "c", "big"])
    assert log.pending == {}  # the transaction was aborted
    log.topics = ()
    with pytest.raises(MissingTopicError, match="topic 't' doesn't exist"):
        write(log, ["a"])


def test_a_transaction_timeout_error_names_the_setting_to_change(log: MemoryLog) -> None:
    def slow(what: str, producer: MemoryProducer) -> None:
        if what == "flush":
            log.clock.at += 900

    log.before = slow
    with pytest.raises(SinkWriteError, match=r"kafka\.transaction\.timeout\.ms is 900 s"):
        write(log, ["a"])

    def refuse(what: str, _: MemoryProducer) -> None:
        if what == "init":
            raise InvalidTransactionTimeoutError("too long")

    log.before = refuse
    with pytest.raises(SinkWriteError, match=r"transaction\.max\.timeout\.ms"):
        write(log, ["a"])


def test_a_committed_offset_whose_metadata_is_not_a_valid_marker_is_rejected() -> None:
    with pytest.raises(ReplayError, match="isn't a marker of this sink"):
        read_marker({T0: OffsetAndMetadata(5, "")}, "g")
    with pytest.raises(ReplayError, match="isn't a marker of this sink"):
        read_decision(lambda _: {T0: OffsetAndMetadata(5, "{}")}, "g-")
    other = OffsetAndMetadata(5, '{"v":99,"rows":3,"digest":"0","run":null}')
    found = read_marker({T0: other, TopicPartition("s", 0): OffsetAndMetadata(2, "")}, "g")
    assert found is not None
    assert (found[0].batch, found[0].rows, found[0].digest, found[1]) == (5, 3, None, "t")


@pytest.mark.parametrize("count", [0, 1, IN_ONE, IN_ONE + 1, 1000])
def test_a_list_of_transactions_of_any_length_is_stored_and_read_back(count: int) -> None:
    entries = tuple(
        TaskEntry(n, 2**62 + n, n % 2**15, bool(n % 2), n, 2**64 - 1 - n) for n in range(count)
    )
    decision = Decision(7, "t", "decided", entries, "w" * 200, "run", count, 2**64 - 1)
    stored = decision.offsets("a-")
    assert len(stored) == max(1, -(-count // IN_ONE))
    texts = [o.metadata for offsets in stored.values() for o in offsets.values()]
    assert max(map(len, texts)) <= 4096  # default of brokers' offset.metadata.max.bytes
    assert read_decision(lambda g: stored.get(g, {}), "a-") == decision
    if count > IN_ONE:  # mix the stored parts of two decisions
        other = Decision(7, "t", "decided", entries[::-1], "w").offsets("a-")
        mixed = {**other, "a-ledger": stored["a-ledger"]}
        with pytest.raises(ReplayError, match="don't belong together"):
            read_decision(lambda g: mixed.get(g, {}), "a-")


def test_two_jobs_whose_names_produce_the_same_sink_id_are_detected(log: MemoryLog) -> None:
    run_batch(log, ["a"], query="b-c", transactionalIdPrefix="a")
    with pytest.raises(ReplayError, match="also used by 'b-c' with transactionalIdPrefix 'a'"):
        write(log, ["a"], query="c", transactionalIdPrefix="a-b")
    assert log.values() == ["a"]


def test_the_driver_aborts_transactions_that_tasks_left_open(log: MemoryLog) -> None:
    """Otherwise read_committed consumers would wait until the transaction times out."""
    done = write(log, ["a"], 0, batch=3)

    def driver_gives_up(what: str, producer: MemoryProducer) -> None:
        if what == "flush":
            log.before = lambda *_: None
            abort(log, [done, None, None], batch=3)
            assert log.pending == {}

    log.before = driver_gives_up
    with pytest.raises(SinkWriteError, match="Another attempt of this task"):
        write(log, ["b"], 1, batch=3)
    assert log.values() == []
    run_batch(log, ["a"], ["b"], batch=3)
    assert log.values() == ["a", "b"]
    assert log.in_use == []


def test_aborting_open_transactions_takes_a_limited_time_and_never_raises(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    def end(*messages: SinkCommit | None) -> float:
        begin = log.clock.now()
        abort(log, messages, batch=3)
        return float(log.clock.now() - begin)

    assert end(None, None) == 0.0  # without the query's id, nothing can be aborted
    assert "may stay hidden" in caplog.text
    caplog.clear()
    log.down_until = log.clock.now() + 1000
    assert end(message(0), None, None) == CONTACT_S < FENCE_S
    assert "nobody answers" in caplog.text
    assert (log.made, log.in_use) == (1, [])
    caplog.clear()
    assert end(message(0)) == 0.0
    assert not caplog.text


def message(partition: int, **given: Any) -> SinkCommit:
    return SinkCommit(partition, 0, 0, **{"batch": 3, "query": "query", **given})


def test_the_driver_rejects_task_results_that_do_not_form_one_batch(log: MemoryLog) -> None:
    commit(log, [message(1), message(0)], batch=3)
    commit(log, [], batch=3)
    for wrong in (
        (message(0), message(0)),
        (message(0), message(2)),
        (message(0), None),
        (message(0), message(1, batch=4)),
        (message(0), message(1, query="other")),
    ):
        with pytest.raises(ReplayError, match="don't form one batch"):
            commit(log, wrong, batch=3)
    with pytest.raises(ReplayError, match="don't form one batch"):
        commit(log, [message(0)], batch=4)
    assert sink_id(options(sinkName="other"), "q", 5) == "odradek-q-other-5"
