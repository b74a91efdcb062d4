"""Write docs/messages.md, every text that a user can see, by area: `tools/messages_page.py`.

The texts are collected from the sources: messages of errors and warnings, log messages, lines of
`explain()`, `health()`, the doctor and commands, and help. `{…}` contains the expression whose
value the message shows. A text that is a part of a longer message is listed separately.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "odradek"
PAGE = ROOT / "docs" / "messages.md"
AREAS = {
    "Doctor": ("cli/doctor", "clients/admin/examination", "clients/admin/reachability"),
    "Explain and health": ("cli/explain", "clients/explain"),
    "Command line": ("cli/",),
    "Compatibility with other clients": ("compat/",),
    "Spark": ("spark/",),
    "Serialization": ("serialization/",),
    "Testing": ("testing/",),
    "Simulation": ("simulation/",),
    "Monitoring": ("monitoring/", "clients/metrics", "clients/telemetry"),
    "Transactions": (
        "clients/producer/transaction",
        "clients/calls/transaction",
        "api/transactions",
    ),
    "Producer": ("clients/producer", "clients/calls/producer", "api/producer", "api/event"),
    "Groups": ("clients/consumer/group", "clients/workers", "api/group", "api/workers"),
    "Consumer": ("clients/consumer", "clients/calls/consumer", "api/consumer"),
    "Admin": ("clients/admin", "api/admin"),
    "Records": ("record/",),
    "Metadata": ("metadata/", "clients/missing_topics"),
    "Security": (
        "network/sasl",
        "runtime/credentials",
        "runtime/tls",
        "common/security",
        "common/options/security",
        "common/options/jaas",
        "common/secret",
    ),
    "Errors": ("common/errors",),
    "Options and arguments": ("common/options", "common/arguments", "common/config"),
    "Connections and clients": ("",),
}
"""Areas of the page, each with prefixes of its modules' paths; the first matching area counts."""
LEFT_OUT = ("protocol/messages/", "common/public_names.py", "simulation/")
BUT_FOR = ("simulation/faults/", "simulation/runs/schedule.py", "simulation/world/")
"""Simulation modules whose texts users see; the others simulate brokers or test our clients."""
BUGS = frozenset(("AssertionError", "UnplannedError"))
"""Errors that no user sees: they report bugs, or the replacement of an internal plan."""
CONTRACTS = frozenset(
    ("BufferError", "ImportError", "IndexError", "MemoryError", "NotImplementedError")
) | {"RuntimeError"}
KERNEL_CONTRACTS = CONTRACTS | {"TypeError", "ValueError"}
"""Python's errors that code below the public API raises if another module has called it wrongly."""
PUBLIC = ("api/", "cli/", "compat/", "serialization/", "spark/", "testing/")
KERNEL = ("record/kernel", "record/open_batches", "record/reference", "record/rows")
ERROR = re.compile(r"(?:Error|Exception|Warning|Exit|BadParameter|UsageError)$")
LOGGED = re.compile(
    r"^_?log(?:ger)?\.(debug|info|warning|error|exception|critical)$", re.IGNORECASE
)
PROSE = re.compile(r"(?:[A-Za-z'-]+[,;:.)]* +(?:\{.*?\}[,;:.)]* +)*){2}[A-Za-z'-]{2,}")
"""At least three words: a text that isn't an error, a log message or help is listed only then."""
SENTENCE = 8
"""Minimum number of words of a text fragment that is listed as a whole message."""
FORMAT = re.compile(r"%[.\d]*[sdrfgo]")
LETTER = re.compile("[A-Za-z]")
NO_PROSE = re.compile(
    r"<[a-z]|#!|(?:bold |dim )?(?:red|green|yellow|blue|cyan)$|(?:\w+ (?:double|string|long|int)\b)"
)
"""Texts that aren't prose: markup, scripts, a terminal's styles, and columns with their types."""
FILE = 3
"""Minimum number of line breaks of a literal that is the content of a file, not a message."""
COUNTS = ("counted", "number")
"""Functions that return a number with its noun, such as "1 record"."""
CODE = frozenset(
    (
        *("compile", "match", "fullmatch", "search", "sub", "split", "partition", "rpartition"),
        *("replace", "startswith", "endswith", "removeprefix", "removesuffix", "find", "count"),
        *("get", "pop", "setdefault", "getattr", "setattr", "hasattr", "cast", "encode"),
        *("where", "filter", "select", "expr", "strip"),
    )
)
"""Functions whose literal arguments are searched for, compared or run, and not shown to users."""
INTRODUCTION = """\
# Messages

Every text that a user can see, by area: messages of errors with their class, log messages with
their level, lines of `explain()`, `health()`, the doctor and commands, and help. `{…}` contains the
name of the value that is shown, `[…|…]` has one of two texts. A `part` is inserted into a longer
message, or is a table's cell; parts of one or two words aren't listed. `tools/messages_page.py`
writes this page.
"""


def area_of(path: str) -> str:
    """Return the area of a module by its path below src/odradek."""
    return next(name for name, begins in AREAS.items() if path.startswith(begins))


def text_of(node: ast.AST) -> str | None:
    """Return a literal's text, with `{name}` for each value; None if it isn't a text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "" for part in parts)
        case ast.FormattedValue(value=value):
            return placeholder(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = [text_of(side) for side in (left, right)]
            if any(found):
                sides = zip(found, (left, right), strict=True)
                return "".join(text or placeholder(side) for text, side in sides)
    return None


def placeholder(node: ast.expr) -> str:
    """Return the placeholder of a shown value: its name in braces, `[a|b]` for one of two texts."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            sides = [text_of(part) or placeholder(part) for part in (body, orelse)]
            return f"[{'|'.join(filter(None, sides))}]"
        case ast.Constant(value=value):
            return str(value or "")
        case ast.Call(func=ast.Name(id=name), args=args) if name in COUNTS:
            noun = text_of(args[-1]) if args[1:] else None
            return f"{{n}} {noun or 'record'}s"
        case ast.Call(func=ast.Name(id="len")) | ast.BinOp():
            return "{n}"
        case (
            ast.Call(func=ast.Name(), args=[inner])
            | ast.Call(func=ast.Attribute(value=ast.Constant()), args=[inner])
        ):
            return placeholder(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if hasattr(str, name):
            return placeholder(inner)
        case ast.Call(func=inner) | ast.Starred(value=inner) | ast.Subscript(value=inner):
            return placeholder(inner)
        case ast.GeneratorExp(generators=[loop]) | ast.ListComp(generators=[loop]):
            return placeholder(loop.iter)
        case ast.Attribute(attr="__name__"):
            return "{class}"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_')}}}"
        case _:
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
            return placeholder(names[0]) if names else "{…}"


def called(function: ast.expr) -> str:
    """Return the name of a call's function, with the name before its dot."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
        case ast.Attribute(attr=name):
            return f".{name}"
    return ""


def arguments(nodes: list[ast.expr]) -> Iterator[str]:
    """Yield a call's arguments as they are written, those of a starred tuple one by one."""
    for node in nodes:
        match node:
            case ast.Starred(value=ast.Tuple(elts=elements)):
                yield from arguments(elements)
            case _:
                yield text_of(node) or placeholder(node)


def no_literals(nodes: list[ast.expr]) -> list[ast.expr]:
    """Return the expressions among a call's arguments that aren't texts or collections of texts."""

    def literal(node: ast.expr) -> bool:
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return all(map(literal, elements))
            case _:
                return isinstance(node, ast.Constant)

    return [node for node in nodes if not literal(node)]


class Texts(ast.NodeVisitor):
    """Collect a module's texts with their kinds: an error's class, a log level, help, a part."""

    def __init__(self, path: str = "") -> None:
        """Set the module's path: in modules of the command line, docstrings count, too."""
        self._commands = path.startswith("cli/")
        self._bugs = BUGS
        if path.startswith(KERNEL):
            self._bugs |= KERNEL_CONTRACTS
        elif not path.startswith(PUBLIC):
            self._bugs |= CONTRACTS
        self.found: list[tuple[str, str]] = []
        self._kind = ""

    def _add(self, raw: str, kind: str) -> None:
        text = " ".join(raw.split())
        if kind in self._bugs or not (LETTER if kind else PROSE).search(text):
            return
        if kind == "":
            if NO_PROSE.match(text) or raw.count("\n") >= FILE:
                return
            whole = text[0].isupper() and text.endswith((".", "?", "!"))
            kind = "" if whole or len(text.split()) >= SENTENCE else "part"
        self.found.append((kind, text))

    def _body(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if self._commands and any("command" in ast.unparse(d) for d in node.decorator_list):
            self._add((ast.get_docstring(node) or "").partition("\f")[0], "help")
        self.generic_visit(node)

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _body  # noqa: N815

    def visit_Expr(self, node: ast.Expr) -> None:
        """Skip docstrings."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Use the error or log level as the kind of the texts among a call's arguments."""
        name = called(node.func)
        logged = LOGGED.match(name)
        outer = self._kind
        if logged:
            self._kind = f"log {logged[1]}"
            text = text_of(node.args[0]) or ""
            for value in arguments(node.args[1:]):
                text = FORMAT.sub(value.replace("\\", r"\\"), text, count=1)
            self._add(text, self._kind)
            self._kind = ""
            self.visit_all(node.args[1:])
        else:
            function = name.rpartition(".")[2]
            self._kind = function if ERROR.search(name) else ""
            self.visit(node.func)
            if function in CODE:
                self.visit_all(no_literals(node.args))
                self._kind = outer
                return
            for keyword in node.keywords:
                if keyword.arg == "help" and (shown := text_of(keyword.value)):
                    self._add(shown, "help")
                else:
                    self.visit(keyword.value)
            self.visit_all(node.args)
        self._kind = outer

    def visit_Compare(self, node: ast.Compare) -> None:
        """Skip the texts with which values are compared."""
        self.visit_all(no_literals([node.left, *node.comparators]))

    def visit_Dict(self, node: ast.Dict) -> None:
        """Skip the keys of a dictionary."""
        self.visit_all(node.values)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Skip the keys of a lookup."""
        self.visit_all(no_literals([node.value, node.slice]))

    def visit_match_case(self, node: ast.match_case) -> None:
        """Skip the patterns of a match statement."""
        self.visit_all([*([node.guard] if node.guard else []), *node.body])

    def visit_all(self, nodes: Sequence[ast.AST]) -> None:
        """Visit nodes one by one."""
        for node in nodes:
            self.visit(node)

    def visit(self, node: ast.AST) -> None:
        """Collect a text as a whole, with placeholders for the values in it."""
        if (text := text_of(node)) is not None:
            self._add(text, self._kind)
        else:
            super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Skip annotations, except those that contain the help of a command's option."""
        self.visit_arg(node)
        if node.value:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg | ast.AnnAssign) -> None:
        """Visit the annotation of a command's option, which contains its help."""
        if self._commands and node.annotation and "help=" in ast.unparse(node.annotation):
            self.visit(node.annotation)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules whose texts users see, by path below src/odradek."""
    for file in sorted(SOURCES.rglob("*.py")):
        path = file.relative_to(SOURCES).as_posix()
        if not path.startswith(LEFT_OUT) or path.startswith(BUT_FOR):
            yield path, ast.parse(file.read_text())


@cache
def by_area() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return each area's texts with their kinds, by module."""
    found: dict[str, dict[str, list[tuple[str, str]]]] = defaultdict(dict)
    for path, tree in modules():
        texts = Texts(path)
        texts.visit(tree)
        area = found[area_of(path)]
        before = {text for listed in area.values() for text in listed}
        if new := [text for text in dict.fromkeys(texts.found) if text not in before]:
            area[path] = new
    return found


def page() -> str:
    """Return the page with the sources' present texts."""
    found = by_area()
    lines = [INTRODUCTION]
    for area in AREAS:
        if area not in found:
            continue
        lines += [f"## {area}", "", "```text"]
        for path, texts in found[area].items():
            lines.append(f"# {path}")
            lines += [f"{kind}: {text}" if kind else text for kind, text in texts]
        lines += ["```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name}: {sum(len(t) for a in by_area().values() for t in a.values())} texts")
