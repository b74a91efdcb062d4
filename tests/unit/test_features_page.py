"""Each "Y" of Odradek in docs/features.md names a test that runs, imports Odradek and asserts.

A name is a file or a function in one. It counts if pytest collects it, nothing skips it or allows
it to fail, its module (or a helper) imports Odradek, and it asserts something itself or through
functions of the tests.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split(" | ")]
    for line in (ROOT / "docs/features.md").read_text().splitlines()
    if re.match(r"\| [^|-]", line) and not line.startswith("| | ")
]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[-1])})
LETS_OFF = {"skip", "skipif", "xfail", "importorskip"}
CHECKS = {"raises", "warns", "assert_outcomes", "fail"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(tree: ast.AST) -> Iterator[str]:
    """Yield the last part of each name that is called or read, as "raises" of `pytest.raises`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


class Module:
    """A test module's syntax tree, with its functions and tests by name."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.functions = {
            node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)
        }
        holders: list[ast.Module | ast.ClassDef] = [self.tree]
        holders += [n for n in self.tree.body if isinstance(n, ast.ClassDef)]
        self.tests = {
            node.name: node
            for holder in holders
            for node in holder.body
            if isinstance(node, Function) and node.name.startswith("test_")
        }

    @cached_property
    def imports(self) -> set[str]:
        """Names of all imported modules."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
        return found

    @cached_property
    def skips_all(self) -> bool:
        """Whether a module-level mark skips all tests of the module."""
        outside = [n for n in self.tree.body if not isinstance(n, Function | ast.ClassDef)]
        return any(LETS_OFF & set(called(node)) for node in outside)

    @cached_property
    def known_functions(self) -> dict[str, Function]:
        """Return the functions of the module, and those of the helpers that it imports."""
        found: dict[str, Function] = {}
        for helper in helpers(self.imports):
            found |= helper.functions
        return found | self.functions

    def asserts(self, name: str) -> bool:
        """Return whether a function asserts something, itself or through functions of the tests."""
        seen: set[str] = set()
        coming = [name]
        while coming:
            function = self.known_functions.get(coming.pop())
            if function is None or function.name in seen:
                continue
            seen.add(function.name)
            names = set(called(function))
            if CHECKS & names or any(isinstance(n, ast.Assert) for n in ast.walk(function)):
                return True
            coming += names
        return False


def uses_odradek(imports: set[str]) -> bool:
    return any(name.split(".")[0] in ("odradek", "pyspark_odradek") for name in imports)


@cache
def module(path: Path) -> Module:
    return Module(path.read_text())


def helpers(imports: set[str]) -> Iterator[Module]:
    for name in imports:
        path = ROOT / (name.replace(".", "/") + ".py")
        if name.startswith("tests.") and path.is_file():
            yield module(path)


def problems(found: Module, test: str) -> list[str]:
    """Return the reasons why a test (or, without a name, a file of tests) proves nothing."""
    told = []
    imports = found.imports
    if not uses_odradek(imports) and not any(uses_odradek(m.imports) for m in helpers(imports)):
        told.append("doesn't import odradek")
    if found.skips_all:
        told.append("is skipped as a whole")
    if not found.tests:
        told.append("has no test")
    for name in [test] if test else found.tests:
        if name not in found.tests:
            told.append(f"has no {name} that pytest collects")
        elif LETS_OFF & set(called(found.tests[name])):
            told.append(f"{name} may be skipped or fail")
        elif not found.asserts(name):
            told.append(f"{name} checks nothing")
    return told


def test_each_supported_feature_names_a_test() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        assert len(row) in (9, 4), row  # rows about clients have 9 cells, about Spark 4
        assert re.findall(r"`([^`]+)`", row[-1]), row[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_tests_that_the_page_names_run_and_assert_something(name: str) -> None:
    path, _, test = name.partition("::")
    if path.endswith(".json"):  # a specification case has no test function
        assert json.loads((TESTS / path).read_text())
        assert list((TESTS / path).parents[1].glob("test_*.py"))
        return
    assert Path(path).name.startswith("test_")
    assert problems(module(TESTS / path), test) == []


GOOD = """
import pytest
from odradek import Producer
def check(x): assert x
class TestIt:
    def test_inside(self): check(Producer)
def test_one(): check(1)
def test_raises():
    with pytest.raises(KeyError): {}[0]
"""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("", ""), None),
        (("from odradek", "from elsewhere"), "doesn't import odradek"),
        (("def test_one", "@pytest.mark.skip\ndef test_one"), "may be skipped"),
        (("def test_one", "@pytest.mark.xfail(strict=True)\ndef test_one"), "may be skipped"),
        (("check(1)", "pytest.skip('no')"), "may be skipped"),
        (("import pytest", "import pytest\npytestmark = [pytest.mark.skip]"), "as a whole"),
        (("def test_one", "def one"), "has no test_one"),
        (("def test_one(): ", "def outer():\n  def test_one(): "), "has no test_one"),
        (("check(1)", "print(1)"), "checks nothing"),
    ],
)
def test_a_named_test_that_proves_nothing_is_reported(
    change: tuple[str, str], problem: str | None
) -> None:
    found = problems(Module(GOOD.replace(*change) if change[0] else GOOD), "test_one")
    assert (problem is None and found == []) or (problem is not None and problem in found[0])


def test_odradek_supports_each_feature_that_another_client_supports() -> None:
    for row in ROWS:
        if any(cell.startswith("Y") for cell in row[2:-1]):
            assert row[1].startswith("Y"), row[0]
