"""Run suites under another Python than that of `.venv`: `make test-python PYTHON=3.13`.

In: a version such as "3.13" or an interpreter's path, and names of suites (default: those that need
neither brokers nor Spark; arguments after `--` are passed to pytest). Out: a venv in build/pythons
with all packages that requirements.lock pins, the kernels compiled for it, and the output of
`tools/run_tests.py` there. A version is searched for on PATH and among pyenv's; if it is in
neither, uv, as pinned in range_packages.lock, finds or downloads it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from range_ends import ROOT, run, uv_command

PLACE = ROOT / "build" / "pythons"
SUITES = ("unit", "property", "simulation")
NAME = "import sys; print('%d.%d' % sys.version_info[:2] + ('t' if 't' in sys.abiflags else ''))"


def main() -> None:
    """Create the virtual environment and run the suites in it."""
    if len(sys.argv) < 2:
        sys.exit("which Python? make test-python PYTHON=3.13")
    wanted, suites = sys.argv[1], sys.argv[2:]
    if not suites or suites[0] == "--":
        suites = [*SUITES, *suites]
    interpreter, version = find(wanted)
    venv = PLACE / version
    environment = {**os.environ, "ODRADEK_VENV": str(venv)}
    environment.pop("VIRTUAL_ENV", None)
    run([interpreter, "tools/setup_venv.py"], environment)
    python = venv / "bin" / "python"
    sys.exit(subprocess.run([str(python), "tools/run_tests.py", *suites], cwd=ROOT).returncode)


def find(wanted: str) -> tuple[str, str]:
    """Return the interpreter with this path, name or version, and its version."""
    for one in candidates(wanted):
        if version := version_of(one):  # pyenv has launchers of versions that aren't installed
            return one, version
    if os.sep in wanted:
        sys.exit(f"{wanted} doesn't run")
    uv = uv_command()
    run([*uv, "python", "install", wanted])
    managed = [*uv, "python", "find", "--managed-python", wanted]
    one = subprocess.run(managed, check=True, capture_output=True, text=True).stdout.strip()
    return one, version_of(one) or sys.exit(f"{one} doesn't run")


def candidates(wanted: str) -> Iterator[str]:
    """Yield possible interpreters of this version on this machine, the best first."""
    for name in (wanted, f"python{wanted}"):
        if found := shutil.which(name):
            yield found
    if os.sep not in wanted:
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        yield from map(str, sorted(pyenv.glob(f"{wanted}.*/bin/python{wanted}")))


def version_of(interpreter: str) -> str | None:
    """Return the version as in "3.13" or "3.14t"; None if the interpreter doesn't run."""
    done = subprocess.run([interpreter, "-c", NAME], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    main()
