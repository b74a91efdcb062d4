"""docs/switching.md, which is generated from the names of other clients, is up to date."""

from __future__ import annotations

from tools import switching_page


def test_the_switching_page_is_up_to_date() -> None:
    page = switching_page.PAGE.read_text()
    assert switching_page.updated(page) == page, "run tools/switching_page.py"
