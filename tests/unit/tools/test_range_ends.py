"""The environments with the lowest and the newest versions of dependencies: their contents."""

from __future__ import annotations

import platform
import tomllib
import venv
from pathlib import Path

import pytest
from tests.unit.tools.loading import load_tool

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
range_ends = load_tool("range_ends")


@pytest.mark.parametrize("end", ["lowest", "newest"])
def test_all_dependencies_of_users_are_installed_within_the_declared_ranges(end: str) -> None:
    asked = range_ends.requirements(PROJECT, end)
    extras = PROJECT["optional-dependencies"]
    groups = [PROJECT["dependencies"], *(extras[name] for name in extras if name != "dev")]
    users = {line for group in groups for line in group if not line.startswith("odradek[")}
    assert users - set(asked) == {"gssapi>=1.9"}
    # pyspark is the only package that is listed twice.
    assert len({range_ends.name_of(line) for line in asked}) == len(asked) - 1


def test_test_dependencies_are_pinned_in_the_lowest_environment() -> None:
    lowest = range_ends.requirements(PROJECT, "lowest")
    assert any(line.startswith("pytest==") for line in lowest)
    assert any(line.startswith("pyright[nodejs]==") for line in lowest)
    assert "fastapi>=0.115" in lowest
    assert "botocore>=1.35" in lowest
    assert not any(line.startswith(("botocore==", "ziglang")) for line in lowest)
    newest = range_ends.requirements(PROJECT, "newest")
    assert "pytest>=8.3" in newest
    assert "aiokafka==0.14.0" in newest


def test_a_lower_bound_that_another_requirement_raises_is_reported() -> None:
    users = ["a>=1.2", "b[c]>=3,<4", "d==0.3; os_name == 'nt'", "e>=2"]
    pins = {"a": "a==1.2.0", "b": "b==3.1", "e": "e==2.0.0"}
    assert range_ends.untested(users, pins) == ["b[c]>=3,<4 (b==3.1)"]


def test_a_virtual_environment_of_another_python_is_recognized(tmp_path: Path) -> None:
    assert not range_ends.is_of_this_python(tmp_path)
    venv.create(tmp_path, symlinks=True)
    assert range_ends.is_of_this_python(tmp_path)
    config = tmp_path / "pyvenv.cfg"
    config.write_text(config.read_text().replace(f" {platform.python_version()}\n", " 3.10.1\n"))
    assert not range_ends.is_of_this_python(tmp_path)
