"""The table of `make broken-rules` doesn't rot: texts and tests are there, verdicts are right."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.tools.loading import load_tool

ROOT = Path(__file__).resolve().parents[3]


TOOL = load_tool("break_rules")
NAMES = [b.name for b in TOOL.BREAKAGES]


@pytest.mark.parametrize("breakage", TOOL.BREAKAGES, ids=NAMES)
def test_its_texts_and_tests_are_there(breakage: object) -> None:
    assert isinstance(breakage, TOOL.Breakage)
    assert breakage.tests
    for patch in breakage.patches:
        text = (TOOL.SOURCES / patch.file).read_text()
        changed = TOOL.patched(text, patch)
        assert changed != text
        compile(changed, patch.file, "exec")
    for test in breakage.tests:
        path, _, inside = test.partition("::")
        assert (ROOT / path).is_file(), path
        name, _, case = inside.rstrip("]").partition("[")
        if case and path.startswith("tests/spec/"):
            folder = path.removeprefix("tests/spec/test_").removesuffix(".py")
            assert (ROOT / "tests/spec" / folder / f"{case}.json").is_file(), case
        elif name:
            assert f"def {name}(" in (ROOT / path).read_text(), name


def test_names_are_told_apart() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_a_text_that_is_gone_is_an_error() -> None:
    with pytest.raises(LookupError, match="doesn't hold 'gone'"):
        TOOL.patched("here", TOOL.Patch("a.py", "gone", ""))


@pytest.mark.slow
def test_what_survives_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = tmp_path / "src" / "odradek"
    shutil.copytree(TOOL.SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    before = (sources / "common/backoff.py").read_text()
    test = tmp_path / "test_it.py"
    test.write_text(
        "from odradek.common.backoff import JITTER\n\ndef test_rule():\n    assert JITTER == 0.2\n"
    )
    weak = tmp_path / "test_weak.py"
    weak.write_text("def test_nothing():\n    assert True\n")
    for path, noticed in ((test, True), (weak, False)):
        broken = sys.modules["rules_to_break"].broken(
            "it", "R", "common/backoff.py", "JITTER = 0.2", "JITTER = 1", str(path)
        )
        assert TOOL.try_one(broken, sources, tmp_path) is noticed
    said = capsys.readouterr().out
    assert "test_rule failed" in said
    assert "it: SURVIVED" in said
    assert (sources / "common/backoff.py").read_text() == before


@pytest.mark.slow
def test_the_list_is_printed_and_unknown_words_are_refused() -> None:
    tool = [sys.executable, str(ROOT / "tools/break_rules.py")]
    listed = subprocess.run([*tool, "--list"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == len(NAMES)
    refused = subprocess.run([*tool, "nosuchword"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
