"""Every public name is importable from its public module, and the import is lazy."""

from __future__ import annotations

import ast
import pydoc
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from tests.source_trees import PACKAGE as SOURCE
from tests.time_limits import HANG_S
from tests.unit.tools.loading import load_tool

import odradek
from odradek.common.config import OPTIONS, Config
from odradek.common.public_names import ALSO, APART, HOMES, MODULES, MOVED, PARTS, REMOVED_IN, TOP

INSIDE = {
    "StaleLookupError": "a lookup of offsets that is repeated",
    "LeftOutError": "a failed attempt, listed in another error",
    "EmptyAnswerError": "a failed attempt, listed in another error",
    "ForeignAnswerError": "an answer that is dropped",
    "NoAnswerError": "converted by a registry client into an error of its own",
    "NoCredentialsError": "converted by a registry client into an error of its own",
    "UnusableSettingError": "a ConfigurationError that no record causes",
    "SchemaNotAtHandError": "a schema that a thread fetches while the event loop runs",
    "PollOverdueError": "the reason that a member is told to leave for",
}
"""Errors that no public call raises, each with its purpose."""
ROOMS_OF_THEIR_OWN = ("cli", "compat", "simulation", "testing")
"""Packages with errors of their own: commands print theirs, the others export theirs."""


@pytest.mark.parametrize("place", HOMES)
def test_every_listed_name_can_be_imported(place: str) -> None:
    module = import_module(place)
    listed = set(module.__all__) - {"__version__"}
    assert listed == set(HOMES[place])
    parts = PARTS if place == TOP else ()
    assert dir(module) == sorted([*module.__all__, *parts])
    assert module.__doc__
    for name in listed:
        found = getattr(module, name)
        assert found.__name__ == name
        assert getattr(module, name) is found
        if isinstance(found, type):  # pickles contain the module of a class
            assert found.__module__.startswith(HOMES[place][name])
    space: dict[str, Any] = {}
    exec(f"from {place} import *", space)  # noqa: S102 - our own text
    assert set(space) - {"__builtins__", "__version__"} == listed


def test_odradek_itself_has_at_most_40_names() -> None:
    assert len(set(odradek.__all__)) == len(odradek.__all__) <= 40
    assert set(MOVED).isdisjoint(dir(odradek))
    assert len(MOVED) > 300


def test_a_name_is_in_two_modules_only_on_purpose() -> None:
    own = [name for homes in MODULES.values() for names in homes.values() for name in names.split()]
    assert len(own) == len(set(own))
    for place, names in ALSO.items():
        for name in names.split():
            assert name in own
            assert name not in " ".join(MODULES[place].values()).split()


def test_the_errors_module_contains_every_error_and_nothing_else() -> None:
    errors = [getattr(odradek.errors, name) for name in odradek.errors.__all__]
    assert {one for one in errors if not issubclass(one, odradek.KafkaError)} == set()
    listed = {name for place in set(HOMES) - {*APART} for name in HOMES[place]}
    assert {name for name in listed if name.endswith("Error")} == set(odradek.errors.__all__)
    assert issubclass(odradek.errors.NoSuchOffsetError, odradek.errors.OffsetOutOfRangeError)


def test_a_moved_name_warns_once_for_each_line_that_uses_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = [line for name in MOVED for line in (f"from odradek import {name}", f"odradek.{name}")]
    program.write_text("\n".join(["import odradek", *lines]))
    space: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(program.read_text(), str(program), "exec"), space)  # noqa: S102
    assert {one.category for one in caught} == {DeprecationWarning}
    assert {one.filename for one in caught} == {str(program)}
    assert [one.lineno for one in caught] == [number + 2 for number in range(len(lines))]
    expected = [
        f"import {name} from {place}; odradek.{name} will be removed in {REMOVED_IN}"
        for name, place in MOVED.items()
        for _ in ("from", "attribute")
    ]
    assert [str(one.message) for one in caught] == expected
    for name, place in MOVED.items():
        assert space[name] is getattr(import_module(place), name)


TYPOS = [
    ("odradek", "Prodcuer", "odradek.Producer"),
    ("odradek", "KafkaEror", "odradek.KafkaError"),
    ("odradek", "NotLeaderOrFolowerError", "odradek.errors.NotLeaderOrFollowerError"),
    ("odradek", "erors", "odradek.errors"),
    ("odradek", "KafkaDataSource", "odradek.spark.KafkaDataSource"),
    ("odradek.errors", "KafkaEror", "odradek.errors.KafkaError"),
    ("odradek.errors", "Producer", "odradek.Producer"),
    ("odradek.admin", "AclBindings", "odradek.admin.AclBinding"),
    ("odradek.monitoring", "prometheus_txt", "odradek.monitoring.prometheus_text"),
    ("odradek.serialization", "AvroSerialiser", "odradek.serialization.AvroSerializer"),
    ("odradek.spark", "write_batches", "odradek.spark.write_batch"),
    ("odradek.testing", "FakeKluster", "odradek.testing.FakeCluster"),
    ("odradek.types", "OffsetRanges", "odradek.types.OffsetRange"),
    ("odradek.workers", "AsyncWorker", "odradek.workers.AsyncWorkers"),
]


@pytest.mark.parametrize(("place", "name", "meant"), TYPOS)
def test_the_error_for_a_misspelt_public_name_suggests_the_right_name(
    place: str, name: str, meant: str
) -> None:
    said = f"^module '{place}' has no attribute '{name}'; did you mean {meant}\\?$"
    with pytest.raises(AttributeError, match=said):
        getattr(import_module(place), name)
    assert not hasattr(import_module(place), name)
    many = "\n".join(f"name_{number} = {number}" for number in range(300))  # a long list of names
    for code in (f"from {place} import {name}", f"{many}\nfrom {place} import {name} as other"):
        with pytest.raises(ImportError, match=said):
            exec(code, {})  # noqa: S102 - our own text


@pytest.mark.slow
def test_public_modules_load_nothing_before_a_name_is_used() -> None:
    code = (
        f"import sys, {', '.join(HOMES)};"
        "print(*sorted(name for name in sys.modules if name.startswith('odradek')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    table = {"odradek.common", "odradek.common.public_names", "odradek.spark.versions"}
    assert set(done.stdout.split()) == {*HOMES, *table}


@pytest.mark.slow
def test_submodules_are_attributes_of_the_package() -> None:
    code = (
        "import odradek;"
        f"[getattr(odradek, part) for part in {PARTS}];"
        "from odradek import errors, testing, record, api;"
        "print(errors.TlsError.__name__, testing.__name__, record.__name__, api.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    assert done.stdout.split() == ["TlsError", "odradek.testing", "odradek.record", "odradek.api"]


def test_help_shows_the_names_of_a_module_and_no_deprecated_one() -> None:
    text = pydoc.plain(pydoc.render_doc(odradek))
    assert "class Producer(" in text
    assert "class AclBinding(" not in text
    assert "class AclBinding(" in pydoc.plain(pydoc.render_doc(odradek.admin))


CLASS = re.compile(r"^class (\w+)\(([^)]*)\):", re.MULTILINE)


def errors_in_the_sources() -> set[str]:
    """Return all direct and indirect subclasses of `KafkaError`."""
    bases: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in ROOMS_OF_THEIR_OWN:
            continue
        for name, above in CLASS.findall(path.read_text()):
            bases[name] = set(re.split(r",\s*", above.strip()))
    found = {"KafkaError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


def test_every_error_class_is_exported_by_odradek_errors() -> None:
    errors = errors_in_the_sources()
    assert len(errors) > 180
    assert {"KafkaError", "LogTruncationError", "DataLossError", "SinkRowError"} <= errors
    assert errors - set(odradek.errors.__all__) == set(INSIDE)


@pytest.mark.parametrize("tool", ["generate_front", "generate_asyncio"])
def test_generated_modules_are_up_to_date(tool: str) -> None:
    for path, text in load_tool(tool).files().items():
        assert path.read_text() == text, f"run tools/{tool}.py: {path.name} is old"


@pytest.mark.parametrize("place", HOMES)
def test_a_type_stub_lists_exactly_the_public_names(place: str) -> None:
    tree = ast.parse(load_tool("generate_front").stub_path(place).read_text())
    names = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    parts = {*PARTS, "*"} if place == TOP else set()
    assert names == {*HOMES[place], *parts}
    assert not [node for node in tree.body if isinstance(node, ast.FunctionDef)]


KINDS = {
    "producer": odradek.ProducerOptions,
    "consumer": odradek.ConsumerOptions,
    "admin": odradek.AdminOptions,
}


@pytest.mark.parametrize("client", KINDS)
def test_the_typed_dict_of_options_has_every_option_of_a_client(client: str) -> None:
    theirs = {o.name.replace(".", "_") for o in OPTIONS.values() if client in o.clients}
    assert set(get_type_hints(KINDS[client])) == theirs


def fixed_values(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [value for part in get_args(kind) for value in fixed_values(part)]


@pytest.mark.parametrize("client", KINDS)
def test_clients_accept_every_literal_value_in_the_types_of_options(client: str) -> None:
    listed = 0
    for name, kind in get_type_hints(KINDS[client]).items():
        option = OPTIONS[name.replace("_", ".")]
        for value in fixed_values(kind):
            option.parse(option.name, value)
            listed += 1
    assert listed > 20


def test_types_of_options_accept_python_values_like_lists() -> None:
    options: odradek.ProducerOptions = {"bootstrap_servers": ["h:1", "h:2"], "acks": "all"}
    assert Config("producer", options)["acks"] == -1


@pytest.mark.parametrize("name", ["compat", "spark", "testing"])
def test_the_error_of_a_package_that_is_not_imported_yet_names_the_import(name: str) -> None:
    code = f"import odradek; odradek.{name}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S
    )
    assert f"write import odradek.{name} first" in done.stderr
