"""Test that a copy without new records commits again, because brokers expire old offsets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from odradek.cli.copy.copying import TURN, CopyBooks, Copying
from odradek.cli.copy.planning import CopyPlan
from odradek.clients.consumer.group.group_commits import RENEW_AFTER
from odradek.common.types import TopicPartition

PLAN = CopyPlan("s", "t", 1, "g", "mark", one_cluster=False)


class Quiet:
    """A fake consumer and writer of a copy; the source topic gets no new record."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.now = 1.0
        self.kept: list[tuple[float, dict[int, int]]] = []

    def clock(self) -> float:
        return self.now

    def poll_arrow(self, *_: Any, **__: Any) -> None:
        self.now += TURN
        if self.now >= self.until:
            raise KeyboardInterrupt

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("s", 0)}

    def position(self, _: TopicPartition) -> int:
        return 5

    def lag(self) -> dict[TopicPartition, int]:
        return {}

    def partitions_for(self, *_: Any) -> list[int]:
        return [0]

    def assign(self, *_: Any, **__: Any) -> None: ...

    def seek(self, *_: Any) -> None: ...

    def commit(self, positions: dict[int, int]) -> None:
        self.kept.append((self.now, positions))


def copying(quiet: Any) -> Copying:
    return Copying(quiet, quiet, PLAN, CopyBooks({0: 5}), quiet.clock)


def test_a_copy_run_without_new_records_commits_its_progress_once() -> None:
    quiet = Quiet(10.0)
    made = copying(quiet)
    made.run({0: 5})
    assert quiet.kept == [(1.0, {0: 5})]
    assert made.books.steps == 0


def test_a_copy_that_follows_an_idle_topic_commits_its_progress_regularly() -> None:
    quiet = Quiet(3 * RENEW_AFTER)
    with pytest.raises(KeyboardInterrupt):
        copying(quiet).run(None)
    times = [at for at, _ in quiet.kept]
    assert len(times) == 3
    assert max(b - a for a, b in pairwise(times)) < RENEW_AFTER + 5.0
