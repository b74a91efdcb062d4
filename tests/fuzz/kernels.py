"""The native kernels as tests take them; without a compiler there is none, and nothing to test."""

from __future__ import annotations

import importlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import odradek.record


def built(name: str) -> Any:
    """A kernel, None where it isn't built: the source, which Python would take then, isn't one."""
    folder = Path(odradek.record.__file__).parent
    if not any((folder / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return None
    return importlib.import_module(f"odradek.record.{name}")


def native(name: str) -> Any:
    """A kernel; the tests of the module that asks aren't run where it isn't built."""
    found = built(name)
    if found is None:
        pytest.skip(f"not run: odradek.record.{name} isn't built", allow_module_level=True)
    return found
