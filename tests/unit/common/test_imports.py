"""Imports that are interrupted leave nothing held."""

from __future__ import annotations

import _imp
import dis
import importlib
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from odradek.common.imports import IMPORTLIB, loaded

BOOTSTRAP: Any = importlib.import_module("importlib._bootstrap")
LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
"""Behind these CPython looks for signals."""


class Interruption(BaseException):
    """What comes from outside."""


@cache
def looked_at(code: CodeType) -> frozenset[int]:
    found = set()
    before = ""
    for instruction in dis.get_instructions(code):
        if before in LOOKS:
            found.add(instruction.offset)
        before = instruction.opname
    return frozenset(found)


def interrupted(number: int, action: Callable[[], object]) -> tuple[int, BaseException | None]:
    """Raise at the n-th place in importlib; say how many there were, and what came out."""
    seen = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(IMPORTLIB):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in looked_at(frame.f_code):
            seen += 1
            if seen > number:
                sys.settrace(None)
                raise Interruption
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 looks at this only when a tracer is set
    sys.settrace(trace)
    try:
        action()
    except Interruption as error:
        return seen, error
    finally:
        sys.settrace(before)
    return seen, None


def owned(name: str) -> bool:
    """Whether somebody has the lock of a module."""
    found = BOOTSTRAP._module_locks.get(name)
    lock = None if found is None else found()
    return lock is not None and lock.owner is not None


def left_held(folder: Path, load: Callable[[str], object]) -> list[str]:
    """What is left held, by each place in importlib at which an import may be interrupted."""
    found = []
    for number in count():
        name = f"interrupted_{folder.name}_{number}"
        (folder / f"{name}.py").write_text("")
        importlib.invalidate_caches()
        seen, kept = interrupted(number, partial(load, name))
        if _imp.lock_held():
            found.append(f"{number}: the import lock")
            while _imp.lock_held():
                _imp.release_lock()
        if owned(name):
            found.append(f"{number}: {name}")
        sys.modules.pop(name, None)
        del kept  # what the program knows of it, with its frames
        if seen <= number:
            break
    assert number > 100
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "modules"
    where.mkdir()
    monkeypatch.syspath_prepend(str(where))
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of weakref callbacks
    return where


@pytest.mark.slow
def test_an_interrupted_import_leaves_no_lock_held(folder: Path) -> None:
    assert left_held(folder, loaded) == []


def test_an_import_statement_would(folder: Path) -> None:
    """What `loaded` is there for; when CPython has mended it, it isn't needed any more."""
    assert left_held(folder, importlib.import_module) != []


def test_what_is_not_there_is_said_as_an_import_does() -> None:
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            loaded("odradek.no_such_module")


def test_a_broken_package_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("import typer.core\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "typer", raising=False)
    monkeypatch.delitem(sys.modules, "typer.core", raising=False)
    monkeypatch.setattr("odradek.common.imports._loaded", set())
    with pytest.raises(ModuleNotFoundError, match=r"typer\.core"):
        loaded("typer")
