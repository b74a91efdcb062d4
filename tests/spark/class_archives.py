"""Create archives of Spark's classes, which halve the time of a JVM's start and first queries.

In: a Python with PySpark, a Java that can write archives. Out: the JVM options of Spark in these
tests (`java_options`). An archive is created once per machine, in the set-up of `make test`
(`python -m tests.spark.class_archives`) by the program `class_training`; without one Spark starts
normally. The JVM checks that an archive fits, and ignores it otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from benchmarks.spark_jvm import environment

from odradek.testing.java import cache_directory, java_home

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Small queries would spend half of their time in Java's second compiler."""
TRAINING = Path(__file__).with_name("class_training.py")
PATIENCE_S = 300


def jars_of(python: str) -> Path:
    """Return the folder of the jars of a Python's Spark."""
    (found,) = Path(python).parent.parent.glob("lib/python3*/site-packages/pyspark/jars")
    return found


def archive_of(python: str) -> Path:
    """Return the path of the archive for this Python's Spark and the installed Java."""
    home, jars = java_home(), jars_of(python)
    release = home / "release"
    text = release.read_text() if release.is_file() else ""
    identity = f"{home}:{text}:{jars}:{jars.stat().st_mtime_ns}"
    return cache_directory() / f"classes-spark-{zlib.crc32(identity.encode()):08x}.jsa"


def java_options(python: str = sys.executable) -> str:
    """Return the JVM options for a Spark of this Python that runs only briefly."""
    archive = archive_of(python)
    if not archive.is_file():
        return QUICK_JVM
    return f"{QUICK_JVM} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable"


def create_archive(python: str) -> str:
    """Create the archive for a Python's Spark unless it exists; return what was done."""
    archive = archive_of(python)
    if archive.is_file():
        return "exists"
    if not (java_home() / "lib" / "server" / "classes.jsa").exists():
        return "not created: this Java has no archive of its own, so it can't write ours"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        variables = environment.variables_of(python)
        variables["SPARK_SUBMIT_OPTS"] = (
            f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        )
        done = subprocess.run(
            [python, str(TRAINING), folder],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0 or not made.is_file():
            return f"not created: {done.stderr.strip()[-500:]}"
        os.replace(made, archive)  # noqa: PTH105 - in one step, over another's if there is one
    return "created"


def main() -> None:
    """Create the archives for the Spark of the project and for the oldest one."""
    said = [f"Spark of the project: {create_archive(sys.executable)}"]
    try:
        said.append(f"oldest Spark: {create_archive(environment.make().python)}")
    except environment.UnavailableError as error:
        said.append(f"oldest Spark: {error}")
    sys.stdout.write("\n".join(said) + "\n")


if __name__ == "__main__":
    main()
