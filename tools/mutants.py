"""Let mutmut mutate core modules; a test must fail for each mutation: `make mutants`.

In: MODULES with the tests that check them, mutmut as pinned in mutant_packages.lock (in a separate
venv, which also sees the packages of `.venv`), the equivalent mutants in mutants.json with a reason
each. Out: the diff of each mutant that no test noticed and that isn't listed, and of each listed
one that a test noticed or that no longer exists; both make the exit status 1.

    python tools/mutants.py           all modules, a few minutes
    python tools/mutants.py backoff   those whose path contains one of the words
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "mutants"
PYTHON = PLACE / "venv" / "bin" / "python"
WORK = PLACE / "work"
LOCK = ROOT / "tools" / "mutant_packages.lock"
EQUIVALENT = ROOT / "tools" / "mutants.json"
COPIED = ("src", "tests", "tools", "docs", "pyproject.toml")
MODULES = {
    "common/backoff.py": ["unit/common/test_backoff.py", "spec/test_kip_580.py"],
    "metadata/bootstrap.py": ["unit/metadata/test_bootstrap.py"],
    "metadata/least_loaded_node.py": ["unit/metadata/test_least_loaded_node.py"],
    "network/cluster_connection_states.py": ["unit/network/test_cluster_connection_states.py"],
    "network/connection_limiter.py": ["unit/network/test_connection_limiter.py"],
}
"""Modules below `src/odradek` that are mutated, and the tests below `tests` that run."""


def main() -> int:
    """Let mutmut mutate the modules, and compare the surviving mutants with the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only modules whose path contains one of these")
    words = parser.parse_args().words or [""]
    chosen = {m: tests for m, tests in MODULES.items() if any(word in m for word in words)}
    if not chosen:
        parser.error(f"none of {', '.join(MODULES)} contains {' or '.join(words)}")
    set_up()
    lay_out(chosen)
    subprocess.run(
        mutmut("run", "--max-children", str(len(os.sched_getaffinity(0)))), cwd=WORK, check=True
    )
    survivors = {module: set(found(module)) for module in chosen}
    listed = json.loads(EQUIVALENT.read_text())
    known = {m: {(one["old"], one["new"]) for one in listed.get(m, [])} for m in chosen}
    for module in chosen:
        for old, new in sorted(survivors[module] - known[module]):
            print(f"{module}: no test notices\n  - {old}\n  + {new}")
        for old, new in sorted(known[module] - survivors[module]):
            print(f"{module}: remove from mutants.json, it doesn't survive\n  - {old}\n  + {new}")
    print(f"{sum(map(len, survivors.values()))} survivors, {sum(map(len, known.values()))} listed")
    return int(survivors != known)


def set_up() -> None:
    """Install the pinned mutmut next to the packages of the Python that runs this program."""
    stamp = PLACE / "venv" / ".odradek-tools"
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE / "venv")], check=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    subprocess.run([*pip, "--only-binary", ":all:", "-r", str(LOCK)], check=True)
    where = [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(own, "odradek_tests.pth").write_text(line)
    stamp.write_text(digest)


def lay_out(modules: dict[str, list[str]]) -> None:
    """Write mutmut's configuration into an empty folder, with links to the sources."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name in COPIED:
        (WORK / name).symlink_to(ROOT / name)
    tests = dict.fromkeys(f"tests/{test}" for some in modules.values() for test in some)
    lists = {
        "source_paths": ["src"],
        "only_mutate": [f"src/odradek/{module}" for module in modules],
        "pytest_add_cli_args": ["-p", "no:randomly", "-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": list(tests),
    }
    lines = ["[mutmut]", *("\n    ".join([f"{key} =", *some]) for key, some in lists.items())]
    (WORK / "setup.cfg").write_text("\n".join(lines) + "\n")


def found(module: str) -> Iterable[tuple[str, str]]:
    """Yield the old and new lines of each mutant in a module that no test noticed."""
    prefix = "odradek." + module.removesuffix(".py").replace("/", ".") + "."
    said = subprocess.run(mutmut("results"), cwd=WORK, capture_output=True, text=True, check=True)
    for line in said.stdout.splitlines():
        name, _, status = line.strip().rpartition(": ")
        if name.startswith(prefix) and status in ("survived", "no tests"):
            diff = subprocess.run(
                mutmut("show", name), cwd=WORK, capture_output=True, text=True, check=True
            ).stdout
            yield changed(diff, "-"), changed(diff, "+")


def changed(diff: str, sign: str) -> str:
    """Return the lines of a diff that begin with `sign`, without the sign and indentation."""
    lines = re.findall(rf"^{re.escape(sign)}(?!{re.escape(sign * 2)})(.*)$", diff, re.MULTILINE)
    return " ".join(line.strip() for line in lines)


def mutmut(*arguments: str) -> list[str]:
    """Return the command line that starts mutmut."""
    return [str(PYTHON), "-m", "mutmut", *arguments]


if __name__ == "__main__":
    sys.exit(main())
