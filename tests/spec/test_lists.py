"""Check that every vector and every rule has a case, or a reason why it has none.

`vectors.json` and `rules.json` are the lists; cases name what they cover in `vectors` and `rules`,
property tests in their docstrings. `peer_fixes.json` lists faults that other clients fixed from
2023 to 2026, by their issue or release, each with tests that fail with that fault.
"""

import ast
import json
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.source_trees import parsed
from tests.spec.cases import cases, load
from tests.spec.ranges import expand

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs/kips.md").read_text()
FOLDERS = ("kip_144", "kip_580", "kip_899", "metadata")
PATHS = [path for folder in FOLDERS for path in cases(folder)]
VECTORS: dict[str, dict[str, str]] = json.loads((HERE / "vectors.json").read_text())
RULES: dict[str, dict[str, str]] = json.loads((HERE / "rules.json").read_text())
PEER_FIXES = HERE / "peer_fixes.json"
RULE = re.compile(r"\bR-[A-Z]{2}-[0-9]+\b")


def named(key: str) -> dict[str, list[str]]:
    """Return the values that cases have under a key, each with the names of its cases."""
    found: dict[str, list[str]] = {}
    for path in PATHS:
        for name in load(path).get(key, []):
            found.setdefault(name, []).append(f"{path.parent.name}/{path.stem}")
    return found


def test_every_vector_has_a_case_or_a_reason() -> None:
    pinned = named("vectors")
    assert not set(pinned) - set(VECTORS), "cases name vectors that aren't in the list"
    for name, vector in VECTORS.items():
        assert set(vector) <= {"means", "ours", "shown_by"}, name
        assert vector["means"], name
        if "shown_by" in vector:  # a test that isn't a case
            path, _, test = vector["shown_by"].partition("::")
            assert f"def {test}(" in (ROOT / path).read_text(), vector["shown_by"]
        else:
            assert name in pinned, f"{name} has no case: {vector['means']}"


def test_every_rule_is_named_by_a_case_or_a_test() -> None:
    pinned = set(named("rules"))
    for path in sorted(HERE.parent.rglob("test_*.py")):
        pinned |= set(RULE.findall(path.read_text()))
    assert not set(RULES) - pinned, "rules that nothing shows"
    assert not pinned - set(RULES), "rules that aren't in the list"
    for name, rule in RULES.items():
        assert set(rule) <= {"means", "from", "kafka", "differs"}, name
        assert rule["means"].endswith("."), f"{name}: a sentence"


@pytest.mark.parametrize("path", PATHS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_case_has_a_sentence_and_no_duplicates(path: Path) -> None:
    case: dict[str, Any] = load(path)
    assert len(set(case["rules"])) == len(case["rules"])
    assert case["shows"].endswith("."), "a sentence"
    assert len(set(case.get("vectors", []))) == len(case.get("vectors", []))


def test_the_cases_named_in_docs_kips_md_exist() -> None:
    """Check the case names in `docs/kips.md`; a name with `*` can match several cases."""
    known = [f"{path.parent.name}/{path.stem}" for path in PATHS]
    for name in re.findall(r"`([a-z0-9_]+/[a-z0-9_*]+)`", PAGE):
        if name.split("/")[0] in FOLDERS:
            assert any(fnmatch(case, name) for case in known), f"there is no case {name}"


def test_the_files_named_in_docs_kips_md_exist() -> None:
    for name in re.findall(r"`([a-z0-9_/*]+\.(?:py|json))`", PAGE):
        places = (ROOT / "src/odradek", ROOT / "tests", ROOT)
        assert any(any(place.glob(name)) for place in places), f"there is no {name}"


def test_each_component_of_kip_580_has_a_row_in_docs_kips_md() -> None:
    rows = PAGE[PAGE.index("## The components that KIP-580 names") :]
    for component in (
        *("admin calls", "Fetcher", "consumer network path", "Metadata", "console producer"),
        *("RecordAccumulator", "Sender", "TransactionManager", "BrokerApiVersionsCommand"),
    ):
        assert f"\n| {component}" in rows, component


def functions_of(path: str) -> set[str]:
    """Return the names of a file's functions and methods."""
    nodes = ast.walk(parsed(ROOT / path))
    return {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_fault_of_other_clients_has_tests_or_a_reason() -> None:
    pairs = json.loads(PEER_FIXES.read_text(), object_pairs_hook=list)
    assert len({fault_id for fault_id, _ in pairs}) == len(pairs) == 268
    names = cache(functions_of)
    for fault_id, given in pairs:
        row = dict(given)
        assert set(row) in ({"fault", "tests"}, {"fault", "not_applicable"}), fault_id
        assert row["fault"], fault_id
        if "not_applicable" in row:
            assert row["not_applicable"].endswith("."), f"{fault_id}: a sentence"
            continue
        assert row["tests"], fault_id
        assert len(set(row["tests"])) == len(row["tests"]), fault_id
        for test in row["tests"]:
            path, _, inside = test.partition("::")
            name = inside.rpartition("::")[2]
            if path.endswith(".json"):
                assert ROOT / path in PATHS, f"{fault_id}: there is no case {path}"
            else:
                assert name.startswith("test_"), test
                assert name in names(path), f"{fault_id}: there is no test {test}"


def test_short_forms_are_expanded() -> None:
    refresh = {"at": 1, "every": 0.1, "times": 2, "from": 5, "steps": [{"do": "x", "n": "#"}]}
    short = {"b[1..2]:9": "c#", "at": ["[2..3]", "t[0..1]", "7", "#"], "do": [refresh]}
    assert expand(short) == {
        "b1:9": "c1",
        "b2:9": "c2",
        "at": [2, 3, "t0", "t1", "7", "#"],
        "do": [{"at": 1.0, "do": "x", "n": 5}, {"at": 1.1, "do": "x", "n": 6}],
    }
