"""Test output of commands to a full disk, a closed pipe, a closed or non-blocking stream."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.volume import pairs, some

import odradek.__main__ as entry
from odradek import cli
from odradek.cli.console.consume import _Stdout
from odradek.testing import FakeCluster

RUN = "from odradek.cli import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize("words", some([["version"], ["--help"]], 1))
def test_a_full_disk_is_reported_on_one_line_with_status_1(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", RUN, *words], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.endswith("output can't be written: No space left on device")


NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout", "0.1")


@pytest.mark.slow
def test_an_option_without_effect_is_reported_on_stderr() -> None:
    """Of the clients' log, commands print only the warnings about options."""
    words = ["topics", "list", "--json", "--command-property", "linger.ms=5", *NOWHERE]
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, check=False)
    assert done.returncode == 1
    first = done.stderr.decode().splitlines()[0]
    assert first == "linger.ms has no effect on an admin, only on producers"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status"),
    some(
        [
            (["version"], 0),
            (["options"], 0),
            (["--version"], 0),
            (["simulate", "recovery", "--help"], 0),
            (["cluster", "start", "--brokers", "0"], 2),
            (["doctor", "127.0.0.1:1", "--timeout", "0.1"], 11),
            (["explain", "127.0.0.1:1", "--timeout", "0.1", "--json"], 1),
            (["topics", "list", "--json", *NOWHERE], 1),
            (["topics", "describe", "/", "--json", *NOWHERE], 1),
        ],
        3,
    ),
)
def test_a_closed_pipe_does_not_change_the_exit_status(words: list[str], status: int) -> None:
    """Simulate `odradek ... | head`, which closes the pipe early."""

    def run(stdout: int) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", RUN, *words]
        return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)

    reader, writer = os.pipe()
    os.close(reader)
    done = run(writer)
    os.close(writer)
    read = run(subprocess.DEVNULL)
    assert done.stderr.partition(b"\n")[0] == read.stderr.partition(b"\n")[0]
    assert (done.returncode, read.returncode) == (status, status)


def test_a_non_blocking_output_gets_every_byte_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    given = b"".join(b"%d\n" % n for n in range(200_000))
    taken: list[bytes] = []

    def read() -> None:
        while piece := os.read(reader, 5000):
            taken.append(piece)

    with os.fdopen(writer, "wb", buffering=0) as output:
        monkeypatch.setattr(sys, "stdout", output)
        stdout = _Stdout()
        thread = threading.Thread(target=read)
        thread.start()
        stdout.write(given)
    thread.join()
    os.close(reader)
    assert b"".join(taken) == given


@pytest.mark.slow
def test_a_command_without_stdout_succeeds() -> None:
    """Simulate `odradek version >&-`, with which the shell closes stdout."""
    without = f"import sys; sys.stdout = None\n{RUN}"
    done = subprocess.run(
        [sys.executable, "-c", without, "version"], stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "words"),
    pairs(
        [">&-", "<&-", "2>&-", "<&- >&- 2>&-"],
        [["topics", "list"], ["consume", "--topic", "t", "--exit"]],
    ),
)
def test_a_command_works_with_streams_that_the_shell_closed(words: list[str], closed: str) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", RUN, *words],
            env={**os.environ, "ODRADEK_BOOTSTRAP_SERVER": cluster.bootstrap_servers},
            capture_output=True,
            check=False,
        )
    said = "Processed a total of 0 messages\n" if words[0] == "consume" else ""
    assert (done.returncode, done.stderr.decode()) == (0, "" if "2>&-" in closed else said)


def test_ctrl_c_while_the_command_line_is_imported_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_names: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "require_extra", interrupted)
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == cli.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_a_command_is_imported_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(wanted: str | None) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build", interrupted)
    monkeypatch.setattr(sys, "argv", ["odradek", "consume"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == cli.INTERRUPTED
    assert capsys.readouterr().err == ""
