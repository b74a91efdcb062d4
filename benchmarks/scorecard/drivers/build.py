"""Builds the scorecard's drivers for Java and Go, into the user's cache and only when they changed.

In: the sources beside this file, a JDK, Go. Out: commands that take `MODE --bootstrap …`, or the
reason why there is none. Must not: write into the work tree, nor fail because a language is absent.

`python benchmarks/scorecard/drivers/build.py` builds all and prints the commands.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from odradek.testing import jars
from odradek.testing.errors import ClusterStartError
from odradek.testing.java import cache_directory, java_home

HERE = Path(__file__).parent
GO_LIBRARIES = ("franz-go", "sarama")
JAVA_CLASS = "ScorecardDriver"
# The client itself and the log facade that it doesn't start without. The Log4j beside them would
# write to standard output, which belongs to the harness.
_JAVA_JARS = ("org.apache.kafka.kafka-clients-", "org.slf4j.slf4j-api-")
_GO_SOURCES = (".go", ".mod", ".sum")
# A driver is a small client beside a dozen others: quick to start, and it stays small.
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
_BUILD_TIMEOUT_S = 540.0  # Go fetches and compiles some forty packages the first time
_ERROR_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Built:
    """A driver's command, or None and the reason."""

    command: list[str] | None
    reason: str = ""


def java_command() -> Built:
    """Return the command of the Java driver, compiled now if it isn't yet."""
    try:
        java = java_home() / "bin" / "java"
        folder = jars.fetch(jars.DEFAULT_VERSION)
    except ClusterStartError as error:
        return Built(None, str(error))
    libraries = [str(path) for path in sorted(folder.iterdir()) if path.name.startswith(_JAVA_JARS)]
    source = HERE / "java" / f"{JAVA_CLASS}.java"

    def compile_into(target: Path) -> str:
        modules = _run([str(java), "--list-modules"])
        if "jdk.compiler@" not in modules.stdout:
            return f"{java} has no compiler (module jdk.compiler): a JDK is needed, not a runtime"
        return _failure(
            _run(
                [str(java), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-encoding", "UTF-8",
                 "-cp", os.pathsep.join(libraries), "-d", str(target), str(source)]
            )
        )  # fmt: skip

    release = str((java.parent.parent / "release").resolve())  # classes of one JDK for that JDK
    folder, reason = _once("java", [source], [release, *libraries], compile_into)
    if reason:
        return Built(None, f"the Java driver can't be built: {reason}")
    path = os.pathsep.join([str(folder), *libraries])
    return Built([str(java), *_JAVA_OPTIONS, "-cp", path, JAVA_CLASS])


def go_command(library: str) -> Built:
    """Return the command of the driver of a Go library, built now if it isn't yet."""
    if library not in GO_LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(GO_LIBRARIES)}, not {library}")
    go = _find_go()
    if go is None:
        return Built(None, "no go on PATH nor in its usual place")
    sources = sorted(path for path in (HERE / "go").iterdir() if path.suffix in _GO_SOURCES)

    def build_into(target: Path) -> str:
        return _failure(
            _run([go, "build", "-mod=readonly", "-trimpath", "-o", str(target / "driver"), "."],
                 HERE / "go")
        )  # fmt: skip

    folder, reason = _once("go", sources, [_run([go, "version"]).stdout], build_into)
    if reason:
        return Built(None, f"the Go driver can't be built: {reason}")
    return Built([str(folder / "driver"), library])


def _find_go() -> str | None:
    found = shutil.which("go")
    if found is not None:
        return found
    usual = Path("/usr/local/go/bin/go")  # where Go's own installer puts it, often not on PATH
    return str(usual) if os.access(usual, os.X_OK) else None


def _once(
    name: str, sources: Iterable[Path], also: Iterable[str], build: Callable[[Path], str]
) -> tuple[Path, str]:
    """Return the folder that `build` filled for just these inputs, and why it could not."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("\0".join(also).encode())
    base = cache_directory() / "scorecard"
    target = base / f"{name}-{digest.hexdigest()[:16]}"
    if target.is_dir():  # it appeared by a rename, so it is complete
        return target, ""
    base.mkdir(parents=True, exist_ok=True)
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():  # another process was faster
            return target, ""
        work = Path(tempfile.mkdtemp(dir=base, prefix=f".{name}-"))
        try:
            reason = build(work)
            if not reason:
                work.rename(target)
            return target, reason
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True,
            timeout=_BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a compiler failed, or nothing."""
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).splitlines()[-_ERROR_TAIL_LINES:]
    return "\n".join(lines) or f"{done.args[0]} ended with status {done.returncode}"


if __name__ == "__main__":
    for label, built in [
        ("java", java_command()),
        *((library, go_command(library)) for library in GO_LIBRARIES),
    ]:
        print(json.dumps({"driver": label, "command": built.command, "reason": built.reason}))
