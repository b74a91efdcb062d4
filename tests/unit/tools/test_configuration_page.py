"""docs/configuration.md has the options of the code, and other pages lead to it."""

from __future__ import annotations

from tools import configuration_page

from odradek.cli.options import CHANGES_NOTHING, every_option


def test_the_page_is_up_to_date() -> None:
    page = configuration_page.PAGE.read_text()
    assert configuration_page.updated(page) == page, "run tools/configuration_page.py"


def test_each_option_is_on_the_page_with_its_text() -> None:
    page = configuration_page.PAGE.read_text()
    for one in every_option():
        idle = one.get("type") == CHANGES_NOTHING
        assert (f"| `{one['name']}` |" if idle else f"\n### {one['name']}\n") in page
        assert configuration_page.marked(one["text"]) in page or idle


def test_names_of_options_are_code_where_they_are_not_yet() -> None:
    text = "With acks=0 see `linger.ms`, linger.ms=5, metadata.max.age.ms."
    assert configuration_page.marked(text) == (
        "With acks=0 see `linger.ms`, `linger.ms=5`, `metadata.max.age.ms`."
    )


def test_readers_find_the_page() -> None:
    root = configuration_page.PAGE.parent.parent
    for path in ("README.md", "docs/spark.md", "docs/tuning.md", "docs/switching.md"):
        assert "configuration.md" in (root / path).read_text(), path
