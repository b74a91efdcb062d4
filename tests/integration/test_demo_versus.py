"""`odradek demo --versus` with whatever other client is installed (confluent-kafka at least)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cli.demo.versus.child import ReaderProcess
from odradek.cli.demo.versus.peers import OURS


@pytest.mark.long
@pytest.mark.timeout(600)
def test_readers_live_through_a_move(tmp_path: Path) -> None:
    output = tmp_path / "versus"
    command = [str(Path(sys.executable).with_name("odradek")), "demo", "--versus", "--json"]
    command += ["--brokers", "1", "--patience", "10", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == json.loads((output / "result.json").read_text())
    assert (result["lost"], result["duplicated"]) == (0, 0)
    assert result["rows_landed"] == result["rows_sent"] > 500
    ours, *others = result["readers"]
    assert ours["came_back"] is True
    assert 0 <= ours["back_after_s"] < 10
    assert ours["client"].startswith("odradek ")
    assert any(one["client"].startswith("confluent-kafka ") for one in others)
    for one in others:
        assert one["rows_read"] > 100
        assert one["client"] in done.stderr
    assert "the whole cluster goes away" in done.stderr
    assert "reads again" in done.stderr
    for name in result["not_installed"]:
        assert f"pip install {' '.join(result['not_installed'])}" in done.stderr, name
    assert "published rows not yet read" in (output / "demo.svg").read_text()


PLAIN = """
def read(bootstrap, topic, partitions, reporter):
    import logging, time
    for n in range(5):
        reporter.got(b'{"row": %d}' % n)
    logging.getLogger("some.client").warning("I can't reach %s", bootstrap)
    reporter.failed("a second complaint within a second")
    if bootstrap == "ends:1":
        raise ValueError("no more")
    while True:
        time.sleep(60)
"""


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str) -> ReaderProcess:
    (tmp_path / "plain_reader.py").write_text(PLAIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peer = replace(OURS, reader="plain_reader")
    return ReaderProcess(peer, bootstrap, tmp_path / "log", tmp_path)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_s_process_says_what_came_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(tmp_path, monkeypatch, "host:1")
    try:
        wait_for(lambda: child.heard.errors)
        assert [row for _, row in child.heard.rows] == [0, 1, 2, 3, 4]
        child.look()
        assert child.heard.ended is None
    finally:
        child.end()
    assert [text for _, text in child.heard.errors] == ["I can't reach host:1"]


def has_ended(child: ReaderProcess) -> bool:
    child.look()
    return child.heard.ended is not None


def test_a_reader_that_ends_by_itself_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(tmp_path, monkeypatch, "ends:1")
    try:
        wait_for(lambda: has_ended(child))
    finally:
        child.end()
    assert child.heard.ended is not None
    assert child.heard.ended[1] == "exit status 1: ValueError: no more"
