"""Name the kernels' sources, and decide whether the compiled kernels can be used.

`setup.py` embeds a digest of the sources in a binary, and `load` compares it at import. If the
sources have changed since, the binary counts as not built: a stale kernel that shadows a changed
one is a bug that is very hard to find. In: a folder with the sources. Out: a digest, a choice, a
warning. Must not import this package at the top, because setup.py runs this file, too; nor pathlib,
whose import takes longer than all work here.
"""

from __future__ import annotations

import importlib
import os
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

SHARED = ("native.pxd", "native.h")
DECODER, ENCODER = "odradek.record.kernel", "odradek.record.kernel_encode"
COLUMNS = "odradek.record.kernel_columns"
KERNELS = (DECODER, ENCODER, COLUMNS)
"""Modules that are compiled, each from its `.py` file and the shared files."""
MARK = b"odradek-kernel-sources:"
"""The bytes before the digest in a binary."""


def sources(kernel: str) -> tuple[str, ...]:
    """Return the names of the files that one kernel is compiled from."""
    return (f"{kernel.rpartition('.')[2]}.py", *SHARED)


def digest(folder: str | os.PathLike[str], kernel: str) -> str | None:
    """Return the digest of a kernel's sources; None if the sources don't exist here."""
    check = size = 0
    try:
        for name in sources(kernel):
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            check, size = zlib.crc32(data, check), size + len(data)
    except OSError:
        return None
    return f"{check:08x}{size:08x}"


def load(kernel: str) -> ModuleType | str:
    """Import a compiled kernel, or return why it can't be used.

    The binary is looked for first: without one Python would import the source, as a slow module if
    Cython is installed.
    """
    folder = os.path.dirname(__file__)
    name = kernel.rpartition(".")[2]
    binaries = [os.path.join(folder, name + suffix) for suffix in EXTENSION_SUFFIXES]
    if not any(map(os.path.exists, binaries)):
        return "not compiled"
    try:
        module = importlib.import_module(kernel)
    except ImportError as error:
        return f"can't be loaded ({error})"
    expected = digest(folder, kernel)
    if expected is not None and expected != module.SOURCES:
        return "the sources have changed since it was compiled"
    return module


def choose_kernel(asked: str | None, *kernels: str) -> str:
    """Return the kernel that `ODRADEK_KERNEL` chooses; raise if a requested kernel isn't available.

    A silent fallback would make a benchmark or a production job slow for no visible reason.
    """
    from odradek.common.errors import ConfigurationError, UnsupportedFeatureError

    if asked == "python":
        return "python"
    if asked and asked != "native":
        raise ConfigurationError(f"ODRADEK_KERNEL must be native or python, not {asked!r}")
    warning = kernel_warning(*kernels)
    if warning is None:
        return "native"
    if asked:
        raise UnsupportedFeatureError(f"ODRADEK_KERNEL=native, but {warning}")
    return "python"


def kernel_warning(*kernels: str) -> str | None:
    """Return why some records don't go through native kernels here; None if all do."""
    loaded = {name: load(name) for name in kernels or KERNELS}
    reasons = [f"{name}: {why}" for name, why in loaded.items() if isinstance(why, str)]
    if not reasons:
        return None
    return (
        f"the native record kernel can't be used ({'; '.join(reasons)}). Without it, records are "
        "processed in pure Python, many times slower. Install a wheel for this platform, or "
        "compile it: in a checkout with `make kernel`, otherwise with a C compiler and `pip "
        "install --force-reinstall --no-binary odradek odradek`"
    )


_warned = False


def warn_once(asked: str | None) -> None:
    """Log that plain Python replaces a kernel, unless `ODRADEK_KERNEL` requests that."""
    global _warned
    if _warned or asked:
        return
    _warned = True
    import logging

    logging.getLogger("odradek.record").warning("%s", kernel_warning())
