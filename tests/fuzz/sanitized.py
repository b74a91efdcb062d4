"""The native modules built with ASan and UBSan in a separate folder, and a Python that runs them.

In: the sources. Out: a folder with a copy of the package, or a sentence why there is none: not
every compiler has sanitizers. Nothing is written beside the sources. The user's cache keeps the
modules until their sources, the flags or the compiler change: compiling them takes over a minute of
processor time. The interpreter isn't built with sanitizers, so their library is preloaded.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import building
from tests.time_limits import HANG_S

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"
MODULE = "tests.fuzz.targets"
KERNELS = ("kernel", "kernel_encode", "kernel_columns")
REPORT_STATUS = 99
"""Exit status of a process when a sanitizer has reported something."""
# A short quarantine keeps memory in the cache (4 MB would cost a third of the cases); short stack
# traces make malloc fast.
ASAN = (
    f"exitcode={REPORT_STATUS}:detect_leaks=0:malloc_context_size=2:hard_rss_limit_mb=1500"
    ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
    ":allocator_may_return_null=0:max_allocation_size_mb=1000"
)


@dataclass(frozen=True)
class Build:
    """A folder with the copy, and the library that must be loaded first (None: plain)."""

    folder: Path
    library: str | None

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a process that runs the copy."""
        found = {**os.environ, "PYTHONPATH": f"{self.folder / 'src'}{os.pathsep}{ROOT}"}
        found |= {"PYTHONDONTWRITEBYTECODE": "1", "ODRADEK_KERNEL": "native"}
        if self.library is not None:
            # Python's own allocator would hide where one small object ends and the next begins.
            found |= {"LD_PRELOAD": self.library, "PYTHONMALLOC": "malloc"}
            found |= {"ASAN_OPTIONS": ASAN, "UBSAN_OPTIONS": "print_stacktrace=1"}
        return found | more


def compiler() -> list[str]:
    """Return the compiler to use for sanitizers."""
    for words in (os.environ.get("CC"), "gcc", "cc", "clang"):
        command = shlex.split(words or "")
        if command and shutil.which(command[0]):
            return command
    return []


def library_of(command: Sequence[str], folder: Path) -> str | None:
    """Return the path of ASan's library; None where a program with it can't be built."""
    source = folder / "try.c"
    source.write_text("int main(void) { return 0; }\n")
    program = folder / "try"
    done = subprocess.run(
        [*command, *FLAGS.split(), str(source), "-o", str(program)],
        capture_output=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    if done.returncode or subprocess.run([program], check=False, timeout=HANG_S).returncode:
        return None
    for name in ("libasan.so", "libclang_rt.asan-x86_64.so", "libclang_rt.asan.so"):
        asked = [*command, f"-print-file-name={name}"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if Path(found).is_absolute() and Path(found).exists():
            return str(Path(found).resolve())
    return None


def copy(folder: Path) -> Path:
    """Copy what a build needs, without build results; return the package's folder."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "messages.orig")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    return folder / "src" / "odradek"


def compile_copy(folder: Path, flags: str, command: Sequence[str]) -> str | None:
    """Build the native modules of a copy, unless cached; return the compiler's error."""
    record = folder / "src" / "odradek" / "record"

    def compile_into(target: Path) -> str:
        environment = {**os.environ, "CC": shlex.join(command), "CFLAGS": flags, "LDFLAGS": flags}
        done = subprocess.run(
            [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", "2"],
            cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        missing = [name for name in KERNELS if not list(record.glob(f"{name}.*.so"))]
        if done.returncode or missing:
            return f"{', '.join(missing) or 'setup.py'}: {(done.stdout + done.stderr)[-2000:]}"
        for library in record.glob("*.so"):
            shutil.copy(library, target)
        return ""

    sources = [record / f"{name}.py" for name in KERNELS]
    sources += [record / "native.pxd", record / "native.h", folder / "setup.py"]
    asked = [*command, "--version"]
    compiler = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    also = [flags, compiler, sys.version, metadata.version("cython")]
    kept, wrong = building.once("sanitized", "kernels", sources, also, compile_into)
    if wrong:
        return wrong
    for library in kept.iterdir():
        shutil.copy(library, record)
    return None


def build(folder: Path, *, sanitizers: bool = True, optimise: str = "-O1") -> Build | str:
    """Copy the package into `folder` and build it there, or return why that isn't possible."""
    command = compiler()
    if not command:
        return "there is no C compiler (gcc or clang)"
    library = library_of(command, folder) if sanitizers else None
    if sanitizers and library is None:
        return f"{shlex.join(command)} has no sanitizers here (Debian: the package libasan)"
    if not (folder / "src").exists():
        copy(folder)
    flags = f"{FLAGS if sanitizers else ''} {optimise}"
    wrong = compile_copy(folder, flags, command)
    if wrong is not None:
        return f"the kernels can't be built: {wrong}"
    made = Build(folder, library)
    # Check that the copy runs, and that it runs with the library preloaded.
    asked = run_code(
        made, "from odradek.record import kernel, kernel_encode; print(kernel.__file__)"
    )
    if not asked.stdout.startswith(str(folder)):
        return f"the copy doesn't run: {asked.stdout}{asked.stderr[-2000:]}"
    return made


def run_code(made: Build, code: str) -> subprocess.CompletedProcess[str]:
    """Run a few lines of Python with the copied package."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=made.environment(), cwd=made.folder, capture_output=True, text=True, check=False,
        timeout=HANG_S,
    )  # fmt: skip


class Process:
    """One target that runs in its own process."""

    def __init__(
        self, made: Build, target: str, folder: Path, *arguments: str, **environment: str
    ) -> None:
        self.target = target
        self._state = folder / f"{target}.state"
        self._log = (folder / f"{target}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, target, "--state", str(self._state), *arguments],
            env=made.environment(**environment), cwd=ROOT, stdout=subprocess.PIPE,
            stderr=self._log, text=True,
        )  # fmt: skip

    def wait(self, timeout: float) -> dict[str, Any]:
        """Return the process's output; `failure` is the report of a sanitizer or a crash."""
        try:
            out, _ = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return self._crash("it never ended")
        finally:
            self._log.flush()
            self._log.seek(0)
            said = self._log.read()
            self._log.close()
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if lines:
            found: dict[str, Any] = json.loads(lines[-1])
            return found
        return self._crash(f"exit status {self._process.returncode}\n{said[:6000]}")

    def _crash(self, text: str) -> dict[str, Any]:
        from tests.fuzz.targets import STATE

        state = self._state.read_bytes() if self._state.exists() else b""
        seed, index = STATE.unpack(state) if len(state) == STATE.size else (-1, -1)
        failure = {"seed": seed, "index": index, "error": "crash", "text": text}
        return {"target": self.target, "failure": failure}


def main() -> None:
    """Fill the cache with the fuzzer's native modules, or print why that isn't possible."""
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder))
    sys.stdout.write(f"{made if isinstance(made, str) else 'built'}\n")


if __name__ == "__main__":
    main()
