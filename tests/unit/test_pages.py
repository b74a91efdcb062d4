"""What pages say is so: rules are defined, paths and links lead somewhere, tables can be read.

Sources are those of the package that is imported, so that `make broken-rules` can break them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.tools.test_break_rules import NAMES
from tools import rules_page

ROOT = rules_page.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
WAYS_IN = [ROOT / name for name in ("README.md",)]
"""The pages whose paths in backquotes are checked as well."""
PLACES = (ROOT, ROOT / "src/odradek", ROOT / "tests")
NO_PATHS = (".venv/", "artifacts/", "/path", "R-", "application/", "localhost:")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_rule_that_is_named_is_defined() -> None:
    named = rules_page.everywhere()
    unknown = {rule: files for rule, files in named.items() if rule not in rules_page.RULES}
    assert unknown == {}, "define them in tests/spec/rules.json"
    assert {rule[2:4] for rule in rules_page.RULES} == set(rules_page.FAMILIES)


def test_every_rule_has_a_home() -> None:
    assert set(rules_page.RULES) - set(rules_page.homes()) == set(), "no module names them"


def test_the_page_of_rules_is_up_to_date() -> None:
    assert rules_page.PAGE.read_text() == rules_page.page(), "run tools/rules_page.py"


def anchors(page: Path) -> set[str]:
    """What `#…` may follow the page's name, as GitHub makes it of headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in found}


def dead_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        place, _, anchor = link.partition("#")
        if place.startswith(("http:", "https:", "mailto:")):
            continue
        target = page.parent / place if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def dead_paths(text: str) -> Iterator[str]:
    """What stands in backquotes, looks like a path and is none, below the root or its rooms."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for name in re.findall(r"`([\w.*-]+(?:/[\w.*-]+)*/?)`", text):
        if "/" not in name and not name.endswith((".py", ".md", ".json", ".toml")):
            continue
        if name.startswith(NO_PATHS):
            continue
        if not any(
            any(place.glob(f"{name.rstrip('/')}{end}")) for place in PLACES for end in ("", ".py")
        ):
            yield name


@pytest.mark.parametrize("page", WAYS_IN, ids=name_of)
def test_paths_exist(page: Path) -> None:
    assert list(dead_paths(page.read_text())) == []


def test_a_path_that_leads_nowhere_is_found() -> None:
    text = "`tests/unit/test_pages.py` `common/options` `no/such.py` `nor_this.py` `acks=all`"
    assert list(dead_paths(text)) == ["no/such.py", "nor_this.py"]


def test_the_number_of_broken_rules_is_right() -> None:
    said = re.findall(r"breaks ([\d,]+) rules", (ROOT / "README.md").read_text())
    assert said == [str(len(NAMES))]
