"""Find the bound checks of the kernels, and write sources in which each can be disabled.

In: a kernel's source. Out: its checks, and a source in which each check has a number: a kernel
built from it skips the check whose number is in ODRADEK_BROKEN_BOUND. So one build is enough to try
all checks.

A check is a condition that leads to a failure, a return or more memory: `if length > end - at:
return self.fail(...)`, `if size > capacity: grow(...)`, the conditions in the `return` of a
predicate, and the size argument of a copy in large steps. Each operand of `or` and `and` is a check
of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

VARIABLE = "ODRADEK_BROKEN_BOUND"
_FLAG = "BROKEN_BOUND"
_REFUSES = re.compile(
    r"\bfail\(|\braise\b|error\[0\] = |grow\(|\bodd = True|\bkeep = False"
    r"|\breturn (cython\.NULL|False|BAD\w*|RAN_OUT|FINISHED|GROW|BATCH|index|None|0)$",
    re.MULTILINE,
)
LIMITED = {"records"}
"""Functions in which each argument of `min` is a bound check, too."""


@dataclass(frozen=True)
class Bound:
    """One bound check: its position, its text, and the code that disables it."""

    line: int
    function: str
    text: str
    by_one: bool
    """Whether the check is weakened by one instead of being disabled completely."""
    start: int
    stop: int
    new: str
    """Code that replaces the check; `{number}` is the check's number."""

    @property
    def name(self) -> str:
        """Name of the check in lists and on the command line."""
        return f"{self.function}: {self.text}{' (by one)' if self.by_one else ''}"


class _Finder(ast.NodeVisitor):
    """Collects the bound checks of a kernel's source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[Bound] = []
        self._function = ""
        starts = [0]
        for line in source.encode().splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._function = self._function, node.name
        self.generic_visit(node)
        self._function = outer

    def visit_If(self, node: ast.If) -> None:
        if _refuses(node.body):
            self._check(node.test, let_go=False)
        elif _refuses(node.orelse) or _is_refusing_elif(node.orelse):
            self._check(node.test, let_go=True)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.BoolOp) or (
            isinstance(node.value, ast.Compare) and len(node.value.ops) > 1
        ):
            self._check(node.value, let_go=True)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "copy_near":
            self._check(node.args[-1], let_go=True)
        elif name == "min" and self._function in LIMITED:
            self._limits(node)
            return
        self.generic_visit(node)

    def _limits(self, node: ast.Call) -> None:
        """Note one check for each argument of a call of `min`."""
        limits = list(_limits(node))
        for limit in limits:
            rest = [self._text(other) for other in limits if other is not limit]
            new = rest[0]
            for other in rest[1:]:
                new = f"min({new}, {other})"
            self._note(node, f"min(…, {self._text(limit)})", new, by_one=False)

    def _check(self, test: ast.expr, *, let_go: bool) -> None:
        """Note the operands of a condition that can be forced to be true (`let_go`) or false."""
        # A name may be a pointer, which can't be an operand of `or`: so keep the `not` before it.
        if isinstance(test, ast.UnaryOp) and not isinstance(test.operand, ast.Name):
            self._check(test.operand, let_go=not let_go)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == let_go:
            for operand in test.values:
                self._check(operand, let_go=let_go)
        elif isinstance(test, ast.Compare) and len(test.ops) > 1 and let_go:
            self._chain(test)
        else:
            old = self._text(test)
            if isinstance(test, ast.BinOp):  # `or` needs booleans
                old = f"({old}) != 0"
            way = "== {number} or" if let_go else "!= {number} and"
            self._note(test, old, f"({_FLAG} {way} ({old}))", by_one=False)
            if isinstance(test, ast.Compare) and len(test.ops) == 1:
                self._weaker(test, let_go=let_go)

    def _chain(self, test: ast.Compare) -> None:
        """Note a check for each comparison of a chain such as `a <= b <= c`."""
        sides = [self._text(side) for side in (test.left, *test.comparators)]
        operators = [_OPERATORS[type(one)] for one in test.ops]
        links = [
            f"{a} {operator} {b}"
            for a, operator, b in zip(sides, operators, sides[1:], strict=False)
        ]
        for index, link in enumerate(links):
            parts = [f"({one})" for one in links]
            parts[index] = f"({_FLAG} == {{number}} or ({link}))"
            whole = f"({' and '.join(parts)})"
            self._note(test, link, whole, by_one=False)

    def _weaker(self, test: ast.Compare, *, let_go: bool) -> None:
        kind = type(test.ops[0])
        if kind not in (ast.Lt, ast.LtE, ast.Gt, ast.GtE):
            return
        sign = "+" if (kind in (ast.Lt, ast.LtE)) == let_go else "-"
        left, right = self._text(test.left), self._text(test.comparators[0])
        new = f"({left} {_OPERATORS[kind]} ({right}) {sign} ({_FLAG} == {{number}}))"
        self._note(test, self._text(test), new, by_one=True)

    def _note(self, node: ast.expr, text: str, new: str, *, by_one: bool) -> None:
        text = " ".join(text.split())
        start, stop = self._span(node)
        self.found.append(
            Bound(node.lineno, self._function, text, by_one, start, stop, " ".join(new.split()))
        )

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None  # noqa: S101 - ast promises it
        assert node.end_col_offset is not None  # noqa: S101
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        start, stop = self._span(node)
        return self.source.encode()[start:stop].decode()


_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def _refuses(body: list[ast.stmt]) -> bool:
    """Return whether a statement (without nested ones) fails, returns or allocates more memory."""
    plain = (one.test if isinstance(one, ast.If) else one for one in body)
    return any(_REFUSES.search(ast.unparse(one)) for one in plain if not isinstance(one, ast.For))


def _is_refusing_elif(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.If) and _refuses(body[0].body)


def _limits(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the operands of nested `min` calls."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "min":
        for argument in node.args:
            yield from _limits(argument)
    else:
        yield node


def find(source: str) -> list[Bound]:
    """Return all checks in a kernel's source, in the order of their positions."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found), key=lambda bound: (bound.start, bound.stop, bound.by_one))


def armed(source: str, bounds: dict[int, Bound], after: str) -> str:
    """Return the source with code that disables one check, chosen by its number at run time.

    The number is read after the line `after`. Code for nested checks is nested.
    """
    places: dict[tuple[int, int], list[tuple[int, Bound]]] = {}
    for number, bound in bounds.items():
        places.setdefault((bound.start, bound.stop), []).append((number, bound))
    data = source.encode()
    for (start, stop), here in sorted(places.items(), reverse=True):
        text = f"({data[start:stop].decode()})"
        for number, bound in here:
            if bound.by_one or len(here) > 1:
                text = f"({bound.new.format(number=number)} if {_FLAG} == {number} else {text})"
            else:
                text = bound.new.format(number=number)
        data = data[:start] + text.encode() + data[stop:]
    found = data.decode()
    if found.count(after) != 1:
        raise LookupError(f"the kernel doesn't hold {after!r} once")
    read = f'{_FLAG} = cython.declare(cython.int, int(_os.environ.get("{VARIABLE}", "-1")))'
    return found.replace(after, f"{after}\nimport os as _os\n\n{read}\n", 1)
