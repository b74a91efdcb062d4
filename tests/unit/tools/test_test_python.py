"""`make test-python`: which Python interpreter it uses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.tools.loading import load_tool

test_python = load_tool("test_python")
HERE = "{}.{}".format(*sys.version_info)


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_path_to_an_interpreter_is_used_unchanged() -> None:
    found, version = test_python.find(sys.executable)
    assert found == sys.executable
    assert version.rstrip("t") == HERE


def test_an_interpreter_of_pyenv_is_found_even_if_pyenvs_shim_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "python3.99", "exit 127")
    theirs = program(tmp_path / "pyenv/versions/3.99.1/bin/python3.99", "echo 3.99")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert test_python.find("3.99") == (theirs, "3.99")


def test_uv_installs_a_missing_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = program(tmp_path / "python", "echo 3.99t")
    asked = program(tmp_path / "uv", f'echo "$@" >> {tmp_path}/asked; echo {fetched}')
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(test_python, "uv_command", lambda: [asked])
    assert test_python.find("3.99t") == (fetched, "3.99t")
    assert (tmp_path / "asked").read_text().splitlines() == [
        "python install 3.99t",
        "python find --managed-python 3.99t",
    ]
