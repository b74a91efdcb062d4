"""Test that `groups lag` rejects invalid values of --interval and --count before a request."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from odradek.cli import build


@pytest.mark.parametrize("again", [["--watch"], ["--prometheus", "127.0.0.1:0"]])
@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "1e12"])
def test_an_unusable_interval_is_rejected(again: list[str], interval: str) -> None:
    """An interval that is too long once caused a traceback after the first request."""
    words = ["groups", "lag", "g", *again, "--interval", interval, "--timeout", "0"]
    done = CliRunner().invoke(build("groups"), [*words, "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert "--interval" in done.output


@pytest.mark.parametrize("flag", ["--interval", "--count"])
def test_interval_and_count_need_a_flag_that_repeats_the_request(flag: str) -> None:
    words = ["groups", "lag", "g", flag, "2", "--timeout", "0"]
    done = CliRunner().invoke(build("groups"), [*words, "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert f"{flag} needs --watch or --prometheus" in done.output
