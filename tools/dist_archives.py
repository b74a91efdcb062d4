"""Write distributions whose bytes depend only on their content, and check them.

In: the distributions of setuptools, compiled kernels, a time. Out: an sdist and wheels with sorted
files that have the same time, owner and mode; and for each the reasons why it must not be
published. Must not: read a clock, or anything of this machine.
"""

import base64
import gzip
import hashlib
import io
import re
import tarfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

LARGEST = 4 << 20
"""Maximum size of a distribution in bytes, because a client is installed on many machines."""
BILL = "odradek.cdx.json"
GLIBC = (2, 17)
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
UNWANTED = re.compile(r"(^|/)(tests?|benchmarks|tools)/|\.(csv|c|jar|pyc)$")
"""Files that no wheel contains: tests, the demo's data, generated C."""


@dataclass(frozen=True)
class Target:
    """Interpreter and platform of one wheel."""

    python: str
    """Python version of the target, followed by `t` if it is free-threaded: 3.14t."""
    system: str
    """The platform's kind: manylinux (glibc) or musllinux (musl)."""
    machine: str

    @property
    def version(self) -> str:
        """Version of the headers with which the target is compiled."""
        return self.python.rstrip("t")

    @property
    def tags(self) -> list[str]:
        """Tags of the wheel: PEP 425, PEP 600, PEP 656."""
        number = self.version.replace(".", "")
        abi = f"cp{number}-cp{self.python.replace('.', '')}"
        names = (
            ("manylinux_2_17", "manylinux2014")
            if self.system == "manylinux"
            else ("musllinux_1_2",)
        )
        return [f"{abi}-{name}_{self.machine}" for name in names]

    @property
    def name(self) -> str:
        """The tags as in the file name of a wheel."""
        head = self.tags[0].rpartition("-")[0]
        return f"{head}-{'.'.join(tag.rpartition('-')[2] for tag in self.tags)}"

    @property
    def suffix(self) -> str:
        """File name suffix of extension modules for this interpreter."""
        libc = "gnu" if self.system == "manylinux" else "musl"
        return f".cpython-{self.python.replace('.', '')}-{self.machine}-linux-{libc}.so"

    @property
    def library(self) -> str:
        """File name of the system's C library, the only library that the kernels need."""
        return "libc.so.6" if self.system == "manylinux" else f"libc.musl-{self.machine}.so.1"

    @property
    def aim(self) -> str:
        """The target's platform, as zig names it."""
        libc = f"gnu.{'.'.join(map(str, GLIBC))}" if self.system == "manylinux" else "musl"
        return f"{self.machine}-linux-{libc}"


def pack_sdist(made: Path, to: Path, epoch: int) -> Path:
    """Rewrite an sdist with sorted files that have one time and one owner."""
    packed = io.BytesIO()
    with (
        tarfile.open(made) as source,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            one = tarfile.TarInfo(member.name)
            one.type, one.size, one.mtime = member.type, member.size, epoch
            one.mode = 0o755 if member.isdir() else 0o644
            target.addfile(one, source.extractfile(member) if member.isfile() else None)
    written = to / made.name
    with written.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())
    return written


def pack_wheel(
    plain: Path, kernels: Mapping[str, bytes], bill: bytes, target: Target, to: Path, epoch: int
) -> Path:
    """Write a target's wheel: the plain wheel's files, kernels, a bill of materials (PEP 770)."""
    with zipfile.ZipFile(plain) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    folder = next(name for name in files if name.endswith(".dist-info/WHEEL")).rpartition("/")[0]
    made_by = re.search(rb"^Generator: .*$", files[f"{folder}/WHEEL"], re.MULTILINE)
    generator = made_by[0].decode() if made_by else "Generator: odradek"
    lines = [
        "Wheel-Version: 1.0",
        generator,
        "Root-Is-Purelib: false",
        *(f"Tag: {tag}" for tag in target.tags),
    ]
    files[f"{folder}/WHEEL"] = ("\n".join(lines) + "\n").encode()
    files.update(kernels)
    files[f"{folder}/sboms/{BILL}"] = bill
    record = f"{folder}/RECORD"
    del files[record]
    rows = [f"{name},sha256={sha256(files[name])},{len(files[name])}" for name in sorted(files)]
    files[record] = ("\n".join([*rows, f"{record},,"]) + "\n").encode()
    written = to / f"{folder.removesuffix('.dist-info')}-{target.name}.whl"
    moment = time.gmtime(max(epoch, 315532800))[:6]  # ZIP can't store times before 1980
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # PEP 427 recommends that the metadata comes last.
        for name in sorted(files, key=lambda name: (name.startswith(folder), name == record, name)):
            one = zipfile.ZipInfo(name, moment)
            one.compress_type, one.create_system = zipfile.ZIP_DEFLATED, 3
            one.external_attr = (0o100755 if name in kernels else 0o100644) << 16
            archive.writestr(one, files[name])
    return written


def sha256(data: bytes) -> str:
    """Return a file's digest in the format of RECORD."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def faults_of_sdist(sdist: Path) -> list[str]:
    """Return the reasons why an sdist must not be published."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    needed = ("pyproject.toml", "setup.py", "LICENSE", "README.md", "src/odradek/record/native.h")
    faults = [f"{name} isn't in it" for name in needed if name not in names]
    faults += [f"{name} is in it" for name in sorted(names) if name.endswith((".so", ".pyc", ".c"))]
    return faults + faults_of_size(sdist)


def faults_of_size(file: Path) -> list[str]:
    """Return the reason, as a list, if a distribution is too large to be published."""
    size = file.stat().st_size
    return [f"{size:,} bytes are more than {LARGEST:,}"] if size > LARGEST else []


def faults_of_wheel(
    wheel: Path, target: Target, digests: Mapping[str, str], places: list[str]
) -> list[str]:
    """Return the reasons why a wheel must not be published.

    `digests` of the sources are by kernel; no binary may contain one of the paths in `places`.
    """
    faults = faults_of_size(wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        faults += [f"{name} is in it" for name in names if UNWANTED.search(name)]
        kernels = {kernel: f"{kernel.replace('.', '/')}{target.suffix}" for kernel in digests}
        strange = {name for name in names if name.endswith((".so", ".pyd"))} - set(kernels.values())
        faults += [f"{name} is no kernel for {target.name}" for name in sorted(strange)]
        for kernel, name in kernels.items():
            if name not in names:
                faults.append(f"{name} isn't in it")
                continue
            found = faults_of_binary(archive.read(name), kernel, target, digests[kernel], places)
            faults += [f"{name}: {fault}" for fault in found]
    return faults


def faults_of_binary(
    data: bytes, kernel: str, target: Target, digest: str, places: list[str]
) -> list[str]:
    """Return what is wrong with a kernel: machine, required symbols, digest of its sources."""
    faults = []
    if f"odradek-kernel-sources:{digest}".encode() not in data:
        faults.append("it wasn't made from these sources")
    faults += [f"it names {place}" for place in places if place.encode() in data]
    elf = ELFFile(io.BytesIO(data))
    if elf["e_machine"] != MACHINES[target.machine]:
        faults.append(f"it is for {elf['e_machine']}")
    needed: set[str] = set()
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            needed |= {tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
            paths = [
                tag for tag in section.iter_tags() if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")
            ]
            faults += ["it says where libraries are (RPATH)"] * bool(paths)
        if isinstance(section, GNUVerNeedSection):
            faults += newer_symbols(section)
        if section.name.startswith((".debug", ".symtab")):
            faults.append(f"it has {section.name}, which isn't needed")
    if needed != {target.library}:
        faults.append(f"it needs {', '.join(sorted(needed))}")
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_GNU_STACK" and segment["p_flags"] & 1:
            faults.append("its stack can be run")
    return faults + faults_of_symbols(elf, kernel, target)


def newer_symbols(section: GNUVerNeedSection) -> list[str]:
    """Return the glibc versions, required by symbols, that the wheel's tag doesn't promise."""
    found = []
    for _, versions in section.iter_versions():
        for one in versions:
            numbers = re.fullmatch(r"GLIBC_([\d.]+)", one.name)
            if numbers and tuple(map(int, numbers[1].split("."))) > GLIBC:
                found.append(f"it needs {one.name}")
    return found


LIBC = {"bcmp", "free", "getauxval", "malloc", "memcmp", "memcpy", "memmove", "memset", "mmap",
        "mmap64", "mremap", "munmap", "realloc", "strcmp", "strcpy", "strlen", "strrchr",
        "vsnprintf", "calloc"}  # fmt: skip
"""Functions of the C library that kernels may use: in glibc 2.17 and musl 1.2 on all machines."""


def faults_of_symbols(elf: ELFFile, kernel: str, target: Target) -> list[str]:
    """Check that a kernel exports its init function and only imports known symbols."""
    table = elf.get_section_by_name(".dynsym")
    symbols = {(one.name, one["st_shndx"] == "SHN_UNDEF") for one in table.iter_symbols()}
    faults = []
    if (f"PyInit_{kernel.rpartition('.')[2]}", False) not in symbols:
        faults.append("it has no PyInit function")
    theirs = sorted(name for name, wanted in symbols if wanted and name and "Py" not in name[:3])
    faults += [f"it asks for {name}, not known of each libc" for name in theirs if name not in LIBC]
    # Only debug builds of CPython use these symbols.
    debug = {
        "_Py_RefTotal",
        "_Py_NegativeRefcount",
        "_PyObject_AssertFailed",
        "PyModule_Create2TraceRefs",
    }
    faults += [
        f"it asks for {name} of a debug build"
        for name, wanted in sorted(symbols)
        if wanted and name in debug
    ]
    # All builds call _Py_Dealloc; only free-threaded builds call this function.
    free = any(wanted and name == "_Py_MergeZeroLocalRefcount" for name, wanted in symbols)
    if free != target.python.endswith("t"):
        faults.append(f"it is compiled for {'free' if free else 'locked'} threads")
    return faults
