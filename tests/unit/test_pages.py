"""Pages agree with the sources: rules are defined, links have targets, tables are readable.

The sources are those of the imported package, so that `make broken-rules` can test mutated ones.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tools import messages_page, metrics_page, rules_page, state_diagrams

import odradek
from odradek.clients.metrics.catalogue import MEANINGS
from odradek.network import handshake

ROOT = rules_page.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PLACES = (ROOT, ROOT / "src/odradek", ROOT / "tests", ROOT / "tests/spec")
ENDINGS = ("", ".py", ".json")
CELL, SENTENCE = 200, 40
"""Limits: characters of a cell in DESIGN.md, words of a sentence in CHANGELOG.md."""
NO_PATHS = (
    "dist/",
    "offsets/",
    "storage/",
    "transformations/",
    ".venv/",
    "artifacts/",
    "/path",
    "R-",
    "application/",
    "localhost:",
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_rule_that_is_mentioned_is_defined() -> None:
    named = rules_page.everywhere()
    unknown = {rule: files for rule, files in named.items() if rule not in rules_page.RULES}
    assert unknown == {}, "define them in tests/spec/rules.json"
    assert {rule[2:4] for rule in rules_page.RULES} == set(rules_page.FAMILIES)


def test_every_rule_is_mentioned_in_a_module() -> None:
    assert set(rules_page.RULES) - set(rules_page.homes()) == set(), "no module names them"


def test_the_page_of_rules_is_up_to_date() -> None:
    assert rules_page.PAGE.read_text() == rules_page.page(), "run tools/rules_page.py"


def test_the_page_of_messages_is_up_to_date_and_has_no_empty_section() -> None:
    assert messages_page.PAGE.read_text() == messages_page.page(), "run tools/messages_page.py"
    assert set(messages_page.by_area()) == set(messages_page.AREAS)


def test_the_table_of_metrics_is_up_to_date() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(), "run tools/metrics_page.py"


def test_every_metric_is_in_the_table() -> None:
    text = metrics_page.PAGE.read_text()
    assert [name for name in MEANINGS if f"| `{name}` |" not in text] == []


def anchors(page: Path) -> set[str]:
    """Return the link anchors that GitHub creates for a page's headings."""
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
def test_links_on_pages_have_targets(page: Path) -> None:
    assert list(dead_links(page)) == []


def dead_paths(text: str) -> Iterator[str]:
    """Yield texts in backquotes that look like paths, but name no file of the repository."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for name in re.findall(r"`([\w.*-]+(?:/[\w.*-]+)*/?)`", text):
        if "/" not in name and not name.endswith((".py", ".md", ".json", ".toml")):
            continue
        if name.startswith(NO_PATHS):
            continue
        if not any(
            any(place.glob(f"{name.rstrip('/')}{end}")) for place in PLACES for end in ENDINGS
        ):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_on_pages_exist(page: Path) -> None:
    assert list(dead_paths(page.read_text())) == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`tests/unit/test_pages.py` `common/options` `no/such.py` `nor_this.py` `acks=all`"
    assert list(dead_paths(text)) == ["no/such.py", "nor_this.py"]


def test_table_cells_of_the_design_page_are_short() -> None:
    lines = (ROOT / "DESIGN.md").read_text().splitlines()
    cells = [cell for line in lines if line.startswith("|") for cell in line.split("|")]
    assert len(cells) > 50
    assert [cell for cell in cells if len(cell) > CELL] == []


def test_state_diagrams_equal_the_transition_tables() -> None:
    page = state_diagrams.PAGE.read_text()
    assert state_diagrams.updated(page) == page, "run tools/state_diagrams.py"


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert odradek.__version__ == handshake.SOFTWARE_VERSION == project["version"]


@pytest.mark.parametrize("name", ["check", "nightly", "publish", "site"])
def test_commands_of_the_workflows_exist(name: str) -> None:
    found = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
    steps = [step.get("run", "") for job in found["jobs"].values() for step in job["steps"]]
    targets = (ROOT / "Makefile").read_text()
    for step in filter(None, steps):
        if step.startswith("make "):
            wanted = [word for word in step.split()[1:] if "=" not in word]
            assert all(f"\n{target}:" in targets for target in wanted), step
        elif name == "publish" and step.startswith("python -m "):
            assert re.search(r" cibuildwheel(==[\d.]+| --output-dir dist)$", step), step
        else:
            assert (ROOT / step.removeprefix("python ").split()[0]).is_file(), step
    assert (".ci/run" in steps) == (name == "check")


def test_the_changelog_has_the_usual_headings_and_short_sentences() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds
    sentences = re.split(r"(?<=[.:;])\s", re.sub(r"\]\([^)]*\)", "]", text))
    assert [one for one in sentences if len(one.split()) > SENTENCE] == []
