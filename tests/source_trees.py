"""Parse the imported package and other files, for tests that read code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import odradek

PACKAGE = Path(odradek.__file__).parent
"""Folder of the package; with `make broken-rules`, of its mutated copy."""


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file once, and keep its tree until the end of the test module.

    The garbage collector is disabled until `forget`: going through a million nodes again and again
    would take as long as the parsing and the tests.
    """
    gc.disable()
    return ast.parse(path.read_text(), str(path))


def forget() -> None:
    """Drop all trees."""
    parsed.cache_clear()
    gc.enable()


def naming(*words: str) -> Iterator[Path]:
    """Yield the package's files that contain one of these words.

    Searching a file's text takes a tenth of the time of parsing it.
    """
    for path in sorted(PACKAGE.parent.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield path
