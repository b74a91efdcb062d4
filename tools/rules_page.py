"""Write docs/rules.md: `tools/rules_page.py`.

Each rule's sentence, origin and difference are in tests/spec/rules.json. Its implementation and
tests are found by its id: the modules and tests that contain it, and the spec cases that list it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import odradek

ROOT = Path(__file__).resolve().parent.parent
SOURCES = Path(odradek.__file__).parent
"""Folder of the imported package, which `make broken-rules` replaces by a mutated copy."""
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "rules.md"
RULES: dict[str, dict[str, str]] = json.loads((TESTS / "spec/rules.json").read_text())
ID = re.compile(r"\bR-[A-Z]{2}-[0-9]+\b")
FAMILIES = {
    "BO": "Backoff",
    "CS": "Connections",
    "MD": "Metadata",
    "RB": "Rebootstrap",
    "RT": "Retries",
    "EV": "Events",
    "PR": "Producer",
    "TX": "Transactions",
    "GR": "Groups",
    "ID": "Identity",
    "TI": "Time",
    "WK": "Workers",
    "HO": "Threads, signals and exits",
    "IN": "Input from people, peers and files",
}
INTRODUCTION = """\
# The rules

Each rule states one promise of Odradek; code, tests and pages name the rules by these ids.
KIP-144, KIP-580, KIP-899 and the page on cluster metadata of Sarama's wiki are the four documents
that it was built from ([kips.md](kips.md)). Modules are below `src/odradek/`, tests below `tests/`,
cases below `tests/spec/`. `tools/rules_page.py` writes this page; `make broken-rules` breaks the
rules one after the other and shows which test notices.
"""


def uses(files: Iterable[Path], base: Path) -> dict[str, list[str]]:
    """Return by rule which of these files name the rule, as paths relative to `base`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(files):
        for rule in sorted(set(ID.findall(path.read_text()))):
            found[rule].append(path.relative_to(base).as_posix())
    return found


def homes() -> dict[str, list[str]]:
    """Return by rule the modules that name the rule."""
    return uses(SOURCES.rglob("*.py"), SOURCES)


def shows() -> Iterator[Path]:
    """Return the test modules by rule, without tests of tools, which only name rules."""
    return (path for path in TESTS.rglob("*.py") if path.parent != TESTS / "unit/tools")


def cases() -> dict[str, list[str]]:
    """Return by rule the spec cases that list the rule."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((TESTS / "spec").glob("*/*.json")):
        case: dict[str, Any] = json.loads(path.read_text())
        for rule in case["rules"]:
            found[rule].append(f"{path.parent.name}/{path.stem}")
    return found


def everywhere() -> dict[str, list[str]]:
    """Return by rule all files of the project that name the rule."""
    files = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    for folder in ("tests", "tools", "benchmarks", "examples"):
        files += (ROOT / folder).rglob("*.py")
    found = uses([*files, *(TESTS / "spec").glob("*/*.json")], ROOT)
    for rule, modules in homes().items():
        found[rule] += modules
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sections() -> Iterator[str]:
    kept, shown, listed = homes(), uses(shows(), TESTS), cases()
    for family, title in FAMILIES.items():
        yield f"\n## {title}"
        for rule, about in RULES.items():
            if rule[2:4] != family:
                continue
            yield f"\n### {rule}\n\n{about['means']}\n"
            source = about.get("from", "a rule of our own")
            yield f"- From: {source}" + (f" (Kafka {about['kafka']})" if "kafka" in about else "")
            if "differs" in about:
                yield f"- Where we differ: {about['differs']}"
            yield f"- Home: {_listed(kept[rule])}"
            if shown[rule]:
                yield f"- Tests: {_listed(shown[rule])}"
            if listed[rule]:
                yield f"- Cases: {_listed(listed[rule])}"


def page() -> str:
    """Return the up-to-date page."""
    return INTRODUCTION + "\n".join(_sections()) + "\n"


def main() -> None:
    """Write the page of rules."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
