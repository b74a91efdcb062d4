"""Save the files of docs/start.md and run its lines in order, on simulated brokers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_readme import printed_port
from tests.time_limits import HANG_S

PAGE = (Path(__file__).parents[2] / "docs/start.md").read_text()
BIN = Path(sys.executable).parent
SAYS = {
    "topic": ["Created topic departures"],
    "send": ["0 of 300 records failed"],
    "read": ["300 records of 3 airports", "board"],
    "columns": ["300 rows"],
    "explain": ["all 3 brokers answer"],
    "test": ["1 passed"],
}
"""Parts of the output of each block's lines."""


def blocks(kind: str, language: str) -> dict[str, str]:
    pattern = rf"<!-- {kind}: ([\w.]+) -->\n```{language}\n(.*?)```"
    return dict(re.findall(pattern, PAGE, re.DOTALL))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Start the brokers as on the page, with the printed port if it is free."""
    line = blocks("start", "console")["cluster"].strip()
    command = [str(BIN / "odradek"), *line.split()[1:], "--port", str(printed_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            said = ""
            assert process.stdout is not None
            found = None
            while found is None and (said := process.stdout.readline()):
                found = re.search(r"(?:localhost|127\.0\.0\.1):(\d+)", said)
            assert found, said
            yield f"localhost:{found[1]}"
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=HANG_S)


def test_every_block_of_the_page_is_run() -> None:
    assert ["cluster", *SAYS] == list(blocks("start", "console"))
    assert PAGE.count("```python") == len(blocks("file", "python")) == 4
    assert PAGE.count("```console") == len(SAYS) + 2  # plus "cluster" and the install


def test_the_blocks_of_the_page_print_the_expected_output(address: str, tmp_path: Path) -> None:
    for name, text in blocks("file", "python").items():
        (tmp_path / name).write_text(text.replace("localhost:9092", address))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200"}
    for name, text in blocks("start", "console").items():
        if name == "cluster":
            continue
        done = subprocess.run(
            ["bash", "-ec", text.replace("localhost:9092", address)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        for words in SAYS[name]:
            assert words in done.stdout, done.stdout
