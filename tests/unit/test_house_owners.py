"""House rule: only the module that declares an object's attributes assigns to them.

Others call a method of it. A store `x.y = …` is foreign if no class of the same module declares
`y`, and `x` is neither `self` nor `cls` nor constructed in the same function.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from tests.source_trees import PACKAGE as ROOT
from tests.source_trees import parsed

GENERATED = ROOT / "protocol" / "messages"
KERNELS = ("record/kernel.py", "record/kernel_encode.py", "record/kernel_columns.py")
"""Modules with C structs, which can't have methods."""
ERRORS = frozenset({"__cause__", "__context__", "__traceback__"})
"""Attributes of exceptions that Python itself sets."""
EXCEPTIONS = {
    "clients/consumer/completed_fetch.py": "A record's position moves in lines that call "
    "nothing, so that no signal comes between it and the record.",
}
LEFT = {
    "cli": 1,
    "clients/calls": 4,
    "clients/consumer": 1,
    "clients/producer": 3,
    "common": 2,
    "runtime": 4,
    "simulation": 17,
    "spark": 1,
    "testing": 4,
}
"""Number of foreign stores that remain by package; it may only decrease. Others have none."""


def declared(tree: ast.Module) -> set[str]:
    """Return the attributes that the classes of a module declare."""
    found: set[str] = set()
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(kind):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Assign):
                names = [t.id for t in node.targets if isinstance(t, ast.Name)]
                found.update(names)
                if names == ["__slots__"]:
                    values = ast.walk(node.value)
                    found |= {str(v.value) for v in values if isinstance(v, ast.Constant)}
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                whose = node.value.id if isinstance(node.value, ast.Name) else ""
                found |= {node.attr} if whose == "self" else set()
    return found


def constructs(value: ast.expr | None) -> bool:
    """Return whether an expression constructs an object."""
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    if isinstance(called, ast.Subscript):
        called = called.value
    if isinstance(called, ast.Call):  # a call like type(error)(text)
        return isinstance(called.func, ast.Name) and called.func.id == "type"
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    return name == "__new__" or name.lstrip("_")[:1].isupper()


def made(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that a function binds only to objects that it constructs."""
    bound: dict[str, list[ast.expr | None]] = defaultdict(list)
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        bound[argument.arg].append(None)
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        value = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets = [node.optional_vars]
        for target in targets:
            if isinstance(target, ast.Name):
                bound[target.id].append(value)
            else:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                        bound[name.id].append(None)
    return {name for name, values in bound.items() if all(map(constructs, values))}


def foreign_stores(tree: ast.Module) -> Iterator[str]:
    """Return the stores of a module to attributes of objects that it doesn't own."""
    own = declared(tree) | ERRORS

    def visit(node: ast.AST, mine: set[str]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = mine
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = mine | made(child)
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store | ast.Del):
                base = child.value
                ours = isinstance(base, ast.Name) and base.id in mine
                if not ours and child.attr not in own:
                    yield f"line {child.lineno}: {ast.unparse(child)}"
            yield from visit(child, inner)

    return visit(tree, {"self", "cls"})


def room_of(name: str) -> str:
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "clients" else parts[0]


@pytest.mark.slow
def test_objects_are_only_changed_by_their_module() -> None:
    counts: Counter[str] = Counter()
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if path.is_relative_to(GENERATED) or name in KERNELS or name in EXCEPTIONS:
            continue
        stores = list(foreign_stores(parsed(path)))
        counts[room_of(name)] += len(stores)
        found[room_of(name)] += [f"{name}, {store}" for store in stores]
    too_many = {room: found[room] for room, n in counts.items() if n > LEFT.get(room, 0)}
    limits = {room: LEFT.get(room, 0) for room in too_many}
    assert too_many == {}, f"call a method of the owner instead of a store; limits: {limits}"


def test_each_listed_exception_is_still_needed() -> None:
    for name in EXCEPTIONS:
        assert list(foreign_stores(parsed(ROOT / name)))


def test_assignments_to_attributes_of_other_modules_objects_are_recognised() -> None:
    text = """
class Mine:
    __slots__ = ("slot",)
    annotated: int

    def __init__(self):
        self.plain = 1

def function(given, other):
    given.plain = given.slot = given.annotated = 1
    given.foreign = other.foreign.deeper = 2
    given.foreign += 1
    made = Other()
    made.foreign = 3
    made_or_given = Other()
    made_or_given = given
    made_or_given.foreign = 4
    del given.foreign
"""
    stores = [store.partition(": ")[2] for store in foreign_stores(ast.parse(text))]
    assert stores == [
        "given.foreign",
        "other.foreign.deeper",
        "given.foreign",
        "made_or_given.foreign",
        "given.foreign",
    ]
