"""`make broken-bounds`: bounds checks in kernels are found by syntax, and disabled by number."""

import ast
import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
bounds = importlib.import_module("bounds")
break_bounds = importlib.import_module("break_bounds")
sys.path.remove(str(ROOT / "tools"))

SOURCE = """
import cython

prepare()

def read(at, end, sizes):
    total = 0
    if at >= end or not sizes:
        return -1
    if at < 0 or sizes[at] > end:
        raise ValueError(at)
    if not (0 <= at <= 9):
        return fail(at)
    if at > 5:
        total += 1
    return whole(at, end)

def whole(a, b):
    return a >= 0 and a <= b

def fail(at):
    return "failed"
"""


def run(number: int, *arguments: object) -> object:
    """Run the function `read` of `SOURCE` in Python, with one bounds check disabled."""
    found = dict(enumerate(bounds.find(SOURCE)))
    text = bounds.armed(SOURCE, found, "prepare()")
    cython = SimpleNamespace(declare=lambda kind, value: value, int=int)
    space = {"prepare": lambda: None, "cython": cython}
    before = os.environ.get(bounds.VARIABLE)
    os.environ[bounds.VARIABLE] = str(number)
    try:
        exec(text.replace("import cython\n", ""), space)  # noqa: S102 - our own text
    finally:
        if before is None:
            del os.environ[bounds.VARIABLE]
        else:
            os.environ[bounds.VARIABLE] = before
    return space["read"](*arguments)  # type: ignore[operator]


FOUND = {bound.name: number for number, bound in enumerate(bounds.find(SOURCE))}
VALUES = list(range(20))


def test_bounds_checks_in_source_code_are_found_and_other_conditions_are_not() -> None:
    assert set(FOUND) == {
        "read: at < 0",
        "read: at < 0 (by one)",
        "read: sizes[at] > end",
        "read: sizes[at] > end (by one)",
        "read: 0 <= at",
        "read: at <= 9",
        "whole: a >= 0",
        "whole: a >= 0 (by one)",
        "whole: a <= b",
        "whole: a <= b (by one)",
    }


def test_with_all_bounds_checks_enabled_functions_return_the_same_results() -> None:
    space: dict[str, object] = {"prepare": lambda: None, "cython": None}
    exec(SOURCE.replace("import cython\n", ""), space)  # noqa: S102
    plain = space["read"]
    for at in range(8):
        assert run(-1, at, 30, VALUES) == plain(at, 30, VALUES)  # type: ignore[operator]
    with pytest.raises(ValueError, match="-1"):
        run(-1, -1, 30, VALUES)


def test_a_disabled_bounds_check_rejects_no_values() -> None:
    assert run(FOUND["read: at < 0"], -1, 30, VALUES) == "failed"
    assert run(FOUND["read: at <= 9"], 12, 30, VALUES) is True
    assert run(FOUND["read: at <= 9"], -1 + 13, 30, VALUES) is True
    assert run(-1, 12, 30, VALUES) == "failed"


def test_a_bounds_check_can_be_weakened_by_one() -> None:
    values = [31, 32]
    with pytest.raises(ValueError, match="0"):
        run(-1, 0, 30, values)
    assert run(FOUND["read: sizes[at] > end (by one)"], 0, 30, values) is True
    with pytest.raises(ValueError, match="1"):
        run(FOUND["read: sizes[at] > end (by one)"], 1, 30, values)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", break_bounds.KERNELS)
def test_the_kernels_have_bounds_checks_that_can_be_disabled(kernel: str) -> None:
    source = (ROOT / "src/odradek/record" / f"{kernel}.py").read_text()
    for by_one in (False, True):
        chosen = break_bounds.checks(kernel, by_one=by_one)
        assert len(chosen) > 20
        text = bounds.armed(source, chosen, break_bounds.READY.partition("\n")[0])
        ast.parse(text)
        for number in chosen:
            assert f"BROKEN_BOUND == {number}" in text or f"BROKEN_BOUND != {number}" in text


def test_a_source_file_without_the_line_to_replace_is_an_error() -> None:
    with pytest.raises(LookupError, match="once"):
        bounds.armed(SOURCE, {}, "gone()")


@pytest.mark.slow
def test_the_bounds_checks_are_listed_and_unknown_arguments_are_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["break_bounds.py", "--list"])
    assert break_bounds.main() == 0
    assert len(capsys.readouterr().out.splitlines()) > 100
    monkeypatch.setattr(sys, "argv", ["break_bounds.py", "nosuchword"])
    with pytest.raises(SystemExit) as caught:
        break_bounds.main()
    assert caught.value.code == 2
