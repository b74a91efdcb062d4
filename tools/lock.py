"""Write the lock files: everything pinned, with hashes and no URLs.

`requirements.lock` holds every dependency of pyproject.toml with all extras;
`benchmarks/requirements.lock` the Python peers of benchmarks and scorecard, and
`benchmarks/spark_jvm/requirements.lock` Spark 4.2.0, `tests/interop/async_packages.lock` what tests
of asyncio code are made with, `tests/interop/schema_packages.lock` confluent-kafka with its
serializers, `tools/dist_packages.lock` what makes and checks wheels, `tools/mutant_packages.lock`
mutmut, `tools/range_packages.lock` what resolves the ends of ranges,
`tools/website/check_packages.lock` what drives a browser; those live in venvs of their own. Run it
with the venv's Python (`make lock`) after a change. uv resolves them, for all Pythons and platforms
at once: what only some need has a marker. It reads the metadata of packages and builds none, so
their build requirements (Kerberos' `krb5-config`) aren't needed. Pins that still fit are kept;
`--upgrade` looks for newer ones.
"""

import os
import subprocess
import sys
from pathlib import Path

from range_ends import uv_command

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path("benchmarks")
OLDER_SPARK = PEERS / "spark_jvm"
INTEROP = Path("tests/interop")
TOOLS = Path("tools")
WEBSITE = TOOLS / "website"
OLDEST = "3.11"
HEADER = """\
# {what}: pinned, with the hashes of all their files, no URLs.
# Written by `make lock` from {source}; good for Python {oldest} and newer.
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
    compile_lock(
        TOOLS / "mutant_packages.in",
        TOOLS / "mutant_packages.lock",
        "mutmut, beside the packages of requirements.lock",
        "--constraint=requirements.lock",
    )


def compile_lock(source: Path, lock: Path, what: str, *more: str) -> None:
    """Run uv with nothing of this machine's settings but the index."""
    environment = dict(os.environ)
    # A directory of wheels on this machine is no place that others can install from.
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        environment.pop(name, None)
    command = [
        *uv_command(), "pip", "compile", "--quiet", "--no-config", "--universal",
        "--python-version", OLDEST, "--generate-hashes", "--strip-extras", "--no-header",
        "--no-annotate", "--no-emit-package", "odradek",
        f"--output-file={lock}", str(source), *more, *sys.argv[1:],
    ]  # fmt: skip
    if subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode != 0:
        sys.exit(f"{lock}: nothing was written")
    written = ROOT / lock
    lines = [
        line
        for line in written.read_text().splitlines()
        if line and not line.startswith(("#", "--"))
    ]
    header = HEADER.format(what=what, source=source.name, oldest=OLDEST)
    written.write_text(header + "\n".join(lines) + "\n")
    pins = sum("==" in line for line in lines)
    print(f"{lock}: {pins} packages")


if __name__ == "__main__":
    main()
