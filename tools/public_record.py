"""Record the public API of a release, for the test that later releases keep it.

In: the `odradek` that this Python imports, and its metadata. Out: `tests/unit/released.json` with
its names (classes with their methods' arguments, errors with their base classes), also deprecated
ones, options, Spark's options, commands with their flags, extras, and fixtures of pytest; with the
path of another checkout, that one's on stdout. It is written for each release (docs/stability.md);
`make release` checks it. Must not: require features of newer releases, so that an older one can be
recorded.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import inspect
import sys
import tomllib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compact_json import compact

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/unit/released.json"
TABLE = "odradek.common.public_names"
"""Module that lists public modules and deprecated names; Odradek 0.2 doesn't have it."""


def record(project: Path) -> dict[str, Any]:
    """Return the public API of the imported package and of a checkout's metadata, as recorded."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    modules, deprecated = ["odradek", "odradek.spark", "odradek.testing"], []
    if importlib.util.find_spec(TABLE):
        modules, deprecated = list(imported(TABLE).HOMES), list(imported(TABLE).MOVED)
    return {
        "version": settings["version"],
        "names": names(modules[0], deprecated),
        **{module: names(module) for module in modules[1:]},
        "options": options(),
        "spark source": sorted(imported("odradek.spark.options.option_table").OPTIONS),
        "spark sink": sorted(imported("odradek.spark.sink.sink_options").OPTIONS),
        "commands": commands(),
        "extras": sorted(settings["optional-dependencies"]),
        "scripts": sorted(settings["scripts"]),
        "fixtures": fixtures(),
    }


def imported(name: str) -> Any:
    """Import a module by name, so that mypy doesn't know its types."""
    return importlib.import_module(name)


def names(module: str, deprecated: Iterable[str] = ()) -> dict[str, Any]:
    """Return the recorded form of each name in `__all__`, and of each deprecated name."""
    place = imported(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return {
            name: promised(getattr(place, name)) for name in sorted([*place.__all__, *deprecated])
        }


def promised(value: Any) -> Any:
    """Return a function's arguments, an error's odradek and built-in bases, a class's members."""
    if inspect.isclass(value):
        if issubclass(value, Exception):
            return sorted(one.__name__ for one in value.__mro__[1:-1])
        # Members of Python's own classes differ between versions.
        found = {"()": "value" if issubclass(value, enum.Enum) else arguments(value)}
        ours = [one for one in value.__mro__ if one.__module__.startswith("odradek")]
        for name in sorted({name for one in ours for name in vars(one)}):
            if not name.startswith("_") and hasattr(value, name):  # removed names raise errors
                member = inspect.getattr_static(value, name)
                wrapped = getattr(member, "__func__", member)
                found[name] = arguments(wrapped) if inspect.isfunction(wrapped) else None
        return found
    return arguments(value) if callable(value) else None


def arguments(function: Any) -> str | None:
    """Return argument names in order.

    `name=` has a default, `name/` is positional-only, and `*` precedes keyword-only arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    found: list[str] = []
    for one in parameters:
        if one.name == "self" or one.name.startswith("_"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        mark = "/" if one.kind is one.POSITIONAL_ONLY else ""  # it is positional-only
        mark += "" if one.default is one.empty else "="
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        found.append(f"{stars}{one.name}{mark}")
    return ", ".join(found)


def options() -> dict[str, list[str]]:
    """Return the kinds of clients that accept each option."""
    table = imported("odradek.common.options.table").OPTIONS
    return {name: sorted(one.clients) for name, one in sorted(table.items())}


def commands() -> dict[str, list[str]]:
    """Return the flags of each command, whose words are separated by blanks."""
    command_line, typer = imported("odradek.cli"), imported("typer")
    found: dict[str, list[str]] = {}

    def walk(name: str, command: Any) -> None:
        if hasattr(command, "commands"):
            for verb, one in command.commands.items():
                walk(f"{name} {verb}".strip(), one)
        else:
            flags = [word for one in command.params for word in (*one.opts, *one.secondary_opts)]
            found[name] = sorted(word for word in flags if word.startswith("-"))

    for name in command_line.COMMANDS:
        top = typer.main.get_command(command_line.build(name))
        walk(name, top.commands[name] if hasattr(top, "commands") else top)
    return dict(sorted(found.items()))


def fixtures() -> list[str]:
    """Return the names of the pytest plugin's fixtures."""
    plugin = vars(imported("odradek.testing.plugin"))
    return sorted(name for name, one in plugin.items() if "Fixture" in type(one).__name__)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(compact(record(Path(sys.argv[1]))), end="")
    else:
        RECORD.write_text(compact(record(ROOT)))
