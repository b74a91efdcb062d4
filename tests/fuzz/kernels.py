"""The native modules as tests use them; without a compiler they are missing, and tests skipped."""

from __future__ import annotations

import importlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import odradek.record


def built(name: str) -> Any:
    """Return a native module, None if it isn't built, even if Python could import its source."""
    folder = Path(odradek.record.__file__).parent
    if not any((folder / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return None
    return importlib.import_module(f"odradek.record.{name}")


def native(name: str) -> Any:
    """Return a native module; skip the tests of the importing module if it isn't built."""
    found = built(name)
    if found is None:
        pytest.skip(f"not run: odradek.record.{name} isn't built", allow_module_level=True)
    return found
