"""Import hook that replaces a library by its compat module.

In: a library's name. Out: `import aiokafka` returns `odradek.compat.aiokafka`, in frameworks that
import it, too. Must not: mix both: if the library itself was imported before, other modules hold
its classes, so `install` raises an error.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Literal

from odradek.common.arguments import shown
from odradek.common.errors import ArgumentError, IllegalStateError

Library = Literal["aiokafka", "confluent_kafka"]
LIBRARIES = ("aiokafka", "confluent_kafka")
OURS = "odradek.compat."


class _Names(MetaPathFinder, Loader):
    """Import hook that finds `odradek.compat.aiokafka.errors` as `aiokafka.errors`."""

    def __init__(self) -> None:
        self.libraries: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of an installed library's module, or None."""
        if name.partition(".")[0] not in self.libraries:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the compat module, which keeps its own spec."""
        return importlib.import_module(OURS + spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed when it was imported under its own name."""


_names = _Names()


def install(library: Library) -> None:
    """Make `import aiokafka` (or `confluent_kafka`) import `odradek.compat.aiokafka` from now on.

    Call it before frameworks that import the library, such as FastStream, are imported. The library
    itself needn't be installed. A second call has no effect. Raises `IllegalStateError` if the
    library itself was imported before.

    >>> from odradek.compat import install
    >>> install("aiokafka")
    """
    if library not in LIBRARIES:
        raise ArgumentError(f"library must be one of {', '.join(LIBRARIES)}, not {shown(library)}")
    if library in _names.libraries:
        return
    if library in sys.modules:
        raise IllegalStateError(
            f"{library} was imported before: call install({library!r}) before its first import"
        )
    _names.libraries.add(library)
    if _names not in sys.meta_path:
        sys.meta_path.insert(0, _names)
