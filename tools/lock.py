"""Write the lock files: all packages pinned, with hashes and no URLs.

`requirements.lock` has every dependency of pyproject.toml with all extras. The others are for
separate venvs: `benchmarks/requirements.lock` for the Python clients of benchmarks and scorecard,
`benchmarks/spark_jvm/requirements.lock` for Spark 4.2.0, `tests/interop/async_packages.lock` for
tests of asyncio code, `tests/interop/schema_packages.lock` for confluent-kafka with its
serializers, `tools/dist_packages.lock` for building and checking wheels,
`tools/mutant_packages.lock` for mutmut, `tools/range_packages.lock` for resolving the ends of
version ranges, `tools/website/check_packages.lock` for driving a browser.

Run it with the venv's Python (`make lock`) after a change. uv resolves the packages for all Pythons
and platforms at once; a package that only some need has a marker. It reads metadata and builds no
package, so build requirements (Kerberos' `krb5-config`) aren't needed. Pins that still fit are
kept; `--upgrade` looks for newer ones.
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
    """Lock the project, then the requirements of separate venvs."""
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
        "Packages for tests of asyncio code",
    )
    compile_lock(
        INTEROP / "schema_packages.in",
        INTEROP / "schema_packages.lock",
        "confluent-kafka with its serializers",
    )
    compile_lock(
        TOOLS / "dist_packages.in",
        TOOLS / "dist_packages.lock",
        "Packages that build and check distributions",
    )
    compile_lock(
        WEBSITE / "check_packages.in",
        WEBSITE / "check_packages.lock",
        "Packages that check the site in a browser",
    )
    compile_lock(
        TOOLS / "range_packages.in",
        TOOLS / "range_packages.lock",
        "Packages that resolve the ends of version ranges",
    )
    compile_lock(
        TOOLS / "mutant_packages.in",
        TOOLS / "mutant_packages.lock",
        "mutmut, beside the packages of requirements.lock",
        "--constraint=requirements.lock",
    )


def compile_lock(source: Path, lock: Path, what: str, *more: str) -> None:
    """Run uv without this machine's settings, except for the package index."""
    environment = dict(os.environ)
    # Other machines can't install from a directory of wheels on this one.
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
