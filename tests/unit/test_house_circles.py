"""House rule: no import cycles between modules.

Imports in functions and under `if TYPE_CHECKING` count, because they too make a module depend on
the other. import-linter's contract `acyclic_siblings` is a different rule: it also refuses two
folders that import each other without a cycle of modules, and misses a package that imports its own
module which imports the package.
"""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest


def cycles(package: str) -> dict[str, list[str]]:
    """Return the import cycles of a package: modules that import each other, maybe indirectly."""
    graph = grimp.build_graph(package, cache_dir=None)
    found = {
        frozenset({name, *graph.find_upstream_modules(name) & graph.find_downstream_modules(name)})
        for name in graph.modules
    }
    return {f"{min(cycle)}: {len(cycle)}": sorted(cycle) for cycle in found if len(cycle) > 1}


def test_modules_have_no_import_cycles() -> None:
    assert cycles("odradek") == {}


@pytest.mark.parametrize("indent", ["", "if TYPE_CHECKING:\n    ", "def later():\n    "])
def test_an_import_cycle_is_found(
    indent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"a": "from round import b", "b": f"{indent}import round.c", "c": "import round.a"}
    (tmp_path / "round").mkdir()
    for name, text in {"__init__": "", "above": "import round.a", **modules}.items():
        (tmp_path / "round" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert cycles("round") == {"round.a: 3": ["round.a", "round.b", "round.c"]}
