"""What the kernels are made of, and whether those that are built can be used.

`setup.py` embeds a digest of the sources in a binary, `load` compares it at import. A binary whose
sources have changed since counts as not built: a stale kernel that shadows a changed one is the
hardest of bugs to see. In: a folder with the sources. Out: a digest, a choice, a warning.
Must import nothing of the package on its own, because setup.py runs this file, too, and no pathlib:
that takes longer than all that is done here.
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
"""Modules that are compiled; each from its own `.py` and what they share."""
MARK = b"odradek-kernel-sources:"
"""Stands before the digest in a binary."""


def sources(kernel: str) -> tuple[str, ...]:
    """Name the files that one kernel is made of."""
    return (f"{kernel.rpartition('.')[2]}.py", *SHARED)


def digest(folder: str | os.PathLike[str], kernel: str) -> str | None:
    """Digest a kernel's sources; None where they aren't there to be compared."""
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
    """Import a compiled kernel, or say why it can't be used.

    The binary is looked for first: without it Python would import the source, as a slow module
    where Cython is installed.
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
    """Turn `ODRADEK_KERNEL` into what will run; asking for what isn't there is an error.

    Falling back in silence would make a benchmark or a production job slow without a word.
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
    """Say why not all records go through native kernels here, None when they can."""
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
    """Log that plain Python does the work of a kernel, unless it was asked for by name."""
    global _warned
    if _warned or asked:
        return
    _warned = True
    import logging

    logging.getLogger("odradek.record").warning("%s", kernel_warning())
