"""Write the tables of names into docs/switching.md: `tools/switching_page.py`.

The tables between the page's marks are written from `migration_hints`, `option_aliases` and
`ignored_settings` of `common.options`, which the clients use, and from the settings that other
clients have (the tests' frozen lists). A test fails if the page is out of date.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.common.config import OPTIONS
from odradek.common.options.ignored_settings import (
    COSTLY,
    HARMLESS,
    IN_FILES,
    OF_REGISTRIES,
    OF_SERIALIZERS,
    in_words,
    owners,
)
from odradek.common.options.migration_hints import CLASSES, CURES, KEYWORDS, METHODS
from odradek.common.options.option_aliases import ALIASES, REFUSED, dotted

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "switching.md"
FROZEN = ROOT / "tests" / "unit" / "common" / "settings_of_others.json"
BEGIN, END = "<!-- names: tools/switching_page.py writes what follows -->", "<!-- names: end -->"


def tables() -> str:
    """Return all tables as text."""
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
    yield "### Settings"
    yield ""
    yield f"{len(same)} settings of other clients exist here under the same name."
    yield (
        "A refused setting raises `ConfigurationError`, in `odradek.compat.confluent_kafka` a "
        "`KafkaException` with `_INVALID_ARG`, in `odradek.compat.aiokafka` a `ValueError`. "
        "Others, in dots:"
    )
    yield ""
    yield "| there | of | here |"
    yield "|---|---|---|"
    for name in sorted(found):
        whose = ", ".join(sorted(found[name]))
        if name in ALIASES:
            yield f"| `{name}` | {whose} | `{ALIASES[name]}` |"
        elif name in CURES or name in REFUSED:
            by = f" by {in_words(owners(name))}" if name not in OPTIONS and owners(name) else ""
            yield f"| `{name}` | {whose} | refused{by}: {CURES.get(name) or REFUSED[name]} |"
    yield ""
    yield from _without_effect()


def _without_effect() -> Iterator[str]:
    yield "### Settings without effect"
    yield ""
    yield (
        "The clients accept the settings of this table, and log a line for each, once per process. "
        "The level is WARNING if the setting can cost money (traffic between zones, memory, "
        "requests) or safety (durability, security, order, correctness), or if a program or an "
        "operator would miss it; DEBUG if nothing is lost without it."
    )
    yield ""
    yield "| setting | level | why it has no effect |"
    yield "|---|---|---|"
    for level, table in (("WARNING", COSTLY), ("DEBUG", HARMLESS)):
        for name in sorted(table):
            yield f"| `{name}` | {level} | {table[name]} |"
    yield ""
    serializers = _listed(sorted(OF_SERIALIZERS))
    registries = _listed(f"{prefix}*" for prefix in OF_REGISTRIES)
    yield (
        f"Settings of serializers ({serializers}), of registries ({registries}) and of Confluent's "
        "components (`confluent.*`) are a WARNING that says where they belong. From a properties "
        f"file, {_listed(sorted(IN_FILES))} are left out with a WARNING; in a dict they are errors."
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def updated(page: str) -> str:
    """Return the page with the present tables."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
