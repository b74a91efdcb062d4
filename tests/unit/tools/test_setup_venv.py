"""`make setup` repairs an incomplete virtual environment, and prints pip's progress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.unit.tools.loading import load_tool

TOOL = Path(__file__).parents[3] / "tools" / "setup_venv.py"


@pytest.fixture
def setup_venv() -> ModuleType:
    return load_tool("setup_venv")


@pytest.mark.slow
def test_progress_of_pip_is_printed_every_few_seconds(
    setup_venv: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'Collecting a-package==1 (from -r x (line 1))'\nsleep 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(setup_venv, "PYTHON", pip)
    monkeypatch.setattr(setup_venv, "TELL_EVERY", 0.2)
    setup_venv.pip("install", "a-package")
    said = capsys.readouterr().out.splitlines()
    assert len(said) >= 3
    assert said[-1].startswith("setup:   … ")
    assert said[-1].endswith(" s: 1 packages, now: Collecting a-package==1")


def test_a_virtual_environment_whose_creation_failed_is_created_again(
    setup_venv: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The virtual environment already has a Python, but no pip."""
    found = tmp_path / "venv" / "bin" / "python"
    monkeypatch.setattr(setup_venv, "PYTHON", found)
    assert not setup_venv.has_pip()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", found.parents[1]], check=True)
    assert not setup_venv.has_pip()
    monkeypatch.setattr(setup_venv, "PYTHON", Path(sys.executable))
    assert setup_venv.has_pip()
