"""What the kernels are made of: `setup.py` embeds a digest of it, `load` compares at import.

In: a folder with the sources. Out: a digest, or the compiled module. A binary whose sources have
changed since counts as not built: a stale kernel that shadows a changed one is the hardest of
bugs to see. Must import nothing of the package on its own: setup.py runs this file, too.
"""

from __future__ import annotations

import importlib
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

SHARED = ("native.pxd", "native.h")
KERNELS = ("odradek.record.kernel", "odradek.record.kernel_encode")
"""Modules that are compiled; each from its own `.py` and what they share."""
MARK = b"odradek-kernel-sources:"
"""Stands before the digest in a binary."""


def sources(kernel: str) -> tuple[str, ...]:
    """Name the files that one kernel is made of."""
    return (f"{kernel.rpartition('.')[2]}.py", *SHARED)


def digest(folder: Path, kernel: str) -> str | None:
    """Digest a kernel's sources; None where they aren't there to be compared."""
    check = size = 0
    try:
        for name in sources(kernel):
            data = (folder / name).read_bytes()
            check, size = zlib.crc32(data, check), size + len(data)
    except OSError:
        return None
    return f"{check:08x}{size:08x}"


def load(kernel: str) -> ModuleType | str:
    """Import a compiled kernel, or say why it can't be used.

    The binary is looked for first: without it Python would import the source, as a slow module
    where Cython is installed.
    """
    folder = Path(__file__).parent
    name = kernel.rpartition(".")[2]
    if not any((folder / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return "it isn't built"
    try:
        module = importlib.import_module(kernel)
    except ImportError as error:
        return f"it can't be loaded ({error})"
    expected = digest(folder, kernel)
    if expected is not None and expected != module.SOURCES:
        return "its sources have changed since it was built"
    return module
