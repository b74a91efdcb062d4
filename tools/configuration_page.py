"""Write docs/configuration.md from the tables of options: `tools/configuration_page.py`.

In: `every_option` of `odradek options`. Out: the page between its marks; the text before them is
written by hand. A test fails if the page is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from odradek.cli.options import CHANGES_NOTHING, elsewhere, every_option
from odradek.common.config import ALL, OPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
BEGIN = "<!-- options: tools/configuration_page.py writes what follows -->"
END = "<!-- options: end -->"

Described = dict[str, Any]
_WORDS = "|".join(re.escape(name) for name in sorted(OPTIONS, key=len, reverse=True) if "." in name)
NAMES = re.compile(rf"(?<![\w.])({_WORDS})(=[\w-]+)?(?![\w-]|\.\w)")


def reference(options: Iterable[Described] | None = None) -> str:
    """Return the text of the page's option groups, with their options."""
    every = list(every_option() if options is None else options)
    groups = [(name, list(members)) for name, members in groupby(every, lambda o: o["group"])]
    lines = [f"- [{name}](#{anchor(name)}): {len(members)} options" for name, members in groups]
    for name, members in groups:
        lines += ["", f"## {name}"]
        for one in members:
            if one.get("type") != CHANGES_NOTHING:
                lines += ["", f"### {one['name']}", "", facts(one), "", *_told(one)]
        idle = [one for one in members if one.get("type") == CHANGES_NOTHING]
        if idle:
            lines += ["", "### Options without effect", "", "| option | text |", "|---|---|"]
            lines += [f"| `{one['name']}` | {one['text']} |" for one in idle]
    return "\n".join(lines)


def anchor(heading: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def facts(one: Described) -> str:
    """Return the line below an option's heading: clients, allowed values, default."""
    default = "no default" if one["default"] in (None, "–") else f"default {one['default']}"
    if "queries" in one:
        whose = "as in the JVM connector" if one["in_jvm_connector"] else "Odradek's own"
        parts = [f"{' and '.join(one['queries'])} queries", default, whose]
    else:
        everybody = len(one["clients"]) == len(ALL)
        values = f" ({one['range']})" if one["range"] else ""
        parts = ["all clients" if everybody else " and ".join(one["clients"])]
        parts += [f"{one['type']}{values}", default, f"{one['importance']} importance"]
    return " · ".join(parts + ([one["kip"]] if one.get("kip") else []))


def _told(one: Described) -> Iterator[str]:
    yield marked(one["text"])
    if sentence := elsewhere(one):
        yield f"\nDefaults elsewhere: {marked(sentence)}"
    if one.get("aliases"):
        yield f"\nOther names: {', '.join(f'`{name}`' for name in one['aliases'])}."


def marked(text: str) -> str:
    """Return the text with the names of options in backquotes."""
    parts = text.split("`")
    parts[::2] = [NAMES.sub(lambda found: f"`{found[0]}`", part) for part in parts[::2]]
    return "`".join(parts)


def updated(page: str) -> str:
    """Return the page's text with the current options."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{reference()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
