"""Test files without an end, such as /dev/zero, and a home directory without write access."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_limits import HANG_S
from typer.testing import CliRunner

from odradek import cli
from odradek.cli.console.properties import UsageError
from odradek.cli.frame.passwords import read_password
from odradek.testing.errors import ClusterStartError
from odradek.testing.java import own_cache

SERVER = "--bootstrap-server localhost:1"


@pytest.mark.parametrize(
    "words",
    [
        f"groups reset-offsets g --from-file /dev/zero {SERVER}",
        f"partitions reassign --reassignment-json-file /dev/zero {SERVER}",
        f"topics list --command-config /dev/zero {SERVER}",
        f"consume --topic a --decode-value avro --value-schema /dev/zero {SERVER}",
        f"produce --topic a --reader-config /dev/zero {SERVER}",
        "pipeline plan /dev/zero",
    ],
)
def test_a_file_without_an_end_such_as_dev_zero_is_rejected(words: str) -> None:
    result = CliRunner().invoke(cli.build(words.split()[0]), words.split())
    assert result.exit_code == 2, result.output
    assert "/dev/zero" in result.stderr
    assert "has more than" in result.stderr


def test_a_password_file_without_an_end_such_as_dev_zero_is_rejected() -> None:
    with pytest.raises(UsageError, match="first line of /dev/zero has more than 4096 characters"):
        read_password("bob", Path("/dev/zero"), None, None)


@pytest.mark.parametrize("words", ["cluster start", "--install-completion"])
def test_the_error_for_an_unusable_home_directory_names_the_variable(
    tmp_path: Path, words: str
) -> None:
    home = tmp_path / "home"
    home.write_text("")  # a file: root may write to any directory
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    ran = subprocess.run(
        # Run by a shell, because completion is installed for the shell that started the command.
        ["bash", "-c", '"$@"; exit $?', "bash", sys.executable, "-m", "odradek", *words.split()],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert f"set HOME to a directory that can be written to (it is {home})" in ran.stderr


def test_a_cache_directory_that_cannot_be_created_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ClusterStartError, match="can't be created: .* Set XDG_CACHE_HOME"):
        own_cache()
