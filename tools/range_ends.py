"""Run the quick suite with the ends of our version ranges: `make test-lowest`, `test-newest`.

In: pyproject.toml, requirements.lock, uv as pinned in range_packages.lock. Out: a venv in
build/ranges with the lowest versions of Odradek's dependencies that pyproject.toml allows (or the
newest, regardless of requirements.lock), a list of them in `packages.txt`, and the suite's results.
With the lowest versions, packages that only tests need are as in requirements.lock, since users
don't install them; their dependencies are the newest. With --list only the versions are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "ranges"
LOCK = ROOT / "tools" / "range_packages.lock"
ENDS = {"lowest": "lowest-direct", "newest": "highest"}
OURS = "odradek["
KERBEROS, COMPILER = "gssapi", "ziglang"
TIED = ("opentelemetry", "fastapi", "import-linter")
"""Test packages that need newer versions than users' lowest ones: here also the lowest."""


def main() -> None:
    """Create the virtual environment and run the quick suite in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("end", choices=ENDS)
    parser.add_argument("--list", action="store_true", help="only tell the versions")
    arguments = parser.parse_args()
    end = arguments.end
    folder = PLACE / end
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / "wanted.in"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted.write_text("\n".join(requirements(project, end)) + "\n")
    python = folder / "venv" / "bin" / "python"
    if not is_of_this_python(folder / "venv"):
        run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")])
    environment = {**os.environ, "VIRTUAL_ENV": str(folder / "venv")}
    environment.pop("PIP_FIND_LINKS", None)
    uv = uv_command()
    packages = folder / "packages.txt"
    run(
        [*uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--upgrade",
         "--resolution", ENDS[end], "--python", str(python),
         "--output-file", str(packages), str(wanted)],
        environment,
    )  # fmt: skip
    users = direct(project, "dev", without=True)
    pins = {name_of(pin): pin.partition(" ")[0] for pin in packages.read_text().splitlines()}
    for name in sorted(set(map(name_of, users)) & set(pins)):  # with a pin here
        print(f"{end}: {pins[name]}", flush=True)
    if end == "lowest" and (idle := untested(users, pins)):
        sys.exit(f"lower ends in conflict with others, not tested: {', '.join(idle)}")
    if arguments.list:
        return
    run([*uv, "pip", "sync", "--quiet", "--python", str(python), str(packages)], environment)
    run(
        [*uv, "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
         "--python", str(python), "--editable", str(ROOT)],
        environment,
    )  # fmt: skip
    sys.exit(subprocess.run([str(python), "tools/run_tests.py", "quick"], cwd=ROOT).returncode)


def is_of_this_python(venv: Path) -> bool:
    """Return whether the venv has this Python; other versions have other ends of ranges."""
    config = venv / "pyvenv.cfg"
    lines = config.read_text().splitlines() if config.is_file() else []
    return f"version = {platform.python_version()}" in lines and (venv / "bin/python").exists()


def requirements(project: dict[str, object], end: str) -> list[str]:
    """Return the requirements for uv: users' packages with our ranges, then tests' packages."""
    users = direct(project, "dev", without=True)
    theirs = {name_of(line) for line in users}
    tests = [line for line in direct(project, "dev") if name_of(line) not in theirs]
    tests = [line for line in tests if name_of(line) != COMPILER]
    return [*users, *(pinned(line) if end == "lowest" else line for line in tests)]


def direct(project: dict[str, object], extra: str, *, without: bool = False) -> list[str]:
    """Return the direct requirements of an extra, or of the package and all other extras."""
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    own: list[str] = project["dependencies"]  # type: ignore[assignment]
    lines = extras[extra]
    if without:
        lines = [*own, *(line for name, some in extras.items() if name != extra for line in some)]
    kept = [line for line in dict.fromkeys(lines) if not line.startswith(OURS)]
    return [line for line in kept if name_of(line) != KERBEROS]


def untested(users: list[str], pins: dict[str, str]) -> list[str]:
    """Return the requirements for which a higher version than the lowest was installed."""
    found = []
    for line in users:
        floor, pin = re.search(r"[>=]=([0-9.]+)", line), pins.get(name_of(line))
        if floor and pin and without_zeros(floor[1]) != without_zeros(pin.partition("==")[2]):
            found.append(f"{line} ({pin})")
    return found


def without_zeros(version: str) -> str:
    """Return a version in its shortest form: 50 for 50.0.0."""
    return re.sub(r"(\.0)+$", "", version)


def pinned(line: str) -> str:
    """Return a test package's requirement as pinned in requirements.lock."""
    if line.startswith(TIED):
        return line
    name = name_of(line)
    found = re.search(rf"^{re.escape(name)}==(\S+)", LOCKED, re.MULTILINE)
    if found is None:
        sys.exit(f"requirements.lock doesn't have {name}: run make lock")
    return f"{line.partition('>')[0].partition('=')[0].strip()}=={found[1]}"


def name_of(line: str) -> str:
    """Return the normalized package name of a requirement or a pin."""
    match = re.match(r"[A-Za-z0-9_.-]+", line)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def uv_command() -> list[str]:
    """Return uv's command, after installing the pinned version if necessary."""
    venv = PLACE / "uv"
    stamp = venv / ".odradek-tools"
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if not (stamp.is_file() and stamp.read_text() == digest):
        run([sys.executable, "-m", "venv", "--clear", str(venv)])
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run([*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK)])
        stamp.write_text(digest)
    return [str(venv / "bin" / "uv")]


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a command; exit with its status if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])} … failed with exit status {done.returncode}")


LOCKED = (ROOT / "requirements.lock").read_text()

if __name__ == "__main__":
    main()
