"""The house rules of the facades and of the caller's halves that they carry out.

A second facade (asyncio's) has to differ in how it waits, and in nothing else: so a facade decides
nothing, and what decides knows neither clocks nor threads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.source_trees import PACKAGE, parsed

MOST_STATEMENTS = 3
Function = ast.FunctionDef | ast.AsyncFunctionDef
WAITS = {"now", "monotonic", "run", "drive", "sleep", "acquire", "get_ident"}
"""Names of methods that read a clock, wait, or ask for a thread."""


def modules(room: str) -> dict[str, ast.Module]:
    found = {path.name: parsed(path) for path in sorted((PACKAGE / room).glob("*.py"))}
    assert len(found) > 5
    return found


def functions(room: str) -> Iterator[tuple[str, Function]]:
    for name, tree in modules(room).items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{name}: {node.name}", node


def statements(function: Function) -> int:
    """All that are in it, at any depth; not its docstring, and no import."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    inside = [node for statement in body for node in ast.walk(statement)]
    return sum(
        isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
        for node in inside
    )


def foreign_stores(function: Function) -> Iterator[str]:
    """What it stores to that isn't an attribute of its own object."""
    for node in ast.walk(function):
        stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if isinstance(node, ast.Attribute):
            foreign = stored and ast.unparse(node.value) != "self"
        elif isinstance(node, ast.Subscript):
            foreign = stored and "." in ast.unparse(node.value)
        else:
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            foreign = called in ("setattr", "delattr")
        if foreign:
            yield ast.unparse(node)


def test_facades_decide_nothing() -> None:
    long = {name: statements(node) for name, node in functions("api")}
    assert {name: count for name, count in long.items() if count > MOST_STATEMENTS} == {}


def test_facades_store_nothing_in_what_is_not_theirs() -> None:
    found = {name: list(foreign_stores(node)) for name, node in functions("api")}
    assert {name: stores for name, stores in found.items() if stores} == {}


def test_callers_halves_know_neither_clocks_nor_threads() -> None:
    found = {
        f"{name}: {ast.unparse(node)}"
        for name, tree in modules("clients/calls").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WAITS
    }
    assert found == set()
