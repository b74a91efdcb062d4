"""Write `requirements.lock`: every dependency with all extras, pinned, with hashes and no URLs.

Run it with the venv's Python (`make lock`) after a change of the dependencies in pyproject.toml.
Pins that still fit are kept; `--upgrade` looks for newer ones.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Every dependency with all extras: pinned, with the hashes of all their files, no URLs.
# Written by `make lock` from pyproject.toml; good for Python 3.11 to 3.13.
"""


def main() -> None:
    """Run pip-compile with nothing of this machine's pip settings but the index."""
    environment = dict(os.environ)
    # A directory of wheels on this machine is no place that others can install from.
    environment.pop("PIP_FIND_LINKS", None)
    lock = ROOT / "requirements.lock"
    command = [
        sys.executable, "-m", "piptools", "compile", "--quiet",
        "--generate-hashes", "--all-extras", "--strip-extras", "--allow-unsafe",
        "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host",
        "--no-emit-options", "--no-header", "--no-annotate", "--resolver=backtracking",
        f"--output-file={lock.name}", "pyproject.toml", *sys.argv[1:],
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    lines = [
        line for line in lock.read_text().splitlines() if line and not line.startswith(("#", "--"))
    ]
    lock.write_text(HEADER + "\n".join(lines) + "\n")
    pins = sum("==" in line for line in lines)
    print(f"{lock.name}: {pins} packages")


if __name__ == "__main__":
    main()
