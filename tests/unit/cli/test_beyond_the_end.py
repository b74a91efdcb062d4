"""A number for `--offset` that the log doesn't reach: it was taken for "there is nothing"."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.time_limits import HANG_S

from odradek import Admin, NewTopic, Producer
from odradek.testing import FakeCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def servers() -> Iterator[str]:
    """A topic of two partitions, with five records and with two."""
    with FakeCluster() as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        with Admin(config) as admin, Producer(config) as producer:
            admin.create_topics([NewTopic("t", 2)])
            for n in range(7):
                producer.send("t", b"%d" % n, partition=n // 5)
        yield cluster.bootstrap_servers


def run(servers: str, *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "odradek", *words, "--bootstrap-server", servers]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=HANG_S)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("end", [["--exit"], ["--until", "3"]])
def test_consume_tells_the_range_of_a_log_that_ends_before(servers: str, end: list[str]) -> None:
    words = ("consume", "--topic", "t", *end, "--offset")
    status, shown, told = run(servers, *words, "6")
    assert (status, shown) == (1, "")
    assert "offset 6 of t-0 isn't in its log, which has offsets 0 to 5" in told
    status, shown, told = run(servers, *words, "3", "--partition", "1")
    assert (status, shown) == (1, "")
    assert "offset 3 of t-1 isn't in its log, which has offsets 0 to 2" in told
    if end == ["--exit"]:
        assert run(servers, *words, "2", "--partition", "1")[:2] == (0, "")  # its end
    assert run(servers, *words, "5", "--partition", "0")[:2] == (0, "")


def test_a_copy_does_not_begin_beyond_the_end_where_it_would_skip_what_comes(servers: str) -> None:
    words = ("copy", "t", "d", "--create", "--from-command-property", "client.id=x")
    status, _, told = run(servers, *words, "--offset", "3")
    assert status == 1
    assert "offset 3 of t-1 isn't in its log, which has offsets 0 to 2" in told
    status, _, told = run(servers, *words, "--offset", "2")  # nothing was kept of the first one
    assert (status, "Copied 3 records" in told) == (0, True)
