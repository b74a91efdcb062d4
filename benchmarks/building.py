"""Build the drivers of other clients in the user's cache, only if something has changed.

In: sources in Java, Go and C, lists of Python packages. Out: commands, or the reason why there is
none. Must not: write into the work tree, or fail if a language isn't installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.testing import jars
from odradek.testing.errors import ClusterStartError
from odradek.testing.java import cache_directory, java_home

# The Kafka client and the logging facade that it needs. With the folder's Log4j it would log to
# standard output, which the harness reads.
CLIENT_JARS = ("org.apache.kafka.kafka-clients-", "org.slf4j.slf4j-api-")
_GO_SOURCES = (".go", ".mod", ".sum")
_BUILD_TIMEOUT_S = 540.0  # the first time, Go downloads and compiles some forty packages
_ERROR_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Built:
    """The command that starts a driver, or None and the reason why there is none."""

    command: list[str] | None
    reason: str = ""


def java_driver(
    group: str, source: Path, options: Sequence[str], library_jars: Sequence[str] = CLIENT_JARS
) -> Built:
    """Return the command that starts a Java driver: one source file with a class of its name."""
    try:
        java = java_home() / "bin" / "java"
        folder = jars.fetch(jars.DEFAULT_VERSION)
    except ClusterStartError as error:
        return Built(None, str(error))
    names = tuple(library_jars)
    libraries = [str(path) for path in sorted(folder.iterdir()) if path.name.startswith(names)]

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

    release = str((java.parent.parent / "release").resolve())  # one folder for each JDK
    folder, reason = once(group, "java", [source], [release, *libraries], compile_into)
    if reason:
        return Built(None, f"the Java driver can't be built: {reason}")
    path = os.pathsep.join([str(folder), *libraries])
    return Built([str(java), *options, "-cp", path, source.stem])


def go_driver(group: str, module: Path) -> Built:
    """Return the program that Go builds from a folder with a `go.mod`."""
    go = find_go()
    if go is None:
        return Built(None, "Go isn't on PATH or in its usual place")
    sources = sorted(path for path in module.iterdir() if path.suffix in _GO_SOURCES)

    def build_into(target: Path) -> str:
        return _failure(
            _run([go, "build", "-mod=readonly", "-trimpath", "-o", str(target / "driver"), "."],
                 module)
        )  # fmt: skip

    folder, reason = once(group, "go", sources, [_run([go, "version"]).stdout], build_into)
    if reason:
        return Built(None, f"the Go driver can't be built: {reason}")
    return Built([str(folder / "driver")])


def find_go() -> str | None:
    """Return the path of Go, which its installer often doesn't add to PATH."""
    found = shutil.which("go")
    if found is not None:
        return found
    usual = Path("/usr/local/go/bin/go")
    return str(usual) if os.access(usual, os.X_OK) else None


def librdkafka_driver(group: str, source: Path) -> Built:
    """Return the program built by a C compiler with the librdkafka in confluent-kafka's wheel."""
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        return Built(None, "no C compiler (cc, gcc or clang) on PATH")
    library = _bundled_librdkafka()
    if library is None:
        return Built(None, "confluent-kafka isn't installed as a wheel that carries librdkafka")

    def compile_into(target: Path) -> str:
        return _failure(
            _run(
                [compiler, "-O2", str(source), str(library), f"-Wl,-rpath,{library.parent}",
                 "-o", str(target / "driver")]
            )
        )  # fmt: skip

    folder, reason = once(group, "c", [source], [compiler, str(library)], compile_into)
    if reason:
        return Built(None, f"the C driver can't be built: {reason}")
    return Built([str(folder / "driver")])


def _bundled_librdkafka() -> Path | None:
    try:
        files = importlib.metadata.files("confluent-kafka") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(f.locate())).resolve() for f in files if f.name.startswith("librdkafka")]
    return found[0] if found else None


def python_with(group: str, lock: Path, builders: Sequence[str] = ()) -> Built:
    """Return the Python of a venv with the packages of a lock file; create it if necessary.

    The packages in `builders` are pinned build tools for packages without wheels; otherwise pip
    would download unpinned ones.
    """
    base = folder_of(group)
    base.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(sys.version.encode() + lock.read_bytes()).hexdigest()[:16]
    venv = (
        base / f"python-{key}"
    )  # created in place and never renamed, because a venv contains its own path
    python = venv / "bin" / "python"
    with (base / "python.lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if (venv / "complete").exists():
            return Built([str(python)])
        shutil.rmtree(venv, ignore_errors=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                   "--require-hashes", "--requirement"]  # fmt: skip
        commands = [[sys.executable, "-m", "venv", str(venv)], [*install, str(lock)]]
        if builders:
            pins = base / "builders.lock"
            wanted = [pin for pin in read_lock(lock) if pin.startswith(tuple(builders))]
            pins.write_text("\n".join(wanted) + "\n")
            commands[1:] = [[*install, str(pins)], [*install, str(lock), "--no-build-isolation"]]
        for command in commands:
            if reason := _failure(_run(command)):
                return Built(None, f"its set-up failed: {reason}")
        (venv / "complete").touch()
    return Built([str(python)])


def read_lock(lock: Path) -> list[str]:
    """Return the entries of a lock file, each in one line with its hashes."""
    lines = (line for line in lock.read_text().splitlines() if not line.startswith("#"))
    return [entry for entry in "\n".join(lines).replace("\\\n", " ").splitlines() if entry.strip()]


def folder_of(group: str) -> Path:
    """Return the cache folder for the drivers of one group."""
    return cache_directory() / group


def once(
    group: str,
    name: str,
    sources: Iterable[Path],
    also: Iterable[str],
    build: Callable[[Path], str],
) -> tuple[Path, str]:
    """Return the folder that `build` filled for these inputs; if it failed, the reason."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("\0".join(also).encode())
    base = folder_of(group)
    target = base / f"{name}-{digest.hexdigest()[:16]}"
    if target.is_dir():  # only a complete folder gets this name
        return target, ""
    base.mkdir(parents=True, exist_ok=True)
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():  # built by another process meanwhile
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


def command_failure(command: list[str]) -> str:
    """Run a program and return why it failed; "" if it succeeded."""
    return _failure(_run(command))


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a program failed; "" if it succeeded."""
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).splitlines()[-_ERROR_TAIL_LINES:]
    return "\n".join(lines) or f"{done.args[0]} ended with status {done.returncode}"
