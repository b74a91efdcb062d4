"""House rule: no modules import each other in a circle.

Imports in functions and under `if TYPE_CHECKING` count: they, too, make a module depend on the
other one. import-linter's contract `acyclic_siblings` is a different rule: it also refuses two
folders that import each other without a circle of modules, and doesn't notice a package that
imports its own module which imports the package.
"""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest


def circles(package: str) -> dict[str, list[str]]:
    """Return the circles of a package: modules that all import each other, at least indirectly."""
    graph = grimp.build_graph(package, cache_dir=None)
    found = {
        frozenset({name, *graph.find_upstream_modules(name) & graph.find_downstream_modules(name)})
        for name in graph.modules
    }
    return {f"{min(circle)}: {len(circle)}": sorted(circle) for circle in found if len(circle) > 1}


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles("odradek") == {}


@pytest.mark.parametrize("indent", ["", "if TYPE_CHECKING:\n    ", "def later():\n    "])
def test_circles_are_found(indent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"a": "from round import b", "b": f"{indent}import round.c", "c": "import round.a"}
    (tmp_path / "round").mkdir()
    for name, text in {"__init__": "", "above": "import round.a", **modules}.items():
        (tmp_path / "round" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("round") == {"round.a: 3": ["round.a", "round.b", "round.c"]}
