"""R-IN-2: configuration is data. The library never imports or runs code that a string names."""

from __future__ import annotations

import ast

import pytest
from tests.source_trees import PACKAGE, naming, parsed

SOURCE = PACKAGE.parent
RUNNERS = {"eval", "exec", "compile", "__import__", "import_module", "resolve_name"}
RUNNERS |= {"run_module", "run_path", "system", "popen", "load_module"}
RUNNERS |= {"require_extra"}
OWN_TABLES = {
    # If the name isn't a constant, it comes from a table in the same module.
    "odradek/common/public_names.py": "import_module",
    "odradek/protocol/registry.py": "import_module",
    "odradek/clients/admin/lazy_imports.py": "import_module",
    "odradek/record/kernel_sources.py": "import_module",
    "odradek/cli/__init__.py": "import_module",
    "odradek/spark/__init__.py": "import_module",
    "odradek/serialization/protobuf/files.py": "import_module",  # Google's own files
    "odradek/compat/confluent_kafka/__init__.py": "import_module",
    "odradek/compat/import_hook.py": "import_module",  # a module below one of two packages
    "odradek/common/extras.py": "import_module",  # the argument of callers, also checked
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
def test_names_of_imported_modules_are_constants_or_from_our_own_tables() -> None:
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
def test_no_object_is_unpickled_or_loaded_from_bytes() -> None:
    for path in naming(*PICKLERS, *LOADERS):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                names = {one.name for one in node.names}
                assert not names & PICKLERS, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in PICKLERS, path
            elif isinstance(node, ast.Attribute) and node.attr in LOADERS:
                raise AssertionError(path)
