"""R-IN-2: configuration is data. Nothing in the library imports or runs what a text names."""

from __future__ import annotations

import ast

import pytest
from tests.source_trees import PACKAGE, naming, parsed

SOURCE = PACKAGE.parent
RUNNERS = {"eval", "exec", "compile", "__import__", "import_module", "resolve_name"}
RUNNERS |= {"run_module", "run_path", "system", "popen", "load_module"}
RUNNERS |= {"require_extra"}
OWN_TABLES = {
    # Where the name isn't a constant, it comes from a table in the same module.
    "odradek/common/public_names.py": "import_module",
    "odradek/protocol/registry.py": "import_module",
    "odradek/clients/admin/lazy_imports.py": "import_module",
    "odradek/record/kernel_sources.py": "import_module",
    "odradek/cli/__init__.py": "import_module",
    "odradek/spark/__init__.py": "import_module",
    "odradek/serialization/protobuf/files.py": "import_module",  # Google's own files
    "odradek/compat/confluent_kafka/__init__.py": "import_module",
    "odradek/compat/import_hook.py": "import_module",  # below one of two names
    "odradek/common/extras.py": "import_module",  # what its callers name, who are looked at too
}


def called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        on = function.value
        if function.attr == "compile" and isinstance(on, ast.Name) and on.id == "re":
            return "re.compile"
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.slow
def test_only_constants_and_our_own_tables_name_what_is_imported() -> None:
    found: dict[str, str] = {}
    for path in naming(*RUNNERS):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call) or called(node) not in RUNNERS:
                continue
            if not (node.args and isinstance(node.args[0], ast.Constant)):
                found.setdefault(path.relative_to(SOURCE).as_posix(), called(node))
    assert found == OWN_TABLES


PICKLERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
LOADERS = ("unsafe_load", "full_load")


@pytest.mark.slow
def test_no_object_is_read_from_bytes_that_could_hold_code() -> None:
    for path in naming(*PICKLERS, *LOADERS):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                names = {one.name for one in node.names}
                assert not names & PICKLERS, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in PICKLERS, path
            elif isinstance(node, ast.Attribute) and node.attr in LOADERS:
                raise AssertionError(path)
