"""Test which records may run, and which offsets may be committed (R-WK-1 to R-WK-3)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek import Workers
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.clients.workers.dead_letters import PREFIX
from odradek.clients.workers.work_options import WorkOptions
from odradek.clients.workers.work_queue import AHEAD, WorkItem, WorkQueue
from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def options(**changed: Any) -> WorkOptions:
    given = {
        "worker": Workers,
        "concurrency": 4,
        "ordering": "key",
        "max_attempts": 3,
        "retry_on": Exception,
        "backoff": ExponentialBackoff(0.1, 1.0),
        "dead_letter_topic": "dead",
        "buffer_records": 100,
        "buffer_bytes": 1_000_000,
        "commit_interval": 1.0,
        "drain_timeout": 20.0,
    }
    return WorkOptions(**{**given, **changed})


def queue(**changed: Any) -> WorkQueue:
    return WorkQueue(options(**changed), ("g", "c"), random.Random(1))


def record(
    offset: int, key: bytes | None = b"k", tp: TopicPartition = T0, value: bytes | None = b"v"
) -> ConsumerRecord:
    return ConsumerRecord(tp.topic, tp.partition, offset, 1000, 0, key, value, (), 7)


def start_all(work: WorkQueue, now: float = 0.0) -> list[WorkItem]:
    found = []
    while (item := work.begin(now)) is not None:
        found.append(item)
    return found


def offsets(items: list[WorkItem]) -> list[int]:
    return [item.record.offset for item in items]


def committable(work: WorkQueue, tp: TopicPartition = T0) -> int | None:
    found = work.committable().get(tp)
    return None if found is None else found.offset


class Model:
    """A slow, simple model: all records of the assigned partitions, and the finished records."""

    def __init__(self) -> None:
        self.came: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.finished: set[tuple[TopicPartition, int]] = set()
        self.in_work: list[WorkItem] = []

    def has_new(self, tp: TopicPartition, before: int | None) -> bool:
        """Return whether there is a new offset to commit since `before`; True if it is None."""
        until = self.first(tp)[0]
        offsets = [at for found, at in self.finished if found == tp]
        return before is None or any(before <= at < until for at in offsets)

    def may_run(self, item: WorkItem) -> None:
        """R-WK-1: check that no record of this key runs, and its earlier records are finished."""
        lane = (item.tp, item.record.key)
        if item.record.key is not None:
            assert lane not in [(one.tp, one.record.key) for one in self.in_work]
            before = [
                one.offset
                for one in self.came[item.tp]
                if one.key == item.record.key and one.offset < item.record.offset
            ]
            assert all((item.tp, offset) in self.finished for offset in before)

    def first(self, tp: TopicPartition) -> tuple[int, int]:
        """R-WK-2: return the first unfinished offset and the epoch to validate it with."""
        for one in self.came[tp]:
            if (tp, one.offset) not in self.finished:
                return one.offset, one.leader_epoch
        last = self.came[tp][-1]
        return last.offset + 1, last.leader_epoch


@pytest.mark.parametrize("seed", range(60))
def test_the_work_queue_agrees_with_the_model_in_random_histories(seed: int) -> None:
    chance = random.Random(seed)
    work = queue(concurrency=chance.choice([1, 3, 8]), max_attempts=chance.choice([1, 3]))
    oracle, now = Model(), 0.0
    asked: dict[TopicPartition, OffsetAndMetadata] = {}
    acknowledged: dict[TopicPartition, int] = {}
    ends = {T0: 5, T1: 1000}
    for _ in range(400):
        now += chance.random() / 10
        verb = chance.random()
        tp = chance.choice([T0, T1])
        if verb < 0.3:
            for _ in range(chance.randrange(1, 5)):
                ends[tp] += chance.choice([0, 0, 0, 1, 7])  # compaction leaves gaps
                one = record(ends[tp], chance.choice([None, b"", b"a", b"b", b"c"]), tp)
                ends[tp] += 1
                work.add([one])
                oracle.came.setdefault(tp, []).append(one)
        elif verb < 0.6:
            item = work.begin(now)
            if item is not None:
                oracle.may_run(item)
                oracle.in_work.append(item)
        elif verb < 0.97 and oracle.in_work:
            item = oracle.in_work.pop(chance.randrange(len(oracle.in_work)))
            error = ValueError("no") if chance.random() < 0.3 and item.letter is None else None
            work.ended(item, error, now)
            if error is None and not item.dropped:
                oracle.finished.add((item.tp, item.record.offset))
        elif verb > 0.98:  # revoke the partition and assign it again at the committed offset
            back = oracle.first(tp)[0] if tp in oracle.came else ends[tp]
            work.hold([tp])
            work.drop([tp])
            oracle.came.pop(tp, None)
            oracle.finished = {one for one in oracle.finished if one[0] != tp}
            ends[tp] = back
            for committed in (acknowledged, asked):
                committed.pop(tp, None)
        told = work.committable()
        found = {tp: (at.offset, at.leader_epoch) for tp, at in told.items()}
        firsts = {tp: oracle.first(tp) for tp in oracle.came}
        new = {p: at for p, at in firsts.items() if oracle.has_new(p, acknowledged.get(p))}
        assert new.items() <= found.items() <= firsts.items()
        assert not any(at[0] == acknowledged.get(p) for p, at in found.items())
        assert list(work.moved) == list(found)  # `moved` has to list the partitions to commit
        if chance.random() < 0.1:
            work.committed(asked)
            acknowledged |= {p: at.offset for p, at in asked.items()}
            asked = told
        assert len(work.running) == len(oracle.in_work)
    while oracle.in_work or work.waiting:
        now += 1.0
        for item in oracle.in_work:
            work.ended(item, None, now)
            if not item.dropped:
                oracle.finished.add((item.tp, item.record.offset))
        oracle.in_work.clear()
        for item in start_all(work, now):
            oracle.may_run(item)
            oracle.in_work.append(item)
    ends = {tp: came[-1].offset + 1 for tp, came in oracle.came.items()}
    assert {tp: at.offset for tp, at in work.committable().items()} == {
        tp: end for tp, end in ends.items() if end != acknowledged.get(tp)
    }


def test_committed_offsets_are_not_committed_again() -> None:
    work = queue()
    work.add([record(5), record(6)])
    first = work.committable()
    assert first[T0].offset == 5  # else auto.offset.reset would apply after a crash
    work.committed(first)
    assert work.committable() == {}
    [item] = start_all(work)
    work.ended(item, None, 0.0)
    assert committable(work) == 6
    assert work.committable()[T0].leader_epoch == 7


def test_a_failed_record_is_retried_and_blocks_only_its_key() -> None:
    work = queue()
    work.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, None), record(4, None)])
    items = start_all(work)
    assert offsets(items) == [0, 2, 3, 4]
    work.ended(items[0], ValueError("no"), 0.0)
    for item in items[1:]:
        work.ended(item, None, 0.0)
    assert start_all(work, 0.0) == []
    due = work.next_retry
    assert due is not None
    assert 0.08 <= due <= 0.12
    [again] = start_all(work, due)
    assert again is items[0]
    work.ended(again, None, due)
    assert offsets(start_all(work, due)) == [1]
    assert (work.finished, work.retried, committable(work)) == (4, 1, 1)


def test_a_record_sent_as_a_dead_letter_is_finished_when_the_dead_letter_is_written() -> None:
    work = queue(max_attempts=2)
    work.add([record(0, b"a", value=None), record(1, b"a")])
    for now in (0.0, 1.0):
        [item] = start_all(work, now)
        assert item.letter is None
        work.ended(item, ValueError("no\x1b[2J"), now)
    [item] = start_all(work, 2.0)
    assert item.letter is not None
    assert (item.letter["topic"], item.letter["key"], item.letter["value"]) == ("dead", b"a", None)
    told = {name.removeprefix(PREFIX): value for name, value in item.letter["headers"]}
    assert told["exception.class.name"] == b"builtins.ValueError"
    assert told["class.name"] == b"odradek.Workers"
    assert told["exception.message"] == b"no\\x1b[2J"
    assert (committable(work), start_all(work, 2.0)) == (
        0,
        [],
    )  # its key is blocked until the dead letter is written
    work.ended(item, None, 3.0)
    assert (work.dead, committable(work)) == (1, 1)
    assert offsets(start_all(work, 3.0)) == [1]


def test_a_failed_write_of_a_dead_letter_ends_the_workers() -> None:
    work = queue(max_attempts=1)
    work.add([record(0), record(1, b"b")])
    [item, other] = start_all(work)
    work.ended(item, ValueError("no"), 0.0)
    [letter] = start_all(work)
    assert letter is item
    work.ended(item, TimeoutError("late"), 1.0)
    work.ended(other, None, 1.0)
    assert work.failure is not None
    assert (work.failure.partition, work.failure.offset) == (T0, 0)
    assert "'dead' failed: TimeoutError: late" in str(work.failure)
    assert (start_all(work, 9.0), committable(work)) == ([], 0)


def test_without_a_dead_letter_topic_a_failed_record_ends_the_workers_with_an_error() -> None:
    work = queue(max_attempts=1, dead_letter_topic=None)
    work.add([record(7), record(8, b"b"), record(9, b"c")])
    first, *others = start_all(work)
    error = ValueError("no")
    work.ended(first, error, 0.0)
    for item in others:
        work.ended(item, None, 0.0)
    assert work.failure is not None
    assert work.failure.__cause__ is error
    assert "t-0: the record at offset 7 was tried once: ValueError: no" in str(work.failure)
    work.add([record(10, b"d")])
    assert start_all(work) == []
    assert committable(work) == 7


def test_only_the_errors_in_retry_on_are_retried() -> None:
    work = queue(retry_on=(OSError,))
    work.add([record(0, b"a"), record(1, b"b"), record(2, b"c")])
    one, two, three = start_all(work)
    work.ended(one, ConnectionError("down"), 0.0)
    work.ended(two, ValueError("bad"), 0.0)
    work.ended(three, KeyboardInterrupt(), 0.0)  # an interrupt ends the run: no retry
    assert (one.letter, work.next_retry is not None) == (None, True)
    assert two.letter is not None
    assert (three.letter, three.attempts) == (None, 1)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this, too")


def test_an_error_that_cannot_be_converted_to_text_is_reported_by_its_class() -> None:
    work = queue(max_attempts=1)
    work.add([record(0)])
    [item] = start_all(work)
    work.ended(item, UnprintableError(), 0.0)
    assert item.letter is not None
    assert dict(item.letter["headers"])[PREFIX + "exception.message"] == b"UnprintableError"


class MisleadingError(Exception):
    """An application's error with the same attribute names as odradek's errors."""

    next_offset = 3
    blames_record = False

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


MisleadingError.__module__ = None  # type: ignore[assignment]


def test_attributes_of_an_applications_error_that_look_like_odradeks_are_ignored() -> None:
    work = queue(max_attempts=2)
    work.add([record(0)])
    for now in (0.0, 1.0):
        [item] = start_all(work, now)
        work.ended(item, MisleadingError("no"), now)
    assert (item.attempts, work.retried, work.failure) == (2, 1, None)
    assert item.letter is not None
    assert dict(item.letter["headers"])[PREFIX + "exception.class.name"] == b"None.MisleadingError"


def test_a_key_is_blocked_while_its_record_from_before_a_revocation_still_runs() -> None:
    work = queue()
    work.add([record(0), record(1)])
    [old] = start_all(work)
    work.drop([T0])
    assert work.waiting == 0
    work.add([record(0), record(1)])
    assert start_all(work) == []  # a record of this key runs for the old assignment
    assert committable(work) == 0
    work.ended(old, None, 0.0)
    [new] = start_all(work)
    assert new is not old
    assert (new.record.offset, work.finished, committable(work)) == (0, 0, 0)


def test_a_revoked_partition_finishes_running_records_and_starts_none() -> None:
    work = queue()
    work.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(0, b"a", T1)])
    items = start_all(work)
    assert len(items) == 3
    work.hold([T0])
    work.ended(items[0], None, 0.0)
    work.ended(items[1], ValueError("no"), 0.0)  # the next owner retries the record
    assert start_all(work, 99.0) == []
    assert work.committable([T0])[T0].offset == 1
    work.drop([T0])
    work.ended(items[2], None, 0.0)
    assert set(work.committable()) == {T1}


def test_after_a_log_truncation_a_repeated_offset_is_treated_as_a_new_record() -> None:
    work = queue()
    work.add([record(10), record(11)])
    [old] = start_all(work)
    work.add([record(10), record(11)])  # after a truncation, another record has offset 10
    assert committable(work) == 10
    work.ended(old, None, 0.0)
    assert committable(work) == 10
    assert offsets(start_all(work)) == [10]


@pytest.mark.parametrize(
    ("ordering", "together"),
    [("key", [0, 2, 3, 4]), ("partition", [0]), ("unordered", [0, 1, 2, 3])],
)
def test_the_ordering_option_decides_which_records_run_concurrently(
    ordering: str, together: list[int]
) -> None:
    work = queue(ordering=ordering)
    keys = [b"a", b"a", b"b", None, None]
    work.add(record(offset, key) for offset, key in enumerate(keys))
    assert offsets(start_all(work)) == together


def test_only_a_partition_that_fills_its_share_of_the_buffer_is_paused() -> None:
    work = queue(buffer_records=8, concurrency=9)
    work.share(2)
    work.add(record(offset, None) for offset in range(4))
    work.add([record(0, None, T1)])
    assert work.turned() == ([T0], [])
    assert work.turned() == ([], [])
    items = [item for item in start_all(work) if item.tp == T0]
    work.ended(items[0], None, 0.0)
    assert work.turned() == ([], [])
    work.ended(items[1], None, 0.0)
    assert work.turned() == ([], [T0])
    work.share(100)  # each partition may buffer one record
    assert work.turned() == ([T0, T1], [])


def test_a_record_larger_than_the_buffer_pauses_its_partition_and_still_runs() -> None:
    work = queue(buffer_bytes=1000)
    work.add([record(0, None, value=bytes(5000))])
    assert work.turned() == ([T0], [])
    [item] = start_all(work)
    work.ended(item, None, 0.0)
    assert work.turned() == ([], [T0])


def test_a_partition_is_paused_if_one_record_runs_while_many_others_finish() -> None:
    work = queue(concurrency=2)
    work.add([record(0, b"slow")])
    start_all(work)
    for offset in range(1, AHEAD + 1):
        work.add([record(offset, None)])
        [item] = start_all(work)
        work.ended(item, None, 0.0)
        paused = work.turned()[0]
        assert paused == ([] if offset < AHEAD - 1 else [T0] if offset == AHEAD - 1 else [])
    assert committable(work) == 0
