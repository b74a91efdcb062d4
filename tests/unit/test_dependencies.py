"""No version that pyproject.toml or an example permits has a known vulnerability."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MENDED = {
    "cryptography": ("50", "CVE-2026-69247"),
    "duckdb": ("1.4.2", "CVE-2025-64429"),
    "jupyterlab": ("4.4.8", "CVE-2025-59842"),
    "protobuf": ("6.33.5", "CVE-2026-0994"),
    "pyarrow": ("23.0.1", "CVE-2026-25087"),
    "setuptools": ("78.1.1", "CVE-2025-47273"),
    "starlette": ("0.49.1", "CVE-2025-62727"),
    "wheel": ("0.46.2", "CVE-2026-24049"),
}
"""The first version without a known vulnerability, and the vulnerability of earlier versions."""


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def required() -> dict[str, list[str]]:
    """Return the lowest versions that are permitted, by package."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = whole["project"]
    found: dict[str, list[str]] = {}
    groups = [whole["build-system"]["requires"], project["dependencies"]]
    groups += project["optional-dependencies"].values()
    files = [*ROOT.glob("examples/*/requirements.txt"), ROOT / "tools/dist_packages.in"]
    groups += [file.read_text().splitlines() for file in files]
    for line in (line for group in groups for line in group if not line.startswith("#")):
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*])?(?:[>=]=([0-9.]+))?", line)
        assert match is not None
        found.setdefault(match[1], []).append(match[2] or "0")
    return found


@pytest.mark.parametrize("package", MENDED)
def test_versions_with_known_vulnerabilities_are_not_permitted(package: str) -> None:
    least, weakness = MENDED[package]
    for version in required()[package]:
        assert numbers(version) >= numbers(least), weakness
    said = (ROOT / "SECURITY.md").read_text()
    assert f"`{package}` {least}: {weakness}" in said
