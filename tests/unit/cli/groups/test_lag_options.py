"""The options of `groups lag` that look again and again: what is refused before a look."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from odradek.cli import build


@pytest.mark.parametrize("again", [["--watch"], ["--prometheus", "127.0.0.1:0"]])
@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "1e12"])
def test_an_interval_that_no_clock_can_wait_for_is_refused(again: list[str], interval: str) -> None:
    """Longer ones ended the command after its first look, with a traceback."""
    words = ["groups", "lag", "g", *again, "--interval", interval, "--timeout", "0"]
    done = CliRunner().invoke(build("groups"), [*words, "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert "--interval" in done.output


@pytest.mark.parametrize("flag", ["--interval", "--count"])
def test_what_would_say_how_to_look_again_is_refused_where_one_look_is_taken(flag: str) -> None:
    words = ["groups", "lag", "g", flag, "2", "--timeout", "0"]
    done = CliRunner().invoke(build("groups"), [*words, "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert f"{flag} needs --watch or --prometheus" in done.output
