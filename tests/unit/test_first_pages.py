"""Every number on the first pages has a source, and the README is short."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from benchmarks.scorecard import table
from tests.unit.tools.loading import load_tool

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/site/index.md", "docs/install.md")
NO_FIGURES = re.compile(
    r"<!-- scorecard: make.*?<!-- scorecard: end -->"  # the scorecard, compared as a whole
    r"|^```.*?^```$|`[^`]*`|\]\([^)]*\)|^\|.*\|$"
    r"|KIP-\d+|PEP \d+|Apache-2\.0|PKCS12|x86_64|aarch64|lz4",
    re.DOTALL | re.MULTILINE,
)
WORDS = {"README.md": 700, "DESIGN.md": 4500}
"""Maximum numbers of words of pages, counted as by `wc -w`."""
REPORT = json.loads((ROOT / "docs/scorecard.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def text(page: str) -> str:
    return (ROOT / page).read_text()


def cell(page: str, mark: str, row: str, column: str) -> str:
    """Return the first number in a cell of the table that follows a given comment."""
    _, found, rest = text(page).partition(f"<!-- {mark} -->\n\n")
    assert found, mark
    lines = [line.strip("|").split("|") for line in rest.partition("\n\n")[0].splitlines()]
    header, *rows = [[one.strip() for one in line] for line in lines]
    return next(line for line in rows if line[0] == row)[header.index(column)]


def consumed(client: str) -> str:
    """Return how many million records of 100 bytes are consumed per second."""
    mark = "bench consume, all cores"
    return cell("docs/performance.md", mark, client, "million records/s").split()[0]


def scored(row: str, client: str) -> str:
    return table.number(REPORT["rows"][row]["cells"][client]["figures"]["record"]["median"], "s")


def phrases() -> list[str]:
    """Return all statements that contain a number, formatted from the current results."""
    title = re.search(r'class="title"[^>]*>([^<]*)<', text("docs/demo.svg"))
    assert title
    rows, outage, lost, doubled, *back = re.findall(r"[\d,.]*\d", title[1])
    assert len(set(back)) == 1, title[1]
    jvm, tuned = re.findall(
        r"([\d.]+) ×",
        cell("docs/spark.md", "bench-spark summary", "all columns into noop", "Odradek on 4.2.0"),
    )
    python = PROJECT["requires-python"].removeprefix(">=")
    return [
        f"at other addresses {outage} s later",
        f"continue within {back[0]} s",
        f"of {rows} rows {lost} are lost and {doubled} duplicated",
        f"Python {python} or newer",
        f"writes again after {scored('E3', 'odradek')} s",
        f"confluent-kafka after {scored('E3', 'confluent')} s",
        f"{consumed('Odradek → records')} million records/s as objects",
        f"or {consumed('Odradek → Arrow')} million as Arrow columns",
        f"confluent-kafka reads {consumed('confluent-kafka')} million as objects",
        f"{jvm} times as fast as the JVM connector, {tuned} times as fast as a tuned one",
        "Java 17 or newer",  # Spark requires it
        '"never" means not within 60 s',  # a test below compares it with scorecard/rows.py
    ]


SHORT = {
    "reading, as Arrow columns": (
        "consume",
        ("Odradek → Arrow", "franz-go → arrow-go", "confluent-kafka → Arrow", "aiokafka → Arrow"),
    ),
    "reading, as objects": (
        "consume",
        ("Odradek → records", "franz-go", "Java", "confluent-kafka", "aiokafka"),
    ),
    "writing, from Arrow columns": ("produce", ("Odradek from Arrow",)),
    "writing, a future or callback per record": (
        "produce",
        (
            "Odradek, send() with a future",
            "franz-go",
            "Java",
            "confluent-kafka, callback",
            "aiokafka",
        ),
    ),
}
"""Rows of the summary on performance, and the tables that their cells come from."""


def test_the_summary_on_performance_agrees_with_its_tables() -> None:
    page = "docs/performance.md"
    for row, (table_of, clients) in SHORT.items():
        line = next(line for line in text(page).splitlines() if line.startswith(f"| {row} |"))
        shown = [one.strip() for one in line.strip("|").split("|")[1:] if one.strip() != "–"]
        mark = f"bench {table_of}, all cores"
        speeds = [cell(page, mark, one, "million records/s").split()[0] for one in clients]
        assert shown == speeds, row


def unexplained(page: str) -> list[str]:
    """Return the numbers on a page that aren't in one of the checked statements."""
    prose = " ".join(NO_FIGURES.sub(" ", text(page)).split())
    for phrase in phrases():
        prose = prose.replace(phrase, "")
    return re.findall(r"\S*\d\S*", prose)


@pytest.mark.parametrize("page", PAGES)
def test_every_number_on_the_first_pages_has_a_source(page: str) -> None:
    assert unexplained(page) == []


def test_every_checked_statement_is_on_a_first_page() -> None:
    prose = " ".join(text("README.md").split())
    assert [phrase for phrase in phrases() if phrase not in prose] == []


def test_the_scorecard_in_the_readme_equals_its_report() -> None:
    readme = text("README.md")
    assert table.into_readme(readme, REPORT) == readme
    assert table.markdown(REPORT) == text("docs/scorecard.md")
    recovered = {
        client
        for client, found in REPORT["rows"]["E3"]["cells"].items()
        if found["figures"]["record"]["median"] is not None
    }
    assert recovered == {
        "odradek",
        "odradek-asyncio",
        "confluent",
    }  # the page says "the others never do"


def test_the_word_never_on_the_page_means_not_within_60_seconds() -> None:
    from benchmarks.scorecard.rows import NEVER_AFTER

    assert NEVER_AFTER == 60


def test_the_installation_page_names_every_extra_and_platform() -> None:
    page = text("docs/install.md")
    extras = set(PROJECT["optional-dependencies"]) - {"dev"}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == extras
    named = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert f"| {', '.join(named)} | wheel: x86_64, aarch64 |" in page
    workflow = (ROOT / ".github/workflows/publish.yml").read_text()
    assert " ".join(f"cp{version.replace('.', '')}-*" for version in named) in workflow
    glibc = ".".join(map(str, load_tool("dist_archives").GLIBC))
    assert f"| Linux, glibc {glibc} or newer |" in page


@pytest.mark.parametrize("page", WORDS)
def test_pages_for_all_readers_are_short(page: str) -> None:
    assert len(text(page).split()) <= WORDS[page]


def beginning(section: str) -> int:
    """Return the number of words between a section's heading and its first code block."""
    return len(section.partition("\n")[2].partition("```")[0].split())


def test_the_home_page_shows_each_kind_of_program_and_links_to_each_page() -> None:
    home = text("docs/site/index.md")
    readme = text("README.md").partition("# Odradek\n")[2].partition("## Produce and consume")[0]
    assert "](docs/demo.svg)" in readme  # the top of the page includes the README's beginning
    assert "```{include} README.md" in home.partition("## ")[0]
    captions = re.findall(r"^:caption: (.*)$", home.partition("## For whom")[0], re.MULTILINE)
    assert captions == ["Produce", "Consume", "asyncio", "Arrow", "Spark"]
    for mark in re.findall(r'^:start-after: "(<!-- snippet: .*? -->)"$', home, re.MULTILINE):
        assert mark in text("README.md") + text("docs/guide.md")
    readers = re.findall(r"^\| an? ([^|]*?) \|", home.partition("## For whom")[2], re.MULTILINE)
    assert readers == [
        "service developer",
        "data engineer",
        "operator",
        "user of another client",
        "contributor",
    ]


EXPLAINED = "Topics that are deleted and created again"
"""The only section of the guide that explains instead of describing a task."""


def test_each_task_of_the_guide_begins_with_code() -> None:
    tasks = re.split(r"^## ", text("docs/guide.md"), flags=re.MULTILINE)[1:]
    assert len(tasks) > 10
    late = [one.splitlines()[0] for one in tasks if "```" not in one or beginning(one) > 12]
    assert late == [EXPLAINED]


@pytest.mark.parametrize("page", ["spark", "kips", "features", "performance"])
def test_a_long_page_begins_with_a_summary_below_400_words(page: str) -> None:
    top = text(f"docs/{page}.md").partition("\n## ")[0]
    assert len(top.split()) < 400
    assert re.search(r"^(```python|\||- )", "\n".join(top.splitlines()[:8]), re.MULTILINE)


def test_the_search_ranks_guides_above_the_changelog() -> None:
    scorer = text("docs/site/_static/scorer.js")
    better, worse = re.findall(r"/\^\((.*?)\)/\.test\(page\) \? score ([+-]) (\d+)", scorer)
    assert (better[1], worse[1]) == ("+", "-")
    assert "guide" in better[0]
    assert re.match(worse[0], "CHANGELOG")
    conf = text("docs/site/conf.py")
    assert re.search(r"^html_search_scorer = .*scorer\.js", conf, re.MULTILINE)
    assert "SHOW_SEARCH_SUMMARY" in scorer  # the search shows excerpts


def test_the_comparison_names_the_kafka_release_that_is_tested() -> None:
    from odradek.testing.jars import DEFAULT_VERSION

    minor = DEFAULT_VERSION.rpartition(".")[0]
    assert f"Java clients {minor}," in " ".join(text("docs/features.md").split())


def test_the_client_software_name_is_defined_once() -> None:
    """It is sent to brokers as `client.software.name` (KIP-511)."""
    sources = (ROOT / "src/odradek").rglob("*.py")
    named = re.compile(r"(?i)software_name\w*(?:, \w+)? *[:=] *\"odradek\"|client_software_name=\"")
    found = [str(one.relative_to(ROOT)) for one in sources if named.search(one.read_text())]
    assert found == ["src/odradek/network/handshake.py"]
