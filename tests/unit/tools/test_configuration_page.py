"""docs/configuration.md describes all options, and other pages link to it."""

from __future__ import annotations

from tools import configuration_page

from odradek.cli.options import CHANGES_NOTHING, every_option


def test_the_configuration_page_is_up_to_date() -> None:
    page = configuration_page.PAGE.read_text()
    assert configuration_page.updated(page) == page, "run tools/configuration_page.py"


def test_each_option_is_on_the_page_with_its_description() -> None:
    page = configuration_page.PAGE.read_text()
    for one in every_option():
        idle = one.get("type") == CHANGES_NOTHING
        assert (f"| `{one['name']}` |" if idle else f"\n### {one['name']}\n") in page
        assert configuration_page.marked(one["text"]) in page or idle


def test_option_names_in_descriptions_have_a_single_pair_of_backquotes() -> None:
    text = "With acks=0 see `linger.ms`, linger.ms=5, metadata.max.age.ms."
    assert configuration_page.marked(text) == (
        "With acks=0 see `linger.ms`, `linger.ms=5`, `metadata.max.age.ms`."
    )


def test_other_pages_link_to_the_configuration_page() -> None:
    root = configuration_page.PAGE.parent.parent
    for path in ("README.md", "docs/spark.md", "docs/tuning.md", "docs/switching.md"):
        assert "configuration.md" in (root / path).read_text(), path
