"""Write docs/messages.md, every text that a user can see, by area: `tools/messages_page.py`.

The texts are collected from the sources: messages of errors and warnings, log messages, lines of
`explain()`, `health()`, the doctor and commands, and help. `{…}` contains the expression whose
value the message shows. A text that is a part of a longer message is listed on its own.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial
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
"""Areas, and how the paths of their modules begin; a module belongs to the first that fits."""
LEFT_OUT = ("protocol/messages/", "common/public_names.py")
ERROR = re.compile(r"(?:Error|Exception|Warning|Exit|BadParameter|UsageError)$")
LOGGED = re.compile(
    r"^_?log(?:ger)?\.(debug|info|warning|error|exception|critical)$", re.IGNORECASE
)
PROSE = re.compile(r"(?!bold )(?:[A-Za-z']+[,;:.]? +(?:\{.*?\} +)?){2}|[a-z]{2,} [a-z]{2,}")
"""At least two words; a text that is neither an error nor a log message nor help needs them."""
FORMAT = re.compile(r"%[.\d]*[sdrfgo]")
LETTER = re.compile("[A-Za-z]")
INTRODUCTION = """\
# Messages

Every text that a user can see, by area: messages of errors with their class, log messages with
their level, lines of `explain()`, `health()`, the doctor and commands, and help. `{…}` contains the
expression whose value is shown; a part of a longer message has its own line.
`tools/messages_page.py` writes this page.
"""


def area_of(path: str) -> str:
    """Return the area of a module, by its path below src/odradek."""
    return next(name for name, begins in AREAS.items() if path.startswith(begins))


def text_of(node: ast.AST) -> str | None:
    """Return a literal's text, with `{expression}` for each value; None if it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "" for part in parts)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = [text_of(side) for side in (left, right)]
            if any(found):
                sides = zip(found, (left, right), strict=True)
                return "".join(text or "{" + ast.unparse(side) + "}" for text, side in sides)
    return None


def called(function: ast.expr) -> str:
    """Return the name of a called function, with the name that stands in front of its dot."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
        case ast.Attribute(attr=name):
            return f".{name}"
    return ""


def arguments(nodes: list[ast.expr]) -> Iterator[str]:
    """Yield the arguments of a call as they are written, those of a starred tuple one by one."""
    for node in nodes:
        match node:
            case ast.Starred(value=ast.Tuple(elts=elements)):
                yield from arguments(elements)
            case _:
                yield ast.unparse(node)


def placeholder(value: str, _: object) -> str:
    """Return the placeholder of a value in a log message."""
    return f"{{{value}}}"


class Texts(ast.NodeVisitor):
    """Collects a module's texts, each with its kind: an error's class, a log level or help."""

    def __init__(self, commands: bool) -> None:
        """Collect docstrings of commands as well, in a module of the command line."""
        self._commands = commands
        self.found: list[tuple[str, str]] = []
        self._kind = ""

    def _add(self, text: str, kind: str) -> None:
        text = " ".join(text.split())
        if kind != "AssertionError" and (PROSE if kind == "" else LETTER).search(text):
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
        """Name the error or log level of the texts among a call's arguments."""
        name = called(node.func)
        logged = LOGGED.match(name)
        outer = self._kind
        if logged:
            self._kind = f"log {logged[1]}"
            text = text_of(node.args[0]) or ""
            for value in arguments(node.args[1:]):
                text = FORMAT.sub(partial(placeholder, value), text, count=1)
            self._add(text, self._kind)
            self._kind = ""
            self.visit_all(node.args[1:])
        else:
            self._kind = name.rpartition(".")[2] if ERROR.search(name) else ""
            self.visit(node.func)
            for keyword in node.keywords:
                if keyword.arg == "help" and (shown := text_of(keyword.value)):
                    self._add(shown, "help")
                else:
                    self.visit(keyword.value)
            self.visit_all(node.args)
        self._kind = outer

    def visit_all(self, nodes: list[ast.expr]) -> None:
        """Visit nodes one after the other."""
        for node in nodes:
            self.visit(node)

    def visit(self, node: ast.AST) -> None:
        """Collect a literal as a whole, whatever it contains."""
        if (text := text_of(node)) is not None:
            self._add(text, self._kind)
        else:
            super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Skip annotations, but for the help of a command's options."""
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
        if not path.startswith(LEFT_OUT):
            yield path, ast.parse(file.read_text())


@cache
def by_area() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return each area's texts with their kinds, by module."""
    found: dict[str, dict[str, list[tuple[str, str]]]] = defaultdict(dict)
    for path, tree in modules():
        texts = Texts(path.startswith("cli/"))
        texts.visit(tree)
        if texts.found:
            found[area_of(path)][path] = list(dict.fromkeys(texts.found))
    return found


def page() -> str:
    """Return the page as it should be."""
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
