"""House rules for the public client classes (`api`) and the calls they run (`clients/calls`).

The sync and asyncio facades may differ only in how they wait. So a facade decides nothing, and the
code that decides uses neither clocks nor threads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.source_trees import PACKAGE, parsed

MOST_STATEMENTS = 3
Function = ast.FunctionDef | ast.AsyncFunctionDef
WAITS = {"now", "monotonic", "run", "drive", "sleep", "acquire", "get_ident"}
"""Names of methods that read a clock, wait, or identify a thread."""


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
    """Count the statements of a function at any depth, without its docstring and imports."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    inside = [node for statement in body for node in ast.walk(statement)]
    return sum(
        isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
        for node in inside
    )


def foreign_stores(function: Function) -> Iterator[str]:
    """Yield assignments to anything but an attribute of the function's own object."""
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


def test_methods_of_public_clients_have_few_statements() -> None:
    long = {name: statements(node) for name, node in functions("api")}
    assert {name: count for name, count in long.items() if count > MOST_STATEMENTS} == {}


def test_methods_of_public_clients_set_only_attributes_of_self() -> None:
    found = {name: list(foreign_stores(node)) for name, node in functions("api")}
    assert {name: stores for name, stores in found.items() if stores} == {}


def test_modules_of_client_calls_use_neither_clocks_nor_threads() -> None:
    found = {
        f"{name}: {ast.unparse(node)}"
        for name, tree in modules("clients/calls").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WAITS
    }
    assert found == set()
