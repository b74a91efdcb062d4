"""House rules: sizes, unused modules, imports between packages, files not to be committed.

The sources are those of the imported package, so that `make broken-rules` can test mutated ones.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from tests.source_trees import PACKAGE, parsed
from tests.time_limits import HANG_S

from odradek.common import public_names

ROOT = Path(__file__).resolve().parents[2]
SOURCE = PACKAGE.parent
MODULE_LINES = 800
FUNCTION_LINES = 70
# Generated files have no limit of lines; the limit applies to their generators.
GENERATED = (
    SOURCE / "odradek" / "protocol" / "messages",
    SOURCE / "odradek" / "common" / "errors" / "kafka.py",
)
# In these files, a loop over bytes is one long function: calls would double the cost.
KERNELS = (
    SOURCE / "odradek" / "record" / "kernel.py",
    SOURCE / "odradek" / "record" / "kernel_encode.py",
    SOURCE / "odradek" / "record" / "kernel_columns.py",
)
COMPAT = SOURCE / "odradek" / "compat"
ENTRY_POINTS = {"odradek.__main__"}
SKIPPED_FOLDERS = {"build", "dist", "artifacts", "spark-warehouse", "metastore_db", "__pycache__"}
BIN = Path(sys.executable).parent


@cache
def project_files() -> list[Path]:
    """Return all files that could be committed; git isn't used, because it may be missing."""
    found = []
    for folder, folders, names in chain(os.walk(ROOT), os.walk(SOURCE)):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED_FOLDERS
            and (not name.startswith(".") or name in (".ci", ".github"))
            and not name.endswith(".egg-info")
        ]
        found += [
            Path(folder, name)
            for name in names
            if not name.endswith((".pyc", ".png", ".so"))
            and name != ".git"  # in a linked worktree, .git is a file
        ]
    original = ROOT / "src"  # if the package is a mutated copy, examine the copy
    return sorted({p for p in found if p.is_relative_to(SOURCE) or not p.is_relative_to(original)})


def python_files() -> list[Path]:
    return [
        path
        for path in project_files()
        if path.suffix in (".py", ".pyx")
        and not any(path.is_relative_to(generated) for generated in GENERATED)
    ]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT if path.is_relative_to(ROOT) else SOURCE.parent))


def test_modules_are_short() -> None:
    lengths = {
        short(path): len(path.read_text().splitlines())
        for path in python_files()
        if path not in KERNELS
    }
    assert len(lengths) > 50
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES} == {}


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            )
            # Docstrings don't count.
            doc = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - doc


def test_functions_are_short() -> None:
    long = {
        f"{short(path)}:{name}": lines
        for path in python_files()
        if path not in KERNELS
        for name, lines in function_lengths(path)
        if lines > FUNCTION_LINES
    }
    assert long == {}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def references(path: Path) -> set[str]:
    """Yield all dotted names that a file imports, or contains as strings (for lazy imports)."""
    found = set()
    package = []
    if path.is_relative_to(SOURCE):
        package = module_name(path).split(".")
        if path.name != "__init__.py":
            package.pop()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"odradek(\.\w+)+", node.value)
        ):
            found.add(node.value)
    return found


@pytest.mark.slow
def test_every_module_is_imported() -> None:
    sources = [path for path in python_files() if path.is_relative_to(SOURCE)]
    used = set().union(*(references(path) - {module_name(path)} for path in sources))
    modules = {
        module_name(path)
        for path in sources
        if path.name != "__init__.py" and module_name(path).startswith("odradek.")
    }
    left = modules - used - ENTRY_POINTS
    # Users import these packages, so imports in the project's tests count as uses.
    offered = ("odradek.testing.", "odradek.simulation.", "odradek.compat.")
    for_tests = {name for name in left if name.startswith(offered)}
    lasts = {name.rpartition(".")[2] for name in for_tests}
    for path in (path for path in python_files() if path.is_relative_to(ROOT / "tests")):
        if words(path) & lasts:
            left -= for_tests & references(path)
    assert left == set()


# Concatenated, so that this file doesn't match.
HOSTS = ["pypi" + ".org", "python" + "hosted.org", "maven" + ".org", "maven." + "apache.org",
         "npmjs" + ".org", "crates" + ".io", "debian" + ".org"]  # fmt: skip
PLACES = ["/wo" + "rk/", "/ro" + "ot/", "/opt/" + "wheels", "/ho" + "me/", "../" + "shared",
          "shared/" + "design", "shared/" + "bench", "shared/" + "sketches"]  # fmt: skip


def test_no_file_contains_the_name_of_a_developers_machine_or_package_registry() -> None:
    named = re.compile("|".join(map(re.escape, HOSTS + PLACES)))
    found = {
        short(path): match[0]
        for path in project_files()
        if (match := named.search(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


def test_the_lock_file_pins_every_dependency() -> None:
    entries = entries_of((ROOT / "requirements.lock").read_text())
    pins = {entry.split("==")[0] for entry in entries}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[<>=!~ \[]", one)[0].lower().replace("_", "-") for one in wanted}
    assert names - pins == {"odradek"}  # extras like odradek[all] consist of other extras


def test_every_lock_file_has_hashes_and_no_url() -> None:
    locks = [path for path in project_files() if path.suffix == ".lock"]
    assert len(locks) > 5
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text, lock
        assert "--index" not in text, lock
        for entry in entries_of(text):
            assert re.match(r"[a-z0-9.-]+==\S+ (; .+ )?--hash=sha256:", entry), (lock, entry)


def entries_of(lock: str) -> list[str]:
    """Return the entries of a lock file, each on one line."""
    return re.sub(r" +", " ", re.sub(r"#.*\n|\\\n", "", lock)).strip().splitlines()


def test_make_targets_that_the_docs_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("setup", "demo", "test", "check", "bench"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


BANNED = ["time", "random", "socket", "threading", "asyncio", "selectors", "select", "ssl",
          "concurrent.futures"]  # fmt: skip
ROOMS_WITHOUT_A_WORLD = ["common", "protocol", "record", "network", "metadata", "clients", "api"]


def ruff(code: str, where: str) -> str:
    return subprocess.run(
        [BIN / "ruff", "check", "--select", "TID251", "--output-format", "concise",
         "--no-cache", "--stdin-filename", ROOT / where, "-"],
        input=code, capture_output=True, text=True, cwd=ROOT, check=False, timeout=HANG_S,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("room", ROOMS_WITHOUT_A_WORLD)
def test_packages_without_io_cannot_import_clocks_random_numbers_or_sockets(room: str) -> None:
    code = "".join(f"import {name}\n" for name in BANNED)
    code += "".join(f"from {name} import something\n" for name in BANNED)
    output = ruff(code, f"src/odradek/{room}/example.py")
    assert output.count("TID251") == 2 * len(BANNED), output


def test_the_runtime_package_can_import_sockets() -> None:
    assert "TID251" not in ruff("import socket\n", "src/odradek/runtime/example.py")


def test_the_import_ban_is_never_silenced() -> None:
    silenced = [
        short(path)
        for path in python_files()
        if path.is_relative_to(SOURCE) and re.search(r"noqa:.*TID251", path.read_text())
    ]
    assert silenced == []


TOO_FAR = (
    ("simulation", "import odradek.runtime.resolver"),
    ("simulation", "import socket"),
    ("record", "import odradek.protocol"),
    ("metadata", "from odradek.record import batch"),
    ("spark", "import threading"),
    ("clients", "import typer"),
)


@pytest.mark.slow
def test_forbidden_imports_between_packages_are_reported(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for n, (room, line) in enumerate(TOO_FAR):
        target = tmp_path / "src" / "odradek" / room / f"reaches_too_far_{n}.py"
        target.write_text(f'"""Reaches."""\n\n{line}\n')
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    # The error must name the module with the import, not only modules that import it.
    said = set(
        re.findall(r"^-?\s*odradek\.(\w+)\.reaches_too_far_(\d) ->", done.stdout, re.MULTILINE)
    )
    assert said == {(room, str(n)) for n, (room, _) in enumerate(TOO_FAR)}


HEAVY = {"pyarrow", "pyspark", "pandas", "numpy", "matplotlib", "polars", "typer", "rich",
         "cryptography", "asyncio", "ssl", "multiprocessing", "unittest", "pydantic"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "code", ["import odradek", "from odradek import Admin, Consumer, Producer"]
)
def test_import_odradek_loads_no_heavy_module(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    modules = set(done.stdout.split())
    assert "odradek" in modules
    assert modules & HEAVY == set()


FEW_NEED = {
    "base64", "cramjam", "dataclasses", "difflib", "dis", "google_crc32c", "hashlib", "hmac",
    "inspect", "ipaddress", "json", "pathlib", "platform", "shlex", "urllib.parse", "uuid",
    "odradek.clients.consumer.group.consumer_group", "odradek.clients.descriptions",
    "odradek.clients.traces", "odradek.common.options.jaas", "odradek.common.options.properties",
    "odradek.network.sasl.mechanism",
}  # fmt: skip
"""Modules that creating a client must not load."""
if sys.version_info < (3, 14):
    FEW_NEED.add("ast")  # `typing` needs `ast` for named tuples from 3.14 on
else:
    FEW_NEED -= {"dataclasses", "dis", "inspect"}  # `logging` imports these to colour tracebacks
MOST_COMPILED, MOST_MODULES = (250, 231) if sys.version_info < (3, 14) else (265, 246)
"""Maximum numbers of compiled texts (named tuples need one per field and one) and of modules.

From 3.14 on the colours of tracebacks add 15 texts and as many modules.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "other_half"),
    [
        ("Consumer", "odradek.record.sending"),
        ("Producer", "odradek.clients.consumer.records"),
    ],
)
def test_creating_a_client_loads_few_modules(client: str, other_half: str) -> None:
    code = (
        "import sys; before, compiled = set(sys.modules), []; "
        # Sources with a .pyc are compiled once; generated code is compiled at each start.
        "sys.addaudithook(lambda event, of: event != 'compile' or "
        "str(of[1]).endswith('.py') or compiled.append(event)); "
        f"from odradek import {client}; "
        f"{client}({{'bootstrap.servers': '127.0.0.1:1'}}).close(); "
        "print(len(compiled), *sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    compiled, *modules = done.stdout.split()
    assert set(modules) & (FEW_NEED | {other_half}) == set()
    assert int(compiled) <= MOST_COMPILED
    assert 100 < len(modules) <= MOST_MODULES


def test_no_class_has_a_finalizer() -> None:
    """R-HO-1: Python swallows a Ctrl-C that arrives within `__del__`."""
    found = [
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef) and node.name == "__del__"
    ]
    assert found == ["odradek/testing/virtual/driven_loop.py"], "that one is for tests"


def test_class_names_are_unique() -> None:
    """Exempt are kernels, which also exist in Python, and `compat`, with other clients' names."""
    twins = {"BatchBuilder", "ColumnEncoder", "Notes", "OpenBatches", "Room"}
    homes: dict[str, list[str]] = {}
    for path in python_files():
        if path.is_relative_to(SOURCE) and not path.is_relative_to(COMPAT):
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(short(path))
    assert len(homes) > 500
    assert {k: v for k, v in homes.items() if len(v) > 1 and k not in twins} == {}


HOOKS = {
    # asyncio.Protocol, BaseEventLoop, ForkServer's keeper, pytest, Click, urllib, http.server,
    # futures, Spark's sources
    "connection_made", "data_received", "pause_writing", "resume_writing", "connection_lost",
    "_process_events", "_write_to_self",
    "_do_signal", "_do_remove", "_do_quit", "_do_spawn", "_root",
    "pytest_addoption", "pytest_configure", "pytest_runtest_makereport", "pytest_pyfunc_call",
    "format_commands", "redirect_request", "http_open", "https_open", "makefile",
    "do_GET", "do_HEAD", "log_message", "service_actions", "handle_error",
    "set_running_or_notify_cancel", "_get_snapshot", "get_loop", "_make_cancelled_error",
    "pushFilters", "streamWriter", "streamReader", "reportLatestOffset", "initialOffset",
    "prepareForTriggerAvailableNow", "getDefaultReadLimit",
    "_repr_html_", "load_ipython_extension",  # IPython
}  # fmt: skip
"""Names that libraries call, so that no use of them is in the sources."""
FOR_TESTS = (
    SOURCE / "odradek" / "api",
    SOURCE / "odradek" / "simulation",
    SOURCE / "odradek" / "testing",
    SOURCE / "odradek" / "record",  # tests compare each kernel with the same code in Python
    SOURCE / "odradek" / "clients" / "consumer" / "records.py",
)
"""Packages whose names are for users and tests."""


def defined(body: list[ast.stmt], *, fields: bool) -> Iterator[str]:
    """Yield the names of functions and classes that a module defines; constants if `fields`."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from defined(node.body, fields=False)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and fields:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def used(path: Path) -> Iterator[str]:
    """Yield the names that a module reads, imports, or contains as strings."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and path.name != "__init__.py":
            yield node.name.rpartition(".")[2]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (re.fullmatch(r"[\w.]+", node.value) or path.is_relative_to(ROOT / "tools"))
        ):
            yield from re.findall(r"\w+", node.value)


def words(path: Path) -> set[str]:
    return set(re.findall(r"\w+", path.read_text()))


def used_in_tests(wanted: set[str]) -> set[str]:
    """Return which of the names tests use; test files without these words aren't parsed."""
    found: set[str] = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if words(path) & (wanted - found):
            found |= wanted & set(used(path))
    return found


def test_every_name_is_used() -> None:
    """A name in the sources is used there, public, called by a library, or named on a page."""
    sources = [path for path in python_files() if path.is_relative_to(SOURCE)]
    generated = [path for folder in GENERATED for path in [*folder.glob("*.py"), folder]]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    plain = [*pages, *(path for path in generated if path.suffix == ".py")]
    living = {*HOOKS, *public_names.PLACES}.union(*map(words, plain))
    for path in [*sources, *(ROOT / "tools").glob("*.py"), ROOT / "setup.py"]:
        if path.suffix == ".py":
            living.update(used(path))
    idle = [
        (path, name)
        for path in sources
        if not path.is_relative_to(COMPAT)  # tests compare compat's names with others'
        for name in defined(parsed(path).body, fields=True)
        if name not in living and not name.startswith("__")
    ]
    for_tests = {n for path, n in idle if any(path.is_relative_to(room) for room in FOR_TESTS)}
    tested = used_in_tests(for_tests)
    dead = {
        f"{short(path)}: {name}"
        for path, name in idle
        if not (name in tested and any(path.is_relative_to(room) for room in FOR_TESTS))
    }
    assert dead == set()
