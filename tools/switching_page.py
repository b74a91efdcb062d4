"""Write the tables of names into docs/switching.md: `tools/switching_page.py`.

The tables between the page's marks are written from `common.options.habits` and
`common.options.spellings`, which the clients use, and from the settings that other clients have
(the tests' frozen lists). A test fails if the page is out of date.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from odradek.common.config import OPTIONS
from odradek.common.options.habits import CLASSES, CURES, KEYWORDS, METHODS, is_idle
from odradek.common.options.spellings import ALIASES, REFUSED, dotted

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "switching.md"
FROZEN = ROOT / "tests" / "unit" / "common" / "settings_of_others.json"
BEGIN, END = "<!-- names: tools/switching_page.py writes what follows -->", "<!-- names: end -->"


def tables() -> str:
    """All tables as text."""
    return "\n".join((*_names(), *_settings()))


def _names() -> Iterator[str]:
    yield "### Classes and methods"
    yield ""
    yield "| there | write |"
    yield "|---|---|"
    for name, cure in CLASSES.items():
        yield f"| `{name}` | {cure} |"
    for cls, row in METHODS.items():
        sync = METHODS.get(cls.removeprefix("Async"), {}) if cls.startswith("Async") else {}
        for name, cure in row.items():
            if sync.get(name) != cure:
                yield f"| `{cls}.{name}` | {cure} |"
    for call, row in KEYWORDS.items():
        for name, cure in row.items():
            yield f"| `{call}({name}=…)` | {cure} |"
    yield ""


def _settings() -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for library, clients in json.loads(FROZEN.read_text()).items():
        for name in {dotted(name) for names in clients.values() for name in names}:
            found.setdefault(name, set()).add(library.split()[0])
    same = [n for n in found if n in OPTIONS and n not in ALIASES]
    idle = [n for n in found if is_idle(n, None)]
    yield "### Settings"
    yield ""
    yield f"{len(same)} of their settings have the same name here. Others, in dots:"
    yield ""
    yield "| there | of | here |"
    yield "|---|---|---|"
    for name in sorted(found):
        whose = ", ".join(sorted(found[name]))
        if name in ALIASES:
            yield f"| `{name}` | {whose} | `{ALIASES[name]}` |"
        elif name in CURES or name in REFUSED:
            yield f"| `{name}` | {whose} | refused: {CURES.get(name) or REFUSED[name]} |"
    yield ""
    yield f"These {len(idle)} are taken and change nothing (a DEBUG line says so):"
    yield ", ".join(f"`{name}`" for name in sorted(idle)) + "."


def renewed(page: str) -> str:
    """The page with the tables of now."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(renewed(PAGE.read_text()))


if __name__ == "__main__":
    main()
