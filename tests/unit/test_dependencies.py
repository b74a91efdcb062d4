"""No version that pyproject.toml lets in has a published weakness that we know of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MENDED = {"cryptography": ("50", "CVE-2026-69247"), "pyarrow": ("23.0.1", "CVE-2026-25087")}
"""The first version without a known weakness, and the weakness before it."""


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def required() -> dict[str, list[str]]:
    """The lowest versions that are let in, wherever a package is named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = {}
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for line in (line for group in groups for line in group):
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*])?(?:[>=]=([0-9.]+))?", line)
        assert match is not None
        found.setdefault(match[1], []).append(match[2] or "0")
    return found


@pytest.mark.parametrize("package", MENDED)
def test_no_known_weakness_is_let_in(package: str) -> None:
    least, weakness = MENDED[package]
    for version in required()[package]:
        assert numbers(version) >= numbers(least), weakness
    said = (ROOT / "SECURITY.md").read_text()
    assert f"`{package}` {least}: {weakness}" in said
