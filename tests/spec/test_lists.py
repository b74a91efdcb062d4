"""Nothing is dropped in silence: every vector and every rule has its case, or says why not.

`vectors.json` and `rules.json` are the lists; cases name what they pin in `vectors` and `rules`,
property tests in their docstrings.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.spec.script import cases, load

HERE = Path(__file__).parent
FOLDERS = ("kip_144", "kip_580", "kip_899", "metadata")
PATHS = [path for folder in FOLDERS for path in cases(folder)]
VECTORS: dict[str, dict[str, str]] = json.loads((HERE / "vectors.json").read_text())
RULES: dict[str, dict[str, str]] = json.loads((HERE / "rules.json").read_text())
RULE = re.compile(r"\bR-[A-Z]{2}-[0-9]+\b")


def named(key: str) -> dict[str, list[str]]:
    """What the cases name under a key, and which ones do."""
    found: dict[str, list[str]] = {}
    for path in PATHS:
        for name in load(path).get(key, []):
            found.setdefault(name, []).append(f"{path.parent.name}/{path.stem}")
    return found


def test_every_vector_has_a_case_or_a_reason() -> None:
    pinned = named("vectors")
    assert not set(pinned) - set(VECTORS), "cases name vectors that aren't in the list"
    for name, vector in VECTORS.items():
        assert set(vector) <= {"means", "ours", "arrives_with"}, name
        assert vector["means"], name
        if "arrives_with" in vector:
            assert name not in pinned, f"{name} is pinned, so it doesn't arrive later"
        else:
            assert name in pinned, f"{name} has no case: {vector['means']}"


def test_every_rule_is_named_by_a_case_or_a_property_test() -> None:
    pinned = set(named("rules"))
    for path in sorted((HERE.parent / "property").rglob("test_*.py")):
        pinned |= set(RULE.findall(path.read_text()))
    assert not set(RULES) - pinned, "rules that nothing shows"
    assert not pinned - set(RULES), "rules that aren't in the list"
    assert all(rule["means"] for rule in RULES.values())


@pytest.mark.parametrize("path", PATHS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_case_is_in_order(path: Path) -> None:
    case: dict[str, Any] = load(path)
    assert len(set(case["rules"])) == len(case["rules"])
    assert case["shows"].endswith("."), "a sentence"
    assert len(set(case.get("vectors", []))) == len(case.get("vectors", []))
