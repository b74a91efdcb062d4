"""`commitOffsets=group`: commits and warnings; no error of the group ends a query."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.spark.driver.group_progress import ALL_EVERY_S, FIRST_WAIT_S, GroupProgress
from odradek.spark.driver.offsets import StreamOffset
from odradek.spark.options.source_options import STREAM, parse_options

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:9092",
    "subscribe": "t",
    "commitOffsets": "group",
    "kafka.group.id": "lag",
}

Call = tuple[str, dict[TopicPartition, int]]


class FakeCommitter:
    def __init__(self, failures: list[KafkaError]) -> None:
        self.calls: list[Call] = []
        self._failures = failures
        self.waited: list[float] = []
        self.closed = False

    def commit(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        self.calls.append(("waits", dict(offsets)))
        self.waited.append(timeout)
        if self._failures:
            raise self._failures.pop(0)

    def commit_async(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.calls.append(("goes on", dict(offsets)))
        if self._failures:
            raise self._failures.pop(0)

    def close(self, timeout: float = 5.0) -> None:
        assert timeout <= 1.0
        self.closed = True
        raise KafkaError("it has ended")  # this error mustn't end the query


class SteppedClock:
    at = 100.0

    def now(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        raise AssertionError("the driver waits for nothing here")


class Run:
    """One run of a query that commits its progress to a consumer group."""

    def __init__(self, *failures: KafkaError, **options: str) -> None:
        self.clock = SteppedClock()
        self.made: list[FakeCommitter] = []
        self.failures = list(failures)
        parsed = parse_options({**OPTIONS, **options}, STREAM)
        self.progress = GroupProgress(parsed, self._make, self.clock)

    def _make(self, config: Mapping[str, Any]) -> Any:
        assert config["group.id"] == "lag"
        self.made.append(FakeCommitter(self.failures))
        return self.made[-1]

    def commit(self, *ends: int, cluster: str | None = "c") -> None:
        positions = dict(zip((ZERO, ONE), ends, strict=False))
        self.progress.commit(StreamOffset(positions, cluster))

    @property
    def calls(self) -> list[Call]:
        return [call for client in self.made for call in client.calls]


def test_the_first_commit_blocks_and_later_commits_contain_only_changed_offsets() -> None:
    run = Run()
    run.commit(5, 7)
    run.commit(6, 7)
    run.commit(6, 7)
    assert run.calls == [("waits", {ZERO: 5, ONE: 7}), ("goes on", {ZERO: 6})]
    assert run.made[0].waited == [FIRST_WAIT_S]
    run.clock.at += ALL_EVERY_S
    run.commit(6, 8)
    assert run.calls[2:] == [("goes on", {ZERO: 6, ONE: 8})]
    run.progress.close()
    assert run.made[0].closed


def test_after_a_timeout_offsets_are_committed_in_the_background() -> None:
    run = Run(KafkaTimeoutError("no answer"))
    run.commit(5, 7)
    run.commit(6, 7)
    assert [how for how, _ in run.calls] == ["waits", "goes on", "goes on"]
    assert run.calls[1][1] == {ZERO: 5, ONE: 7}
    assert len(run.made) == 1


def test_a_rejected_commit_is_logged_and_all_offsets_are_committed_after_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(KafkaError("not for you"))
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        run.commit(5, 7)
    assert "could not be committed to group lag" in caplog.text
    assert "not for you" in caplog.text
    assert run.made[0].closed
    run.commit(5, 7)
    assert len(run.made) == 1
    run.clock.at += ALL_EVERY_S
    run.commit(5, 8)
    assert run.calls[1:] == [("waits", {ZERO: 5, ONE: 8})]
    assert len(run.made) == 2


def test_a_failed_background_commit_does_not_fail_the_query() -> None:
    run = Run()
    run.commit(5, 7)
    run.failures.append(KafkaTimeoutError("the group's broker is away"))
    run.commit(6, 7)
    assert [how for how, _ in run.calls] == ["waits", "goes on"]
    assert run.made[0].closed


def test_offsets_that_do_not_name_their_cluster_are_not_committed() -> None:
    run = Run()
    run.commit(5, 7, cluster=None)
    run.progress.commit(None)
    assert not run.made
    run.progress.close()
