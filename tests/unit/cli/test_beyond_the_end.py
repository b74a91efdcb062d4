"""Test `--offset` beyond the log end, which was once treated as if the topic were empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from odradek import Admin, NewTopic, Producer
from odradek.cli import build
from odradek.testing import FakeCluster

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Return a function that runs a command; topic t has 5 records in partition 0, 2 in 1."""
    with FakeCluster() as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        with Admin(config) as admin, Producer(config) as producer:
            admin.create_topics([NewTopic("t", 2)])
            for n in range(7):
                producer.send("t", b"%d" % n, partition=n // 5)

        def run(*words: str) -> tuple[object, str, str]:
            with pytest.raises(SystemExit) as ended:
                build(words[0])([*words, "--bootstrap-server", cluster.bootstrap_servers])
            return ended.value.code, *capfd.readouterr()

        yield run


@pytest.mark.parametrize("end", [["--exit"], ["--until", "3"]])
def test_consume_reports_the_logs_offsets_if_the_given_offset_is_beyond_the_log(
    run: Run, end: list[str]
) -> None:
    words = ("consume", "--topic", "t", *end, "--offset")
    status, shown, told = run(*words, "6")
    assert (status, shown) == (1, "")
    assert "offset 6 of t-0 isn't in its log, which has offsets 0 to 5" in told
    status, shown, told = run(*words, "3", "--partition", "1")
    assert (status, shown) == (1, "")
    assert "offset 3 of t-1 isn't in its log, which has offsets 0 to 2" in told
    if end == ["--exit"]:
        assert run(*words, "2", "--partition", "1")[:2] == (0, "")  # partition 1 ends at offset 2
    assert run(*words, "5", "--partition", "0")[:2] == (0, "")


def test_a_copy_from_an_offset_beyond_the_log_is_rejected(run: Run) -> None:
    words = ("copy", "t", "d", "--create", "--from-command-property", "client.id=x")
    status, _, told = run(*words, "--offset", "3")
    assert status == 1
    assert "offset 3 of t-1 isn't in its log, which has offsets 0 to 2" in told
    status, _, told = run(*words, "--offset", "2")  # the rejected copy had stored no progress
    assert (status, "Copied 3 records" in told) == (0, True)
