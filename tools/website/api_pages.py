"""Write the pages on classes, functions and errors: headings, an error's cures and marks.

In: the table of public names (`common/public_names.py`). Out: Markdown, a page for each area, with
directives that Sphinx' autodoc fills. Must not: list a name twice, or omit a public name.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from odradek.common.errors import BrokerError, ExplainedError
from odradek.common.public_names import APART, HOMES, PLACES


@dataclass(frozen=True)
class Area:
    """Names that share a page: all names in modules with these prefixes."""

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
        "odradek.api.consumer", "odradek.api.asyncio_consumer", "odradek.api.consumer_state",
        "odradek.clients.consumer",
    )),
    Area("workers", "Workers", "Calling your function with each record.", (
        "odradek.api.workers", "odradek.api.asyncio_workers", "odradek.clients.workers",
    )),
    Area("admin", "Admin", "Looking after a cluster.", (
        "odradek.api.admin", "odradek.api.asyncio_admin", "odradek.clients.admin",
        "odradek.clients.descriptions",
    )),
    Area("watching", "Watching a client", "Why it waits, whether it is healthy, its metrics.", (
        "odradek.clients.explain", "odradek.clients.metrics", "odradek.common.events",
        "odradek.monitoring",
    )),
    Area("settings", "Settings", "Types and readers of configurations.", (
        "odradek.api.client_options", "odradek.runtime.properties", "odradek.common.secret",
    )),
    Area("serialization", "Objects and schemas", "Serializers, schemas and registries.", (
        "odradek.serialization",
    )),
)  # fmt: skip
OTHERS = {
    "odradek.testing": "Clusters for tests, simulated and real.",
    "odradek.spark": 'Beside `format("odradek")`.',
}
DEFINED = {name: home for homes in HOMES.values() for name, home in homes.items()}
"""Defining module of each public name."""


def is_error(value: object) -> bool:
    """Return whether a value is an exception class: errors have a page of their own."""
    return isinstance(value, type) and issubclass(value, BaseException)


def api_pages() -> dict[str, str]:
    """Return all pages by name, below `api/`."""
    found = {area.name: "\n".join(area_page(area)) for area in AREAS}
    for module, about in OTHERS.items():
        page = names_page(module, about, sorted(HOMES[module]))
        found[module.rpartition(".")[2]] = "\n".join(page)
    found["errors"] = "\n".join(errors_page())
    return found


def public(name: str) -> Any:
    """Import the public object with this name, as users do."""
    return getattr(import_module(PLACES[name]), name)


def area_names() -> Iterator[str]:
    """Yield the public names by area: all except errors and names that are on other pages."""
    for name, place in PLACES.items():
        if place not in APART and not is_error(public(name)):
            yield name


def area_page(area: Area) -> Iterator[str]:
    """Yield the lines of an area's page: the public names of its modules, in the table's order."""
    names = [
        name
        for module in area.modules
        for name in area_names()
        if DEFINED[name] == module or DEFINED[name].startswith(f"{module}.")
    ]
    yield from names_page(area.title, area.about, names)


def names_page(title: str, about: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a page about these names."""
    yield from (f"# {title}", "", about, "")
    yield "Import each name from the module that it is shown with."
    yield "Errors have [a page of their own](errors.md)."
    yield ""
    for name in names:
        yield from entry(PLACES[name], name, public(name))


def entry(home: str, name: str, value: Any) -> Iterator[str]:
    """Yield the lines for a class with its members, a function, or a type."""
    yield from (f"## {name}", "")
    if hasattr(value, "__total__"):
        yield from directive("class", f"{home}.{name}")
        yield from ("All of them: [Options](../docs/configuration.md).", "")
    elif isinstance(value, type):
        yield from directive("class", f"{home}.{name}", members_of(value))
    elif inspect.isroutine(value):
        yield from directive("function", f"{home}.{name}")
    else:
        text = f"{name} = {value}".replace("typing.", "")
        yield from ("```python", text, "```", "")


def directive(kind: str, name: str, options: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the lines of a directive, for which autodoc inserts a docstring."""
    yield from ("```{eval-rst}", f".. auto{kind}:: {name}")
    yield from (f"   :{option}: {value}".rstrip() for option, value in (options or {}).items())
    yield from ("```", "")


def members_of(value: type) -> dict[str, str]:
    """Return autodoc's options for a class, without inherited members of other packages."""
    foreign = [base.__name__ for base in value.__mro__ if not base.__module__.startswith("odradek")]
    always_raise = [
        name
        for name in dir(value)
        if "Never" in str(getattr(getattr(value, name, None), "__annotations__", {}).get("return"))
    ]
    return {
        "members": "",
        "undoc-members": "",
        "inherited-members": ", ".join(foreign),
        "exclude-members": ", ".join(always_raise),
    }


def as_markdown(text: str) -> str:
    """Escape the characters of a text that Markdown would take for markup."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if index % 2 else re.sub(r"([<*_\[\]])", r"\\\1", piece)
        for index, piece in enumerate(pieces)
    ).strip("\n")


def cell(text: str) -> str:
    """Return a text in the form that a table's cell needs."""
    return as_markdown(" ".join(text.split())).replace("|", r"\|")


def cell_code(text: str) -> str:
    """Return code in the form that a table's cell needs."""
    return f"`{text}`".replace("|", r"\|") if text else ""


def errors() -> Iterator[type[BaseException]]:
    """Yield all public errors; errors of brokers come last."""
    classes = [public(name) for name in HOMES["odradek.errors"]]
    yield from sorted(classes, key=lambda one: (issubclass(one, BrokerError), one.__name__))


def errors_page() -> Iterator[str]:
    """Yield the page of all errors: meaning, cure, and the client's reaction."""
    yield from ("# Errors", "")
    yield textwrap.dedent("""\
        Every error that Odradek raises on purpose is a `KafkaError` and is imported from
        `odradek.errors`; the most common ones are also in `odradek`. Its text names the address or
        the partition, what happened, and usually what to do;
        [`odradek doctor`](../docs/doctor.md) finds out more. The marks mean:

        - **tries again**: the client repeats the request until the call's deadline; after the
          error you may call again.
        - **fatal**: the client can't continue, and each later call raises the same error.
        - **abort**: the transaction can't be committed; call `abort_transaction()` and continue.
        - **needs a person**: waiting doesn't help, so every waiting call raises it at once.
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
    """Yield the lines about one error: its text, its cure, its marks and bases."""
    yield from directive("exception", f"{PLACES[one.__name__]}.{one.__name__}", {"members": ""})
    if issubclass(one, ExplainedError) and one.usual_cure:
        yield from (f"**What to do:** {as_markdown(one.usual_cure)}", "")
    bases = [base.__name__ for base in one.__bases__ if base is not object]
    kind = f"A kind of {', '.join(f'`{base}`' for base in bases)}"
    yield from (f"{'; '.join([kind, *marks(one)])}.", "")


def marks(one: type[BaseException]) -> list[str]:
    """Return marks for a client's reactions to an error, such as retriable or fatal."""
    words = {
        "retriable": "tries again",
        "fatal": "fatal",
        "requires_abort": "abort",
        "sticky": "needs a person",
    }
    return [word for name, word in words.items() if getattr(one, name, False)]


def left_out() -> set[str]:
    """Return the public names that are on no page."""
    modules = tuple(module for area in AREAS for module in area.modules)
    return {name for name in area_names() if not DEFINED[name].startswith(modules)}
