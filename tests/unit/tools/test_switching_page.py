"""docs/switching.md uses the names of the other clients."""

from __future__ import annotations

from tools import switching_page


def test_the_page_is_up_to_date() -> None:
    page = switching_page.PAGE.read_text()
    assert switching_page.updated(page) == page, "run tools/switching_page.py"
