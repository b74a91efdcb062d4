"""The examples in docs/testing.md run as printed.

Examples with real brokers run in tests/integration, examples with other plugins in
tests/interop.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Imported here because pytester unloads modules that its inner run imports, and `odradek` keeps
# state of its modules.
from odradek.testing import KafkaSimulation

pytest_plugins = ["pytester"]

KINDS = ("test", "file", "real", "plugin", "conftest")
PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def blocks(kind: str) -> dict[str, tuple[str, int]]:
    """Return the Python blocks that follow comments like `<!-- test: move, passed: 1 -->`."""
    pattern = rf"<!-- {kind}: ([\w.]+)(?:, passed: (\d+))? -->\n```python\n(.*?)```"
    found = re.findall(pattern, PAGE.read_text(), re.DOTALL)
    return {name: (text, int(count or 0)) for name, count, text in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", blocks("test"))
def test_the_pages_examples_run_as_printed(name: str, pytester: pytest.Pytester) -> None:
    for file, (text, _) in blocks("file").items():
        pytester.path.joinpath(file).write_text(text)
    pytester.syspathinsert()
    text, passed = blocks("test")[name]
    pytester.makepyfile(text)
    done = pytester.runpytest_inprocess("-W", "error", "--strict-markers")
    done.assert_outcomes(passed=passed)


def test_every_code_block_belongs_to_a_test() -> None:
    count = PAGE.read_text().count("```python")
    assert count == sum(len(blocks(kind)) for kind in KINDS)
    assert len(blocks("test")) >= 5
    assert blocks("real")


def test_every_method_in_the_table_exists() -> None:
    table = PAGE.read_text().split("| verb |")[1].split("\n\n")[0]
    names = set(re.findall(r"`(\w+)\(", table))
    assert len(names) > 15
    with KafkaSimulation() as simulation:
        for name in names:
            assert callable(getattr(simulation, name)), name
