"""Build an sdist and wheels in dist/, byte for byte reproducible from a commit: `make dist`.

In: the files that git knows, the tools pinned in dist_packages.lock, CPython's headers
(dist_headers.py). Out: dist/ with the sdist, a wheel for each interpreter and platform, their bill
of materials and SHA256SUMS; a line for each with its size and time, and an error for each that must
not be published. The kernels are translated to C once and compiled for each target by the compiler
in the `ziglang` wheel, which supports all of them.

Versions whose headers aren't available here are listed: the workflow publish.yml builds those.
`--twice` builds everything again in another folder, without caches, and compares.

One translation serves all targets: of CPython's headers only `pyconfig.h` differs between 64-bit
Linuxes, in nothing that extensions use, and free-threaded Python has the same headers with
`Py_GIL_DISABLED`. zig calls musl `libc.so`; a replacement file has the name that auditwheel
expects.
"""

import argparse
import hashlib
import importlib.metadata
import os
import runpy
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "dist"
TOOLS = WORK / "tools"
"""The virtual environment with the packages pinned in LOCK."""
LOCK = ROOT / "tools" / "dist_packages.lock"
INSIDE = "ODRADEK_DIST_TOOLS"
"""Environment variable that is set if this file already runs in that virtual environment."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
SYSTEMS = ("manylinux", "musllinux")
MACHINES = ("x86_64", "aarch64")
TRANSLATE = """
import sys
from Cython.Build import cythonize
from setuptools import Extension
cythonize([Extension(name, [file]) for name, file in zip(sys.argv[1::2], sys.argv[2::2])],
          build_dir="translated", include_path=["src"], force=True, quiet=True)
"""


class BuildError(Exception):
    """A distribution can't be built; the message has the reason."""


@dataclass
class Build:
    """One build of all distributions: its working folder and its output folder."""

    work: Path
    to: Path
    epoch: int
    headers: dict[str, Path]
    """Folders with CPython's headers (Python.h) by Python version."""
    targets: list[Any]
    jobs: int
    made: list[tuple[Path, float]] = field(default_factory=list)
    """Distributions, each with the seconds that building it took."""

    @property
    def tree(self) -> Path:
        """Folder of the unpacked sdist, as a user would build it."""
        return next((self.work / "tree").iterdir())


def main() -> None:
    """Create the virtual environment if necessary, and run this program in it."""
    arguments = parse()
    if os.environ.get(INSIDE) != str(TOOLS):
        install_tools()
        python = str(TOOLS / "bin" / "python")
        environment = {**os.environ, INSIDE: str(TOOLS), "PYTHONHASHSEED": "0"}
        command = [python, __file__, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    try:
        run(arguments)
    except BuildError as error:
        sys.exit(f"dist: {error}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--only",
        metavar="TAG",
        default="",
        help="targets with this in their name, as cp311-cp311-manylinux",
    )
    parser.add_argument(
        "--headers",
        metavar="3.N=FOLDER",
        action="append",
        default=[],
        help="where Python.h of a version is",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument("--twice", action="store_true", help="make everything again, and compare")
    parser.add_argument("--tools", action="store_true", help="only make the venv of tools")
    return parser.parse_args()


def install_tools() -> None:
    """Install the pinned packages unless they are installed."""
    stamp = TOOLS / ".odradek-tools"
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    say("installing tools and a C compiler (a hundred megabytes where they aren't cached)")
    start = time.monotonic()
    run_command([sys.executable, "-m", "venv", "--clear", str(TOOLS)], ROOT, "the venv of tools")
    command = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    run_command([str(TOOLS / "bin" / "python"), *command, "-r", str(LOCK)], ROOT, "pip")
    stamp.write_text(digest)
    say(f"installed in {time.monotonic() - start:.0f} s")


def run(arguments: argparse.Namespace) -> None:
    """Build and check all distributions, and with --twice build them again and compare."""
    if arguments.tools:
        return
    start = time.monotonic()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or committed_at())
    wanted = [target for target in all_targets() if arguments.only in target.name]
    if not wanted:
        raise BuildError(f"no target has {arguments.only!r} in its name")
    given = {
        version: Path(folder)
        for version, _, folder in (one.partition("=") for one in arguments.headers)
    }
    found, missing = find_headers(wanted, given)
    targets = [target for target in wanted if target.version in found]
    to = ROOT / "dist"
    first = Build(WORK / "first", to, epoch, found, targets, arguments.jobs)
    make(first)
    check(first)
    if arguments.twice:
        # The second build has empty caches, and a folder with a longer or shorter name.
        second = Build(WORK / "once-more", WORK / "again", epoch, found, targets, arguments.jobs)
        make(second)
        compare(first, second)
    report(first, missing, time.monotonic() - start)


def committed_at() -> str:
    """Return the commit's time in seconds since the epoch, which all files get as their time."""
    return run_command(["git", "log", "-1", "--format=%ct"], ROOT, "git").strip()


def all_targets() -> list[Any]:
    """Return a target for each interpreter on each platform."""
    from dist_archives import Target

    return [
        Target(python, system, machine)
        for machine in MACHINES
        for system in SYSTEMS
        for python in PYTHONS
    ]


def find_headers(targets: list[Any], given: dict[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """Find the headers that targets need; print the versions without headers here."""
    from dist_headers import NoHeadersError, headers

    found, missing = {}, []
    for version in dict.fromkeys(target.version for target in targets):
        try:
            found[version], release = headers(version, WORK / "headers", given)
        except NoHeadersError as error:
            missing.append(f"{error}: the workflow publish.yml makes its wheels")
            say(missing[-1])
        else:
            say(f"headers of CPython {release}")
    return found, missing


def make(build: Build) -> None:
    """Build the sdist of the files that git knows, and all wheels from that sdist."""
    shutil.rmtree(build.work, ignore_errors=True)
    shutil.rmtree(build.to, ignore_errors=True)
    build.to.mkdir(parents=True)
    make_sdist(build)
    plain = make_plain_wheel(build)
    translate(build)
    say(f"compiling kernels for {len(build.targets)} targets, {build.jobs} at once")
    with ThreadPoolExecutor(build.jobs) as pool:
        for made in pool.map(lambda target: make_wheel(build, plain, target), build.targets):
            build.made.append(made)
            say(f"  {len(build.made) - 1} of {len(build.targets)}: {made[0].name}")


def make_sdist(build: Build) -> None:
    """Build the sdist with setuptools in a copy, repack it, and unpack it for the wheels."""
    from dist_archives import pack_sdist

    start = time.monotonic()
    copy = build.work / "copy"
    names = run_command(["git", "ls-files", "-z"], ROOT, "git").split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    pypa_build(copy, "--sdist", build.work / "sdist")
    made = next((build.work / "sdist").glob("*.tar.gz"))
    build.made.append((pack_sdist(made, build.to, build.epoch), time.monotonic() - start))
    shutil.unpack_archive(build.made[-1][0], build.work / "tree", filter="data")


def make_plain_wheel(build: Build) -> Path:
    """Return a wheel without kernels, as setuptools builds it from the sdist."""
    pypa_build(build.tree, "--wheel", build.work / "plain", ODRADEK_BUILD="plain")
    return next((build.work / "plain").glob("*-py3-none-any.whl"))


def pypa_build(folder: Path, kind: str, to: Path, **more: str) -> None:
    """Run the package `build` with the pinned setuptools."""
    command = [
        sys.executable,
        "-m",
        "build",
        kind,
        "--no-isolation",
        "--outdir",
        str(to),
        str(folder),
    ]
    run_command(command, folder, f"build {kind}", **more)


def translate(build: Build) -> None:
    """Translate the kernels to C, which is the same for all targets."""
    words = [word for name, source in kernels(build.tree).items() for word in (name, str(source))]
    run_command([sys.executable, "-c", TRANSLATE, *words], build.tree, "Cython")


def kernels(tree: Path) -> dict[str, Path]:
    """Return the kernels' source files by name; paths are relative to the tree's root."""
    folder = Path("src", "odradek", "record")
    sources = runpy.run_path(str(tree / folder / "kernel_sources.py"))
    return {name: folder / sources["sources"](name)[0] for name in sources["KERNELS"]}


def digests(tree: Path) -> dict[str, str]:
    """Return the digests of the sources that each kernel's binary must contain."""
    folder = tree / "src" / "odradek" / "record"
    sources = runpy.run_path(str(folder / "kernel_sources.py"))
    return {name: sources["digest"](folder, name) for name in sources["KERNELS"]}


def make_wheel(build: Build, plain: Path, target: Any) -> tuple[Path, float]:
    """Compile the kernels for a target and put them into its wheel."""
    from dist_archives import pack_wheel

    start = time.monotonic()
    known = digests(build.tree)
    folder = build.work / "compiled" / target.name
    folder.mkdir(parents=True)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target.aim]
    library = c_library(folder, zig, target)
    compiled = {}
    for kernel, source in kernels(build.tree).items():
        binary = folder / source.with_suffix(target.suffix).name
        digest = f'-DODRADEK_DIGEST="{known[kernel]}"'
        c_file, object_file = (
            Path("translated") / source.with_suffix(".c"),
            binary.with_suffix(".o"),
        )
        link = ["-shared", "-Wl,--strip-all", "-Wl,--build-id=none", str(object_file), *library]
        for command in (
            [*zig, *flags(build, target), digest, "-c", str(c_file), "-o", str(object_file)],
            [*zig, *link, "-o", str(binary)],
        ):
            cache = str(build.work / "zig")
            what = f"the compiler of {target.name}"
            run_command(command, build.tree, what, ZIG_LOCAL_CACHE_DIR=cache)
        compiled[f"{kernel.replace('.', '/')}{target.suffix}"] = binary.read_bytes()
    written = pack_wheel(plain, compiled, bill(build.tree), target, build.to, build.epoch)
    return written, time.monotonic() - start


def c_library(folder: Path, zig: list[str], target: Any) -> list[str]:
    """Return linker arguments for the C library: for musl a stub with the name that Alpine uses.

    zig calls musl `libc.so`, which works, but isn't a name that auditwheel accepts for PEP 656.
    """
    from dist_archives import LIBC

    if target.system == "manylinux":
        return []
    library = folder / target.library
    source = folder / "library.c"
    lines = [
        rf'__asm__(".globl {name}\n.type {name},%function\n{name}:");' for name in sorted(LIBC)
    ]
    source.write_text("\n".join(lines) + "\n")
    named = [
        "-shared",
        "-nostdlib",
        f"-Wl,-soname,{target.library}",
        str(source),
        "-o",
        str(library),
    ]
    run_command([*zig, *named], folder, f"the stub of {target.library}")
    return ["-nostdlib", str(library)]


def bill(tree: Path) -> bytes:
    """Return the bill of materials that the wheels contain."""
    from dist_sbom import sbom

    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    tools = {name: importlib.metadata.version(name) for name in ("cython", "setuptools", "ziglang")}
    return sbom(project, tools).encode()


def flags(build: Build, target: Any) -> list[str]:
    """Return the compiler flags for a target, the same as in setup.py."""
    setup = runpy.run_path(str(build.tree / "setup.py"), run_name="setup")
    free = ["-DPy_GIL_DISABLED=1"] if target.python.endswith("t") else []
    return [
        *setup["ZIG"], *setup["OPTIMIZED"], *setup["SAFE"], "-fPIC", *free,
        f"-I{build.headers[target.version]}", "-Isrc/odradek/record",
    ]  # fmt: skip


def check(build: Build) -> None:
    """Check each distribution with this project's own checks, auditwheel and twine."""
    from dist_archives import BILL, faults_of_sdist, faults_of_wheel

    say("checking them: contents, binaries, auditwheel, twine")
    places = [str(ROOT), str(Path.home()), str(build.work)]
    known = digests(build.tree)
    sdist, *wheels = [file for file, _ in build.made]
    faults = [f"{sdist.name}: {fault}" for fault in faults_of_sdist(sdist)]
    for wheel, target in zip(wheels, build.targets, strict=True):
        faults += [f"{wheel.name}: {one}" for one in faults_of_wheel(wheel, target, known, places)]
        faults += [f"{wheel.name}: {one}" for one in audited(wheel, target)]
    if faults:
        raise BuildError("\n  ".join(["these must not be published:", *faults]))
    run_command(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, [sdist, *wheels])],
        ROOT,
        "twine",
    )
    sums = [
        f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in (sdist, *wheels)
    ]
    (build.to / BILL).write_bytes(bill(build.tree))
    (build.to / "SHA256SUMS").write_text("".join(sorted(sums)))


def audited(wheel: Path, target: Any) -> list[str]:
    """Return an error if auditwheel doesn't confirm the wheel's platform tag."""
    said = run_command([sys.executable, "-m", "auditwheel", "show", str(wheel)], ROOT, "auditwheel")
    words = " ".join(said.split())
    promised = target.tags[0].rpartition("-")[2]
    return [] if f'"{promised}"' in words else [f"auditwheel says: {words}"]


def compare(first: Build, second: Build) -> None:
    """Raise an error if two builds differ in a byte."""
    other = {file.name: file.read_bytes() for file, _ in second.made}
    differing = [file.name for file, _ in first.made if other.get(file.name) != file.read_bytes()]
    if differing or len(other) != len(first.made):
        raise BuildError(f"made twice, these differ: {', '.join(differing) or sorted(other)}")
    say(f"made twice, all {len(other)} are the same to the byte")


def report(build: Build, missing: list[str], seconds: float) -> None:
    """Print a line for each distribution."""
    for file, took in build.made:
        print(f"  {file.stat().st_size:>9,} bytes  {took:5.1f} s  {file.name}")
    for one in missing:
        say(one)
    say(f"{len(build.made)} distributions in dist/, {seconds:.0f} s; `make dist-check` tries them")


def run_command(command: list[str], folder: Path, what: str, **more: str) -> str:
    """Run a command and return its output; raise with the output if it fails."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise BuildError(f"{what} failed with exit status {done.returncode}:\n{tail}")
    return done.stdout


def say(what: str) -> None:
    """Print a line and flush the output, so that progress is visible."""
    print(f"dist: {what}", flush=True)


if __name__ == "__main__":
    main()
