"""Create the environment: a venv with Spark 4.2.0, the connector's jars, the compiled stub.

In: the lock and the list of jars in this folder, the stub's source. Out: the Python to run and the
jars for Spark, or the reason why there are none. Must not: touch the project's venv. The stub is
compiled by the Scala compiler in pyspark's own jars, so no JDK is needed.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import building

from odradek.testing import jars
from odradek.testing.errors import ClusterStartError
from odradek.testing.java import java_home

GROUP = "spark-jvm"
HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
JARS = HERE / "spark-kafka-4.2.0.txt"
LOCK = HERE / "requirements.lock"
STAND_IN = HERE / "TokenStandIn.scala"
BUILDERS = ("setuptools==", "wheel==", "packaging==")
_COMPILER = ("scala-compiler", "scala-library", "scala-reflect")
_AGAINST = ("scala-library", "spark-core", "spark-common-utils")


class UnavailableError(Exception):
    """The environment isn't available on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Commands that start Spark 4.2.0, with or without the JVM connector."""

    python: str
    jars: tuple[str, ...]

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a Spark process, with our package on its path."""
        return {**variables_of(self.python), "PYTHONPATH": str(SOURCE)}


def variables_of(python: str) -> dict[str, str]:
    """Return the environment variables of a Spark process with this Python."""
    kept = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    return {
        **kept,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def make() -> Environment:
    """Return the environment, which the first call creates."""
    built = building.python_with(GROUP, LOCK, BUILDERS)
    if built.command is None:
        raise UnavailableError(f"no environment with Spark 4.2.0: {built.reason}")
    try:
        home = java_home()
        fetched = jars.fetch_listed(JARS)
    except ClusterStartError as error:
        raise UnavailableError(f"no JVM connector: {error}") from error
    python = Path(built.command[0])
    (spark,) = python.parent.parent.glob("lib/python*/site-packages/pyspark/jars")
    found = [*sorted(fetched.glob("*.jar")), _stand_in(home, spark)]
    return Environment(str(python), tuple(map(str, found)))


def _stand_in(home: Path, spark: Path) -> Path:
    """Compile the stub of the token provider, which the connector's classes refer to."""

    def compile_into(target: Path) -> str:
        return building.command_failure(
            [str(home / "bin" / "java"), "-cp", _path(spark, _COMPILER), "scala.tools.nsc.Main",
             "-classpath", _path(spark, _AGAINST), "-d", str(target / "stand-in.jar"),
             str(STAND_IN)]
        )  # fmt: skip

    folder, reason = building.once(GROUP, "stand-in", [STAND_IN], ["4.2.0"], compile_into)
    if reason:
        raise UnavailableError(f"the replacement of the token provider can't be compiled: {reason}")
    return folder / "stand-in.jar"


def _path(folder: Path, names: tuple[str, ...]) -> str:
    return os.pathsep.join(str(p) for p in sorted(folder.glob("*.jar")) if p.name.startswith(names))


def main() -> None:
    """Create the environment and print the path of its Python."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        made = make()
    except UnavailableError as error:
        sys.exit(str(error))
    print(made.python)
    for jar in made.jars:
        print(jar)


if __name__ == "__main__":
    main()
