"""Compile the record kernels: with the C compiler that is there, else the one of the ziglang wheel.

`make kernel` (or `python setup.py build_ext --inplace`) rebuilds in place what has changed, within
seconds; `make setup` and pip come through here, too. Flags for one build, a sanitizer's say, come
by CFLAGS and LDFLAGS: `CFLAGS=-fsanitize=address python setup.py build_ext --build-lib FOLDER`.
Where nothing can compile, everything else is installed and `odradek version` warns; so it is on
Windows, whose compilers the kernels aren't written for. `ODRADEK_BUILD=plain` leaves them out:
that wheel is good for any platform. `tools/dist.py` takes its flags from here, too.

The rest of the build is in pyproject.toml.
"""

import contextlib
import importlib.util
import os
import platform
import runpy
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

try:
    import fcntl
except ImportError:  # Windows; there nothing is compiled that two builds could mix
    fcntl = None  # type: ignore[assignment]

FOLDER = Path("src", "odradek", "record")
BUILD = Path("build", "kernel")
SOURCES = runpy.run_path(str(FOLDER / "kernel_sources.py"))
# zig aims at this very processor and adds a sanitizer unless told otherwise.
ZIG = ["-fno-sanitize=undefined", "-mcpu=baseline"]
OPTIMIZED = ["-O3", "-fno-strict-aliasing"]
SAFE = ["-fwrapv", "-DNDEBUG"]
PLAIN = os.environ.get("ODRADEK_BUILD") == "plain"


def compilers() -> list[list[str]]:
    """Give the commands that may compile, best first."""
    found = []
    for words in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        command = shlex.split(words or "")
        if command and shutil.which(command[0]) and command not in found:
            found.append(command)
    if importlib.util.find_spec("ziglang") is not None:
        found.append([sys.executable, "-m", "ziglang", "cc", *ZIG])
    return found


def extension(kernel: str) -> Extension:
    """Describe one kernel, with the digest of its sources to be compiled in."""
    digest = SOURCES["digest"](FOLDER, kernel)
    return Extension(
        kernel,
        [str(FOLDER / SOURCES["sources"](kernel)[0])],
        include_dirs=[str(FOLDER)],
        depends=[str(FOLDER / name) for name in SOURCES["SHARED"]],
        define_macros=[("ODRADEK_DIGEST", f'"{digest}"')],
        # What is given comes last, so that it can say -O1.
        extra_compile_args=[
            *OPTIMIZED,
            *shlex.split(os.environ.get("CFLAGS", "")),
        ],
        optional=True,
    )


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other build writes the same files."""
    with (BUILD / "lock").open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class BuildKernels(build_ext):
    """Translates and compiles; failing is a warning, for there is a plain-Python twin."""

    beside_sources = False
    failed: tuple[Extension, ...] = ()

    def run(self) -> None:
        """Build alone: two builds at once would mix their files."""
        self.beside_sources = bool(self.inplace)
        BUILD.mkdir(parents=True, exist_ok=True)
        with alone():
            super().run()
        if self.failed and "build_ext" in sys.argv:
            sys.exit("a kernel was not built")  # somebody wanted just this

    def build_extensions(self) -> None:
        """Build what isn't there from these very sources, each as far as it goes."""
        self.force = True  # times of files prove nothing after a checkout
        wanted = [ext for ext in self.extensions if not (self.beside_sources and self.current(ext))]
        for ext in wanted:
            if reason := self.build_one(ext):
                self.failed += (ext,)
                print(
                    f"WARNING: {ext.name} was not built: {reason}. Records will go through plain "
                    "Python, many times slower.",
                    file=sys.stderr,
                )
        self.extensions = [ext for ext in wanted if ext not in self.failed]

    def build_one(self, ext: Extension) -> str | None:
        """Translate one kernel and compile it with the first compiler that can, or say why not."""
        if platform.system() == "Windows":
            return "Windows' compilers don't know what it is written with"
        try:
            from Cython.Build import cythonize
            from Cython.Compiler.Errors import CompileError as TranslationError
        except ImportError:
            return "Cython isn't installed"
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            return "Python.h is missing (Debian: python3-dev, Fedora: python3-devel)"
        options = {"build_dir": str(BUILD), "include_path": ["src"], "force": True, "quiet": True}
        try:
            ext.sources = cythonize([ext], **options)[0].sources
        except TranslationError as error:
            return f"Cython refuses it ({error})"
        reasons = []
        for command in compilers():
            self.use(command)
            try:
                super().build_extension(ext)
            except (CompileError, LinkError) as error:
                reasons.append(f"{command[0]}: {error}")
            else:
                return None
        return "; ".join(reasons) or "there is no C compiler (cc, gcc, clang or ziglang)"

    def use(self, command: list[str]) -> None:
        """Compile and link with this command, whatever Python itself was built with."""
        flags = shlex.split(sysconfig.get_config_var("CCSHARED") or "-fPIC")
        given = [*shlex.split(os.environ.get("CFLAGS", "")), *flags, *SAFE]
        linked = ["-shared", *shlex.split(os.environ.get("LDFLAGS", ""))]
        if platform.system() == "Darwin":
            linked = ["-bundle", "-undefined", "dynamic_lookup", *linked[1:]]
        self.compiler.set_executables(compiler_so=[*command, *given], linker_so=[*command, *linked])

    def current(self, ext: Extension) -> bool:
        """Tell whether the binary beside the sources was made from them."""
        binary = FOLDER / Path(self.get_ext_filename(ext.name)).name
        if not binary.is_file():
            return False
        digest = SOURCES["digest"](FOLDER, ext.name)
        return SOURCES["MARK"] + digest.encode() in binary.read_bytes()


def wants_zig() -> bool:
    """Tell whether the kernels can be compiled here, but by nothing that is installed."""
    compiled = not PLAIN and platform.system() != "Windows"
    return compiled and not compilers() and "build_ext" not in sys.argv


def main() -> None:
    """Hand the kernels to setuptools."""
    setup(
        ext_modules=[] if PLAIN else [extension(name) for name in SOURCES["KERNELS"]],
        cmdclass={"build_ext": BuildKernels},
        # Asked for by pip's isolated builds; a build in place takes what is installed.
        setup_requires=["ziglang"] if wants_zig() else [],
    )


if __name__ == "__main__":
    main()
