"""Syntax trees of the package that is imported, and of other files, for tests that read code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import odradek

PACKAGE = Path(odradek.__file__).parent
"""A broken copy, where `make broken-rules` runs the test."""


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file once, and keep its tree until the module of tests ends.

    So long the collector rests, until `forget`: it would walk over a million nodes again and again,
    for as long as the parsing takes and the reading.
    """
    gc.disable()
    return ast.parse(path.read_text(), str(path))


def forget() -> None:
    """Let go of all trees."""
    parsed.cache_clear()
    gc.enable()


def naming(*words: str) -> Iterator[Path]:
    """The package's files in which one of these stands: to parse them all takes ten times as long
    as to look.
    """
    for path in sorted(PACKAGE.parent.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield path
