"""Test the parts of `odradek demo --asyncio` that run an event loop, with simulated brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.cli.demo.data import PARTITIONS, TOPIC
from odradek.cli.demo.loop_thread import LoopThread
from odradek.cli.demo.sending import LoopSending
from odradek.testing import FakeCluster

ROWS = 2_000
PATIENCE = 60.0


class Rows:
    """Replacement for the data set, which needs pandas."""

    rows = ROWS

    def records(self, start: int, stop: int) -> Iterator[tuple[bytes | None, bytes]]:
        for row in range(start, min(stop, self.rows)):
            yield b"N%d" % (row % 7), json.dumps({"row": row}).encode()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(topics={TOPIC: PARTITIONS}) as running:
        yield running


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_producer_and_consumer_in_one_loop_recover_after_a_move(cluster: FakeCluster) -> None:
    rows: Any = Rows()
    with LoopSending({"bootstrap.servers": cluster.bootstrap_servers}, rows, 1.0) as sending:
        sending.start()
        wait_for(lambda: 0 < sending.rows()["read"] < ROWS)
        for broker in cluster.broker_ids:
            cluster.move(broker)
        wait_for(lambda: sending.over and sending.rows()["read"] == ROWS)
        assert sending.is_alive()  # the consumer continues
    assert not sending.is_alive()
    assert sending.error is None
    assert (sending.sent, sending.acknowledged) == (ROWS, ROWS)
    assert sending.readings() == [(ROWS, ROWS)]


def test_an_error_in_the_demos_event_loop_is_reported(cluster: FakeCluster) -> None:
    rows: Any = Rows()
    rows.records = lambda start, stop: [(None, b"no row")]
    with LoopSending({"bootstrap.servers": cluster.bootstrap_servers}, rows, 1.0) as sending:
        sending.start()
        wait_for(lambda: sending.over)
        sending.join(PATIENCE)
    assert isinstance(sending.error, json.JSONDecodeError)


def test_the_with_block_of_a_loop_thread_that_never_started_can_be_left() -> None:
    class Thread(LoopThread):
        async def main(self) -> None:
            raise AssertionError

    with Thread() as thread:
        assert not thread.is_alive()
