"""Install the distributions of `make dist` as users do, and run the README's example there.

In: dist/, and the interpreters of this machine. Each wheel for one of them is installed into an
empty environment whose PATH has no compiler; the README's Produce and Consume run on a
`FakeCluster`, and all kernels must be native. With one wheel the command `odradek demo --simulated`
runs too. The sdist is installed with the machine's compiler, without one (pip downloads the
`ziglang` wheel then), and with none available at all: then pure Python works, with a warning. Out:
a line for each, also for those that weren't run. Other interpreters are passed as arguments:
`--python COMMAND` for one that creates environments, for example in a chroot, `--foreign
TAGS=COMMAND` for one that only runs unpacked wheels, for example under an emulator.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PROBE = ROOT / "tools" / "dist_probe.py"
WORK = ROOT / "build" / "dist" / "check"
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
PATIENCE = 900
"""Timeout of one command in seconds; an emulator is slow."""
DEMO = 9.0
"""Maximum processor seconds for installing a wheel with a warm pip cache and running the demo.

Both take six seconds on an idle machine, and half as many again if other processes evict the CPU
caches."""
TAGS = """
import platform, sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
number = f"cp{sys.version_info[0]}{sys.version_info[1]}"
libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
print(f"{number}-{number}{free}-{libc}", platform.machine())
"""


class CheckError(Exception):
    """An installed distribution doesn't work; the message has the reason."""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can create environments."""

    command: tuple[str, ...]
    """Command that starts the interpreter: its path, after any prefix such as chroot."""
    tags: str
    """Prefix of the tags of this interpreter's wheels: cp311-cp311-manylinux."""
    machine: str

    def takes(self, wheel: Path) -> bool:
        """Return whether this interpreter can install the wheel."""
        return f"-{self.tags}" in wheel.name and wheel.stem.endswith(f"_{self.machine}")

    def environment(self, name: str) -> list[str]:
        """Create an empty environment and return the command that starts its Python."""
        folder = WORK / name
        shutil.rmtree(folder, ignore_errors=True)
        run([*self.command, "-m", "venv", str(folder)], bare(folder))
        return [*self.command[:-1], str(folder / "bin" / "python")]


def main() -> None:
    """Try all distributions, and fail at the end if any of them failed."""
    arguments = parse()
    sdist = next(DIST.glob("*.tar.gz"), None)
    if sdist is None:
        sys.exit("dist-check: dist/ has no sdist: run `make dist` first")
    WORK.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    pythons = find_interpreters(arguments.python)
    foreign = dict(one.split("=", 1) for one in arguments.foreign)
    jobs, untested = plan(sdist, pythons, foreign, arguments.only)
    failed = []
    for number, (what, job) in enumerate(jobs, 1):
        begin = time.monotonic()
        try:
            result = job()
        except CheckError as error:
            failed.append(what)
            result = f"FAILED: {error}"
        took = time.monotonic() - begin
        say(f"{number} of {len(jobs)}, {took:.0f} s: {what}: {result}")
    for name in untested:
        say(f"not run, no interpreter for it is here: {name}")
    say(f"{len(jobs) - len(failed)} of {len(jobs)} work, {time.monotonic() - start:.0f} s")
    if failed or not jobs:
        sys.exit(f"dist-check: {', '.join(failed) or 'nothing to try'}: failed")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    for name, words, text in (
        ("--python", "COMMAND", "path of another Python, after any prefix command"),
        ("--foreign", "TAGS=COMMAND", "what runs wheels with such tags: it only gets PYTHONPATH"),
    ):
        parser.add_argument(name, metavar=words, action="append", default=[], help=text)
    parser.add_argument("--only", metavar="TEXT", default="", help="what has this in its name")
    return parser.parse_args()


Job = tuple[str, Callable[[], str]]


def plan(
    sdist: Path, pythons: list[Interpreter], foreign: dict[str, str], only: str
) -> tuple[list[Job], list[str]]:
    """Return the jobs in order, and the wheels that no interpreter here can test."""
    jobs: list[Job] = []
    untested: list[str] = []
    demo = True
    for wheel in sorted(DIST.glob("*.whl")):
        command = next((words for tags, words in foreign.items() if fits(tags, wheel)), None)
        python = next((one for one in pythons if one.takes(wheel)), None)
        if python is not None:
            jobs.append((wheel.name, lambda w=wheel, p=python, d=demo: try_wheel(w, p, demo=d)))
            demo = False
        elif command is not None:
            jobs.append((wheel.name, lambda w=wheel, c=command: try_foreign(w, shlex.split(c))))
        else:
            untested.append(wheel.name)
    if pythons:
        own = pythons[0]
        jobs += [
            (
                f"{sdist.name}, the machine's compiler",
                lambda: try_sdist(sdist, own, os.environ["PATH"]),
            ),
            (f"{sdist.name}, pip's compiler", lambda: try_sdist(sdist, own, "")),
            (f"{sdist.name}, no compiler at all", lambda: try_plain(sdist, own)),
        ]
    chosen = [job for job in jobs if only in job[0]]
    return chosen, [name for name in untested if only in name]


def fits(tags: str, wheel: Path) -> bool:
    """Return whether a wheel has all of these tags, as in cp314-cp314-musllinux+aarch64."""
    return all(tag in wheel.name for tag in tags.split("+"))


def find_interpreters(given: list[str]) -> list[Interpreter]:
    """Return a Python of each version on PATH, in pyenv and uv, and the interpreters in `given`."""
    commands = [tuple(shlex.split(one)) for one in given]
    for version in VERSIONS:
        number = version.rstrip("t")
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        uv = Path.home() / ".local" / "share" / "uv" / "python"
        for folder, pattern in ((pyenv, f"{number}.*/bin"), (uv, f"cpython-{number}.*/bin")):
            commands += [(str(one / f"python{version}"),) for one in sorted(folder.glob(pattern))]
        if found := shutil.which(f"python{version}"):
            commands.append((found,))
    return list({one.tags: one for one in map(ask, reversed(commands)) if one}.values())[::-1]


def ask(command: tuple[str, ...]) -> Interpreter | None:
    """Return a command's interpreter; None if it doesn't start or can't create environments."""
    whole = (shutil.which(command[0]) or command[0], *command[1:])
    try:
        done = subprocess.run(
            [*whole, "-c", "import ensurepip, venv" + TAGS],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    except OSError:
        return None
    words = done.stdout.split()
    return Interpreter(whole, *words) if len(words) == 2 else None


def try_wheel(wheel: Path, python: Interpreter, *, demo: bool) -> str:
    """Install a wheel without a compiler and run the example; with `demo`, run the demo, too."""
    command = python.environment("wheel")
    install(command, str(wheel), "")
    said = run_example(command, "native")
    return f"{said}; {show_demo(wheel, python)}" if demo else said


def show_demo(wheel: Path, python: Interpreter) -> str:
    """Check the processor time of installing a wheel with a warm pip cache and running the demo."""
    command = python.environment("wheel")
    begin, before = time.monotonic(), os.times()
    install(command, str(wheel), "")
    program = [*command[:-1], str(WORK / "wheel" / "bin" / "odradek")]
    shown = [*program, "demo", "--simulated", "--output", str(WORK / "demo")]
    told = run(shown, bare(WORK / "wheel"))
    took, after = time.monotonic() - begin, os.times()
    worked = sum(after[2:4]) - sum(before[2:4])
    if "matches_reference  True" not in told:
        raise CheckError(f"the demo doesn't say that all matches: {told[-500:]}")
    said = f"installed and the demo run in {took:.1f} s, {worked:.1f} s of them at work"
    if worked > DEMO:  # processor time, so that a busy machine doesn't fail a wheel
        raise CheckError(f"{said}: more than {DEMO:g}")
    return said


def try_foreign(wheel: Path, command: list[str]) -> str:
    """Unpack a wheel and its dependencies with this machine's pip, and run the example with it."""
    folder = WORK / "foreign"
    shutil.rmtree(folder, ignore_errors=True)
    _, _, number, _, platforms = wheel.stem.split("-")
    names = [f"--platform={name}" for name in platforms.split(".")]
    newer = ["manylinux_2_28", "manylinux_2_34"] if "manylinux" in platforms else ["musllinux_1_1"]
    machine = re.sub(r"^\D+\d+_\d+_", "", platforms.split(".")[0])
    names += [f"--platform={name}_{machine}" for name in newer]
    run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *names,
         f"--python-version={number[2:]}", f"--target={folder}", str(wheel)],
        dict(os.environ),
    )  # fmt: skip
    program = shutil.which(command[0]) or command[0]
    return run_example([program, *command[1:]], "native", PYTHONPATH=str(folder))


def try_sdist(sdist: Path, python: Interpreter, path: str) -> str:
    """Install the sdist with the compilers on a path, or with the one that pip downloads."""
    command = python.environment("sdist")
    install(command, str(sdist), path)
    return run_example(command, "native")


def try_plain(sdist: Path, python: Interpreter) -> str:
    """Install the sdist without any compiler: the installation must warn, and work."""
    command = python.environment("sdist")
    install(command, "setuptools>=77", "")
    install(command, "Cython>=3.1", "")
    install(command, "wheel", "")
    install(
        command, str(sdist), "", "--no-build-isolation", "--config-settings=--global-option=--quiet"
    )
    code = "from odradek import record; print(record.kernel_warning())"
    told = run([*command, "-c", code], bare(WORK / "sdist"))
    if "isn't built" not in told:
        raise CheckError(f"no warning that the kernels are missing: {told}")
    return run_example(command, "python")


def install(command: list[str], what: str, path: str, *more: str) -> None:
    """Install a package with an environment's pip, with `path` after the environment's own PATH."""
    folder = Path(command[-1]).parent.parent
    run([*command, "-m", "pip", "install", "--quiet", *more, what], bare(folder, path))


def run_example(command: list[str], kernel: str, **more: str) -> str:
    """Run the README's first two programs on a fake cluster, and return what they print."""
    # Resolve all symbols when a library is loaded, so that a missing symbol is noticed.
    environment = {**bare(Path(command[-1]).parent.parent), "LD_BIND_NOW": "1", **more}
    words = ["-W", "error", str(PROBE), str(ROOT / "README.md"), kernel]
    return run([*command, *words], environment).strip()


def bare(folder: Path, path: str = "") -> dict[str, str]:
    """Return environment variables without any inherited Python or compiler."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "CC", "CFLAGS", "LDFLAGS", "ODRADEK"))
    }
    return {
        **kept, "PATH": os.pathsep.join(filter(None, [str(folder / "bin"), path])),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore",
    }  # fmt: skip


def run(command: list[str], environment: dict[str, str]) -> str:
    """Run a command and return its output; if it fails, raise an error with its last lines."""
    try:
        done = subprocess.run(
            command, cwd=WORK, env=environment, capture_output=True, text=True,
            check=False, timeout=PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckError(str(error)) from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise CheckError("\n    ".join([f"exit status {done.returncode}", *lines]))
    return done.stdout


def say(what: str) -> None:
    """Print a line and flush it."""
    print(f"dist-check: {what}", flush=True)


if __name__ == "__main__":
    main()
