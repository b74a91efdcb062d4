"""The pages on classes, functions and errors, written from their docstrings.

In: the tables of public names (`api/public_names.py`, `odradek.testing`, `odradek.spark`). Out:
Markdown, a page for each area. A docstring is Markdown already: what stands in single backquotes is
code, what begins with `>>>` an example. Must not: list a name twice, or leave a public one out.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import odradek
import odradek.spark
import odradek.testing
from odradek.api.public_names import HOMES
from odradek.common.errors import BrokerError, ExplainedError, KafkaError

WIDTH = 88
"""Characters of a signature's line before it is broken."""


@dataclass(frozen=True)
class Area:
    """Names that share a page: those of modules whose names begin so."""

    name: str
    title: str
    about: str
    modules: tuple[str, ...]


AREAS = (
    Area("producer", "Producer", "Writing records.", (
        "odradek.api.producer", "odradek.api.asyncio_producer", "odradek.clients.producer",
        "odradek.runtime.hosts", "odradek.record.sent_columns", "odradek.record.arrow",
        "odradek.common.types",
    )),
    Area("consumer", "Consumer", "Reading records, alone or as a group.", (
        "odradek.api.consumer", "odradek.api.asyncio_consumer", "odradek.api.group_consumer",
        "odradek.clients.consumer",
    )),
    Area("workers", "Workers", "Calling your function with each record.", (
        "odradek.api.workers", "odradek.api.asyncio_workers", "odradek.clients.workers",
    )),
    Area("admin", "Admin", "Looking after a cluster.", (
        "odradek.api.admin", "odradek.api.asyncio_admin", "odradek.clients.admin",
        "odradek.clients.descriptions",
    )),
    Area("watching", "Watching a client", "What it waits for, how it is, what it has counted.", (
        "odradek.clients.explain", "odradek.clients.metrics", "odradek.common.events",
        "odradek.monitoring",
    )),
    Area("settings", "Settings", "What configurations are made of.", (
        "odradek.api.client_options", "odradek.runtime.properties", "odradek.common.secret",
    )),
    Area("serialization", "Objects and schemas", "Serializers, schemas and registries.", (
        "odradek.serialization",
    )),
)  # fmt: skip
OTHERS = {
    "testing": ("odradek.testing", "Clusters for tests, simulated and real.", odradek.testing),
    "spark": ("odradek.spark", 'Beside `format("odradek")`.', odradek.spark),
}


def is_error(value: object) -> bool:
    """Whether it is an exception's class: those have a page of their own."""
    return isinstance(value, type) and issubclass(value, BaseException)


def api_pages() -> dict[str, str]:
    """All pages by their names, below `api/`."""
    found = {area.name: "\n".join(area_page(area)) for area in AREAS}
    for name, (title, about, module) in OTHERS.items():
        members = {one: getattr(module, one) for one in public_of(module)}
        found[name] = "\n".join(names_page(title, about, title, members))
    found["errors"] = "\n".join(errors_page())
    return found


def public_of(module: Any) -> list[str]:
    """The names that a module says it has."""
    return sorted(getattr(module, "__all__", None) or vars(module)["_HOME"])


def area_page(area: Area) -> Iterator[str]:
    """The page of an area: what `odradek` has of its modules, in the table's order."""
    members = {
        name: getattr(odradek, name)
        for module in area.modules
        for name, home in HOMES.items()
        if (home == module or home.startswith(f"{module}."))
        and not is_error(getattr(odradek, name))
    }
    yield from names_page(area.title, area.about, "odradek", members)


def names_page(title: str, about: str, home: str, members: Mapping[str, Any]) -> Iterator[str]:
    """A page on some names."""
    yield from (f"# {title}", "", about, "")
    yield f"All of it is imported from `{home}`; errors have [a page of their own](errors.md)."
    yield ""
    for name, value in members.items():
        yield from entry(name, value)


def entry(name: str, value: Any) -> Iterator[str]:
    """A class with all its members, a function, or a type."""
    yield from (f"## {name}", "")
    if isinstance(value, type):
        yield from class_entry(name, value)
    elif callable(value) and inspect.isroutine(value):
        yield from (*code(signature(name, value)), *docstring(value))
    else:
        yield from (*code(f"{name} = {value}".replace("typing.", "")), "")


def class_entry(name: str, value: type) -> Iterator[str]:
    """A class: how it is made, what it says of itself, what it has."""
    if issubclass(value, enum.Enum):
        yield from docstring(value)
        yield from (f"- `{member.name}`" for member in value)
        yield ""
        return
    if not typed_dict(value):
        yield from code(signature(name, value))
    yield from docstring(value)
    if typed_dict(value):
        yield from ("All of them: [Options](../docs/configuration.md).", "")
    attributes = dict(attributes_of(value))
    if attributes:
        meant = any(text for _, text in attributes.values())
        yield "| attribute | type | meaning |" if meant else "| attribute | type |"
        yield "|---|---|---|" if meant else "|---|---|"
        for one, (kind, text) in attributes.items():
            meaning = f" {cell(text)} |" if meant else ""
            yield f"| `{one}` | {cell_code(kind)} |{meaning}"
        yield ""
    for one, member in members_of(value):
        yield from (f"### {name}.{one}", "")
        if isinstance(member, property):
            yield from docstring(member)
        else:
            yield from (*code(signature(one, member)), *docstring(member))


def typed_dict(value: type) -> bool:
    """Whether it is a TypedDict, whose names are those of the options."""
    return hasattr(value, "__total__")


def members_of(value: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that are written for it, in the order of their names."""
    if typed_dict(value):
        return
    for name in sorted(dir(value)):
        member = inspect.getattr_static(value, name)
        if name.startswith("_"):
            continue
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        function = member.fget if isinstance(member, property) else member
        # What is only there to be refused says so when it is called.
        refused = not isinstance(member, property) and plain(signed(function)) == "Never"
        if function is not None and function.__module__.startswith("odradek") and not refused:
            yield name, member


def signed(function: Any) -> Any:
    """What a function is annotated to give."""
    return getattr(function, "__annotations__", {}).get("return", inspect.Signature.empty)


def attributes_of(value: type) -> Iterator[tuple[str, tuple[str, str]]]:
    """Annotated attributes with their types and the texts below them, those of bases first."""
    if typed_dict(value):
        return
    for base in reversed(value.__mro__):
        if base.__module__.startswith("odradek") and base is not BaseException:
            for name, kind, text in written_attributes(base):
                if not name.startswith("_"):
                    yield name, (kind, text)


@cache
def parsed(file: str) -> ast.Module:
    """A module's tree."""
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def written_attributes(value: type) -> list[tuple[str, str, str]]:
    """Name, type and text of what is annotated in the class' own body."""
    try:
        tree = parsed(inspect.getfile(value))
    except (OSError, TypeError):
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            break
    else:
        return []
    found = []
    for index, line in enumerate(node.body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            after = node.body[index + 1] if index + 1 < len(node.body) else None
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = inspect.cleandoc(str(after.value.value))
            found.append((line.target.id, ast.unparse(line.annotation), text))
    return found


def signature(name: str, value: Any) -> str:
    """How it is called, over several lines where one is too long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    words = [one_parameter(p) for p in parameters]
    kinds = [p.kind for p in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        words.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    before = "async " if inspect.iscoroutinefunction(value) else ""
    gives = plain(found.return_annotation)
    empty = isinstance(value, type) or gives is inspect.Signature.empty
    end = "" if empty else f" -> {gives}"
    line = f"{before}{name}({', '.join(words)}){end}"
    if len(line) <= WIDTH:
        return line
    inside = "".join(f"    {word},\n" for word in words)
    return f"{before}{name}(\n{inside}){end}"


def one_parameter(parameter: inspect.Parameter) -> str:
    """A parameter with its type and its default, both as they are written."""
    word = parameter.name
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        word = f"*{word}"
    elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
        word = f"**{word}"
    kind, default = plain(parameter.annotation), parameter.default
    if kind is not inspect.Parameter.empty:
        word += f": {kind}"
    if default is inspect.Parameter.empty:
        return word
    shown: str = default.__name__ if isinstance(default, type) else repr(default)
    if isinstance(default, enum.Enum):
        shown = f"{type(default).__name__}.{default.name}"
    elif " at 0x" in shown or shown.startswith("<"):
        shown = "..."
    return f"{word} = {shown}" if ": " in word else f"{word}={shown}"


def plain(annotation: Any) -> Any:
    """An annotation as it is written in the source."""
    if isinstance(annotation, str) or annotation is inspect.Signature.empty:
        return annotation
    if hasattr(annotation, "__forward_arg__"):
        return annotation.__forward_arg__
    return getattr(annotation, "__name__", str(annotation))


def code(text: str) -> list[str]:
    """A block of Python."""
    return ["```python", text, "```", ""]


def docstring(value: Any) -> Iterator[str]:
    """What it says of itself, its examples as blocks."""
    text = inspect.getdoc(value) or ""
    if value is not None and text == (inspect.getdoc(type(value)) or None):
        return
    for part in re.split(r"(^>>> .*?(?:\n\n|\Z))", text, flags=re.MULTILINE | re.DOTALL):
        if part.startswith(">>> "):
            yield from ("```pycon", part.rstrip(), "```", "")
        elif part.strip():
            yield from (as_markdown(part), "")


def as_markdown(text: str) -> str:
    """A docstring's text: what would be markup by chance is none."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if index % 2 else re.sub(r"([<*_\[\]])", r"\\\1", piece)
        for index, piece in enumerate(pieces)
    ).strip("\n")


def cell(text: str) -> str:
    """A text in a table's cell."""
    return as_markdown(" ".join(text.split())).replace("|", r"\|")


def cell_code(text: str) -> str:
    """Code in a table's cell."""
    return f"`{text}`".replace("|", r"\|") if text else ""


def errors() -> Iterator[type[BaseException]]:
    """All public errors, those of brokers last."""
    found = [getattr(odradek, name) for name in HOMES]
    classes = [value for value in found if is_error(value)]
    yield from sorted(classes, key=lambda one: (issubclass(one, BrokerError), one.__name__))


def errors_page() -> Iterator[str]:
    """Every error: what it means, what to do, what the client does about it."""
    yield from ("# Errors", "")
    yield textwrap.dedent("""\
        Every error that Odradek raises on purpose is a `KafkaError` and is imported from `odradek`.
        What one says names the address or the partition, what happened there, and mostly what
        to do; [`odradek doctor`](../docs/doctor.md) finds out more. The marks say what follows:

        - **tries again**: it repeats the request by itself until the call's deadline; who gets the
          error may call again.
        - **fatal**: the client can't go on, and each later call raises the same error.
        - **abort**: the transaction can't be committed; `abort_transaction()`, and go on.
        - **somebody must act**: waiting doesn't help, so every waiting call gets it at once.
        """)
    known = list(errors())
    ours = [one for one in known if not issubclass(one, BrokerError) or one is BrokerError]
    yield from ("## Errors of the client", "")
    for one in ours:
        yield from (f"### {one.__name__}", "", *error_words(one))
    yield from ("## Errors of brokers", "")
    yield from ("A broker answered with an error code; each is a `BrokerError`.", "")
    yield from ("| error | code | meaning | the client |", "|---|---|---|---|")
    for one in known:
        if one not in ours:
            number = getattr(one, "code", None)
            meaning = (inspect.getdoc(one) or "").split("\n\n")[0]
            shown = "" if number is None else str(number)
            yield f"| `{one.__name__}` | {shown} | {cell(meaning)} | {', '.join(marks(one))} |"
    yield ""


def error_words(one: type[BaseException]) -> Iterator[str]:
    """One error of the client: its text, its cure, its marks and bases."""
    yield from docstring(one)
    if issubclass(one, ExplainedError) and one.usual_cure:
        yield from (f"**What to do:** {as_markdown(one.usual_cure)}", "")
    bases = [base.__name__ for base in one.__bases__ if base is not object]
    kind = f"A kind of {', '.join(f'`{base}`' for base in bases)}"
    yield from (f"{'; '.join([kind, *marks(one)])}.", "")
    attributes = [a for a in written_attributes(one) if a[2] and one is not KafkaError]
    for name, kind, text in attributes:
        yield f"- `{name}` ({cell_code(kind)}): {as_markdown(' '.join(text.split()))}"
    if attributes:
        yield ""


def marks(one: type[BaseException]) -> list[str]:
    """What the client does about an error."""
    words = {
        "retriable": "tries again",
        "fatal": "fatal",
        "requires_abort": "abort",
        "sticky": "somebody must act",
    }
    return [word for name, word in words.items() if getattr(one, name, False)]


def left_out() -> set[str]:
    """Public names that no page has."""
    shown = {name for area in AREAS for name in HOMES if HOMES[name].startswith(area.modules)}
    return {name for name in HOMES if name not in shown and not is_error(getattr(odradek, name))}
