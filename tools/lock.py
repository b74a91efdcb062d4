"""Write the lock files: everything pinned, with hashes and no URLs.

`requirements.lock` holds every dependency of pyproject.toml with all extras;
`benchmarks/requirements.lock` the Python peers of benchmarks and scorecard, and
`benchmarks/spark_jvm/requirements.lock` Spark 4.2.0, `tests/interop/async_packages.lock` what tests
of asyncio code are made with, `tests/interop/schema_packages.lock` confluent-kafka with its
serializers, `tools/dist_packages.lock` what makes and checks wheels, `tools/range_packages.lock`
what resolves the ends of ranges, `tools/website/check_packages.lock` what drives a browser; those
live in venvs of their own. Run it with the venv's Python (`make lock`) after a change. Pins that
still fit are kept; `--upgrade` looks for newer ones.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path("benchmarks")
OLDER_SPARK = PEERS / "spark_jvm"
INTEROP = Path("tests/interop")
TOOLS = Path("tools")
WEBSITE = TOOLS / "website"
HEADER = """\
# {what}: pinned, with the hashes of all their files, no URLs.
# Written by `make lock` from {source}; good for Python 3.11 to 3.14.
"""


def main() -> None:
    """Lock the project, then what has a venv of its own."""
    compile_lock(
        Path("pyproject.toml"),
        Path("requirements.lock"),
        "Every dependency with all extras",
        "--all-extras",
    )
    compile_lock(
        PEERS / "requirements.in",
        PEERS / "requirements.lock",
        "The Python peers of benchmarks and scorecard",
    )
    compile_lock(
        OLDER_SPARK / "requirements.in",
        OLDER_SPARK / "requirements.lock",
        "Spark 4.2.0, for its JVM connector and for Odradek on it",
    )
    compile_lock(
        INTEROP / "async_packages.in",
        INTEROP / "async_packages.lock",
        "What tests of asyncio code are made with",
    )
    compile_lock(
        INTEROP / "schema_packages.in",
        INTEROP / "schema_packages.lock",
        "confluent-kafka with its serializers",
    )
    compile_lock(
        TOOLS / "dist_packages.in",
        TOOLS / "dist_packages.lock",
        "What makes and checks distributions",
    )
    compile_lock(
        WEBSITE / "check_packages.in",
        WEBSITE / "check_packages.lock",
        "What looks at the site in a browser",
    )
    compile_lock(
        TOOLS / "range_packages.in",
        TOOLS / "range_packages.lock",
        "What finds the ends of ranges of versions",
    )


def compile_lock(source: Path, lock: Path, what: str, *more: str) -> None:
    """Run pip-compile with nothing of this machine's pip settings but the index."""
    environment = dict(os.environ)
    # A directory of wheels on this machine is no place that others can install from.
    environment.pop("PIP_FIND_LINKS", None)
    command = [
        sys.executable, "-m", "piptools", "compile", "--quiet",
        "--generate-hashes", "--strip-extras", "--allow-unsafe",
        "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host",
        "--no-emit-options", "--no-header", "--no-annotate", "--resolver=backtracking",
        f"--output-file={lock}", str(source), *more, *sys.argv[1:],
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    written = ROOT / lock
    lines = [
        line
        for line in written.read_text().splitlines()
        # Extras that are made of others name us ourselves, with this machine's path.
        if line and not line.startswith(("#", "--", "odradek @ "))
    ]
    written.write_text(HEADER.format(what=what, source=source.name) + "\n".join(lines) + "\n")
    pins = sum("==" in line for line in lines)
    print(f"{lock}: {pins} packages")


if __name__ == "__main__":
    main()
