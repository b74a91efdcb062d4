"""One task's transaction: replays, zombies, retries, other rows, outages; and the driver's look."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.memory_producer import MemoryLog, MemoryProducer

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors.kafka import InvalidTransactionTimeoutError
from odradek.common.types import TopicPartition
from odradek.spark.options.option_table import STREAM
from odradek.spark.problems import MissingTopicError, OutageError
from odradek.spark.sink.exactly_once import (
    BEYOND,
    CONTACT_S,
    TransactionalTask,
    check_batch,
    end_open,
    read_marker,
    sink_id,
)
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options
from odradek.spark.sink.sink_problems import ReplayError, SinkRowError, SinkWriteError
from odradek.spark.sink.sink_schema import SinkColumns


@pytest.fixture
def log(clock: Any) -> MemoryLog:
    return MemoryLog(clock)


def options(**given: str) -> SinkOptions:
    base = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery": "exactly_once"}
    return parse_sink_options({**base, **given}, STREAM)


def batches(*rows: list[str]) -> Any:
    return iter([pa.RecordBatch.from_pydict({"value": part}) for part in rows])


def write(
    log: MemoryLog,
    *rows: list[str],
    batch: int = 0,
    partition: int = 0,
    run: str = "run",
    query: str = "query",
    **given: str,
) -> SinkCommit:
    task = SinkTask(partition, 0, batch, query, run)
    columns = SinkColumns(("value",), "t")
    work = TransactionalTask(options(**given), columns, task, make=log.make, clock=log.clock)
    return work.write(batches(*rows))


def test_rows_and_marker_are_committed_together_after_the_fence(log: MemoryLog) -> None:
    done = write(log, ["a", "b"], ["c"])
    assert (done.rows, done.batch, done.query, done.skipped) == (3, 0, "query", False)
    assert log.values() == ["a", "b", "c"]
    order = [log.steps.index(s) for s in ("init", "marker", "send", "flush", "offsets", "commit")]
    assert order == sorted(order)
    marker = log.offsets["odradek-query-sink-0"][TopicPartition("t", 0)]
    assert marker.offset == 0
    assert '"rows":3' in marker.metadata
    assert write(log, [], batch=1).rows == 0  # an empty task leaves a marker as well
    assert log.offsets["odradek-query-sink-0"][TopicPartition("t", 0)].offset == 1


def test_a_replay_is_skipped_in_whatever_order_its_rows_come(log: MemoryLog) -> None:
    first = write(log, ["a", "b"], ["c"])
    again = write(log, ["c", "a"], ["b"], run="later")
    assert (first.skipped, again.skipped, again.rows) == (False, True, 3)
    assert (first.first_of_run, again.first_of_run) == (True, True)
    assert not write(log, ["d"], batch=1, run="run").first_of_run
    assert log.values() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("rows", [["a"], ["a", "b", "b"], ["a", "x"], ["ab", ""], []])
def test_a_replay_with_other_rows_fails_and_writes_nothing(log: MemoryLog, rows: list[str]) -> None:
    write(log, ["a", "b"], batch=4, partition=2)
    with pytest.raises(ReplayError, match=r"batch 4, sink partition 2 \(odradek-query-sink-2\)"):
        write(log, rows, batch=4, partition=2)
    assert log.values() == ["a", "b"]


def test_an_older_batch_fails(log: MemoryLog) -> None:
    write(log, ["a"], batch=7)
    with pytest.raises(
        ReplayError, match="batch 7 was already written, and batch numbers must increase"
    ):
        write(log, ["z"], batch=6)
    assert log.values() == ["a"]


@pytest.mark.parametrize("step", ["send", "flush", "offsets", "commit", "committed"])
def test_a_zombie_is_fenced_wherever_it_stands_and_rows_are_there_once(
    log: MemoryLog, step: str
) -> None:
    """Another attempt overtakes the first one between any two of its steps."""

    def overtake(what: str, producer: MemoryProducer) -> None:
        if what == step and producer.epoch == 1:
            log.before = lambda *_: None
            assert write(log, ["a", "b"], run="other").skipped is (step == "committed")

    log.before = overtake
    if step == "committed":
        assert write(log, ["a", "b"]).rows == 2
    else:
        with pytest.raises(SinkWriteError, match="Another attempt of this task"):
            write(log, ["a", "b"])
    assert log.values() == ["a", "b"]


@pytest.mark.parametrize(
    "step", ["init", "marker", "send", "flush", "offsets", "commit", "committed"]
)
def test_an_attempt_that_dies_leaves_nothing_and_the_next_one_writes(
    log: MemoryLog, step: str
) -> None:
    class DiedError(BaseException):
        pass

    def die(what: str, _: MemoryProducer) -> None:
        if what == step:
            raise DiedError

    log.before = die
    with pytest.raises(DiedError):
        write(log, ["a"])
    log.before = lambda *_: None
    assert write(log, ["a"]).skipped is (step == "committed")
    assert log.values() == ["a"]
    assert len(log.closed) == log.made == 2


@pytest.mark.parametrize("step", ["cluster", "init", "marker", "flush", "offsets", "commit"])
def test_an_outage_is_waited_out_at_each_step(log: MemoryLog, step: str) -> None:
    def fall(what: str, _: MemoryProducer) -> None:
        if what == step:
            log.before = lambda *_: None
            log.down_until = log.clock.now() + 120

    log.before = fall
    assert write(log, ["a"], batch=1).rows == 1
    assert log.values() == ["a"]


def test_an_outage_that_is_too_long_and_a_wrong_address_end(log: MemoryLog) -> None:
    log.down_until = log.clock.now() + 10_000
    begin = log.clock.now()
    with pytest.raises(
        OutageError, match=r"timed out after 20 s .*option kafka\.bootstrap\.servers"
    ):
        write(log, ["a"])
    assert log.clock.now() - begin == 20
    with pytest.raises(OutageError, match=r"300 s .*\(option outageTolerance\)"):
        write(log, ["a"], batch=1, outageTolerance="5m")


def test_what_is_wrong_with_rows_and_topics_is_named(log: MemoryLog) -> None:
    log.refuse = "big"
    with pytest.raises(SinkRowError, match="row 3 of this task: too large"):
        write(log, ["a", "b"], ["c", "big"])
    assert log.values() == []
    log.topics = ()
    with pytest.raises(MissingTopicError, match="topic 't' doesn't exist"):
        write(log, ["a"])


def test_a_transaction_that_takes_too_long_says_what_to_change(log: MemoryLog) -> None:
    def slow(what: str, producer: MemoryProducer) -> None:
        if what == "flush":
            log.clock.at += 900
            log.epochs["odradek-query-sink-0"] += 1  # as the coordinator does

    log.before = slow
    with pytest.raises(SinkWriteError, match=r"kafka\.transaction\.timeout\.ms is 900 s"):
        write(log, ["a"])

    def refuse(what: str, _: MemoryProducer) -> None:
        if what == "init":
            raise InvalidTransactionTimeoutError("too long")

    log.before = refuse
    with pytest.raises(SinkWriteError, match=r"transaction\.max\.timeout\.ms"):
        write(log, ["a"])


def test_an_offset_that_is_no_marker_is_refused() -> None:
    tp = TopicPartition("t", 0)
    with pytest.raises(ReplayError, match="isn't a marker of this sink"):
        read_marker({tp: OffsetAndMetadata(5, "")}, "g")
    other = OffsetAndMetadata(5, '{"v":99,"rows":3,"digest":"0","run":null}')
    found = read_marker({tp: other, TopicPartition("s", 0): OffsetAndMetadata(2, "")}, "g")
    assert found is not None
    assert (found[0].batch, found[0].rows, found[0].digest, found[1]) == (5, 3, None, "t")


def test_two_jobs_whose_names_make_the_same_id_are_told_apart(log: MemoryLog) -> None:
    write(log, ["a"], query="b-c", transactionalIdPrefix="a")
    with pytest.raises(ReplayError, match="also used by 'b-c' with transactionalIdPrefix 'a'"):
        write(log, ["a"], query="c", transactionalIdPrefix="a-b")
    assert log.values() == ["a"]


def test_the_driver_ends_what_killed_tasks_left_open(log: MemoryLog) -> None:
    """Readers of committed records would else wait for the transaction's timeout."""

    def driver_gives_up(what: str, producer: MemoryProducer) -> None:
        if what == "flush":
            log.before = lambda *_: None
            end_open(options(), [commit(0), None, None], make=log.make, clock=log.clock)
            assert log.epochs["odradek-query-sink-2"] == 1
            assert "odradek-query-sink-0" not in log.epochs  # that one has committed

    log.before = driver_gives_up
    with pytest.raises(SinkWriteError, match="Another attempt of this task"):
        write(log, ["a"], batch=3, partition=1)
    assert log.values() == []
    assert write(log, ["a"], batch=3, partition=1).rows == 1
    assert len(log.closed) == log.made


def test_ending_what_is_open_neither_lasts_nor_fails(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    def end(*messages: SinkCommit | None) -> float:
        begin = log.clock.now()
        end_open(options(), messages, make=log.make, clock=log.clock)
        return float(log.clock.now() - begin)

    assert end(None, None) == 0.0  # no task has said which query this is
    assert "may stay hidden" in caplog.text
    caplog.clear()
    log.down_until = log.clock.now() + 1000
    assert end(commit(0), None, None) == CONTACT_S
    assert "nobody answers" in caplog.text
    assert len(log.closed) == log.made == 1
    caplog.clear()
    assert end(commit(0)) == 0.0
    assert not caplog.text


def commit(partition: int, **given: Any) -> SinkCommit:
    return SinkCommit(partition, 1, 0, **{"batch": 3, "query": "query", **given})


def test_the_driver_refuses_a_set_that_is_not_one_batch(log: MemoryLog) -> None:
    def check(*messages: object, batch: int = 3) -> None:
        check_batch(options(), messages, batch=batch, make=log.make, clock=log.clock)

    check(commit(1), commit(0))
    assert log.made == 0  # nothing to look for in the middle of a run
    for wrong in (
        (commit(0), commit(0)),
        (commit(0), commit(2)),
        (commit(0), None),
        (commit(0), commit(1, batch=4)),
        (commit(0), commit(1, query="other")),
    ):
        with pytest.raises(ReplayError, match="don't form one batch"):
            check(*wrong)
    with pytest.raises(ReplayError, match="don't form one batch"):
        check(commit(0), batch=4)


def test_the_driver_finds_what_a_wider_run_wrote_of_the_same_batch(log: MemoryLog) -> None:
    write(log, ["a"], batch=3, partition=1)
    write(log, ["b"], batch=2, partition=2)
    first = commit(0, first_of_run=True)
    with pytest.raises(ReplayError, match="already written by more tasks than now"):
        check_batch(options(), [first], batch=3, make=log.make, clock=log.clock)
    log.steps.clear()
    check_batch(options(), [first, commit(1)], batch=3, make=log.make, clock=log.clock)
    assert log.steps.count("marker") == BEYOND
    assert len(log.closed) == log.made
    assert sink_id(options(sinkName="other"), "q", 5) == "odradek-q-other-5"


def test_a_second_write_of_one_batch_to_another_topic_is_not_taken_for_its_replay(
    log: MemoryLog,
) -> None:
    """Two writes in one foreachBatch function without names: the same rows would be left out."""
    log.topics = ("t", "u")
    write(log, ["a"])
    with pytest.raises(ReplayError, match=r"to topic 't'.* for topic 'u'.*a different sinkName"):
        write(log, ["a"], topic="u")
    assert write(log, ["a"], topic="u", sinkName="second").rows == 1
    with pytest.raises(ReplayError, match="a different sinkName"):
        write(log, ["b"])
