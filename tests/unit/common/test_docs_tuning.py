"""Test that the settings in docs/tuning.md exist and have the defaults that it names."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.common.config import OPTIONS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tuning.md").read_text()


def test_the_defaults_in_the_tuning_page_equal_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z.]+)` \| (\w+) \|$", PAGE, re.MULTILINE)
    assert len(rows) > 10
    for name, said in rows:
        default = OPTIONS[name].default
        text = str(round(default * 1000)) if name.endswith(".ms") else str(default)
        assert text == said, name


def test_every_setting_in_the_tuning_page_exists() -> None:
    for name in re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=[^`]*)?`", PAGE):
        assert name.removeprefix("kafka.") in OPTIONS, name
