"""Run the console lines of README and guide as printed; Spark's are in tests/spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest
from tests.integration.test_readme import PAGES, PRINTED, printed_port
from tests.time_limits import HANG_S

BIN = Path(sys.executable).parent
START = ".venv/bin/odradek cluster start"
STOP = ".venv/bin/odradek cluster stop"
TOPICS = ".venv/bin/odradek topics create flights counts --partitions 3 --if-not-exists"
PRODUCE = "printf 'JFK\\nLGA\\n' | .venv/bin/odradek produce"
CONSUME = ".venv/bin/odradek consume"
SHORTER = {
    "--strategy odradek,java": "--strategy odradek,java --runs 3",
    "--clients 100": "--clients 4",
}
"""Smaller arguments for lines that take minutes."""
SAYS = {
    ".venv/bin/odradek demo --simulated": "timeline and picture: ",
    TOPICS: "Created topic flights",
    ".venv/bin/odradek explain": "all 3 brokers answer",
    ".venv/bin/odradek topics list": "flights",
    ".venv/bin/odradek broker-api-versions": "Produce(0)",
    ".venv/bin/odradek simulate recovery": "java",
    ".venv/bin/odradek simulate fleet": "policy",
    ".venv/bin/odradek events tables --help": "Usage",
    ".venv/bin/odradek topics create orders": "Created topic large-orders",
    PRODUCE: "",
}
"""A part of the output, by the beginning of the line."""
ELSEWHERE = {
    "python3 -m venv": "make dist-check, with wheels",
    "make test": "this is it",
    "make demo": "tests/spark/test_demo.py",
    "export KAFKA": "tests/spark/test_readme_spark.py",
    ".venv/bin/odradek pipeline plan": "tests/spark/test_readme_spark.py",
    ".venv/bin/odradek pipeline run": "tests/spark/test_readme_spark.py",
}


def console_lines() -> list[str]:
    """Return the lines to type on the pages, each once, without comments."""
    text = "\n".join(page.read_text() for page in PAGES)
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(re.sub(r"\s{2,}#.*$", "", line) for line in lines))


def test_every_console_line_of_the_pages_is_run_by_a_test() -> None:
    known = (START, STOP, CONSUME, *SAYS, *ELSEWHERE)
    assert [line for line in console_lines() if not line.startswith(known)] == []
    assert [one for one in known if not any(x.startswith(one) for x in console_lines())] == []


class Shell:
    """Run lines with the printed paths and addresses replaced by the real ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = PRINTED
        self._environment = {**os.environ, "XDG_STATE_HOME": str(folder), "COLUMNS": "200"}

    def start(self, line: str) -> subprocess.Popen[str]:
        text = line.replace(".venv/bin/", f"{BIN}/").replace(PRINTED, self.address)
        return subprocess.Popen(
            ["bash", "-c", text.replace(f"{BIN}/odradek consume", f"exec {BIN}/odradek consume")],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, line: str) -> str:
        with self.start(line) as process:
            try:
                out, err = process.communicate(timeout=HANG_S)
            finally:
                process.kill()
        assert process.returncode == 0, f"{line}\n{out}\n{err}"
        return out


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.run(STOP)


@pytest.mark.long  # shorter tests: test_cluster_command.py, test_console.py
@pytest.mark.timeout(600)
def test_console_lines_print_the_output_that_the_pages_show(shell: Shell) -> None:
    lines = console_lines()
    port = printed_port()
    started = shell.run(START if port else f"{START} --port 0")
    found = re.search(r"bootstrap servers\s+(\S+)", started)
    assert found is not None
    shell.address = found[1] if not port else PRINTED
    for line in lines:
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        words = next((SAYS[one] for one in SAYS if line.startswith(one)), None)
        if words is not None:
            assert words in shell.run(line), line
        elif line.startswith(CONSUME):
            with shell.start(line) as process:
                out = cast("IO[str]", process.stdout)
                assert sorted([out.readline(), out.readline()]) == ["JFK\n", "LGA\n"]
                process.send_signal(signal.SIGINT)
                assert process.wait(60.0) == 130
    assert shell.run(STOP).startswith("stopped the cluster at ")
