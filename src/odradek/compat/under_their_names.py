"""Puts a compat module under the name of the library that it stands for.

In: a library's name. Out: `import aiokafka`, in frameworks that do it themselves, gives
`odradek.compat.aiokafka`. Must not: mix both: where the library itself was imported already, some
hold its classes, and that is an error.
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
    """Finds `aiokafka.errors` as `odradek.compat.aiokafka.errors`: the same module object."""

    def __init__(self) -> None:
        self.libraries: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """What the import system asks."""
        if name.partition(".")[0] not in self.libraries:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of ours, with the spec that it has."""
        return importlib.import_module(OURS + spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It was carried out when it was imported under its own name."""


_names = _Names()


def install(library: Library) -> None:
    """Have `import aiokafka` (or `confluent_kafka`) give `odradek.compat.aiokafka` from now on.

    For frameworks that import the library themselves, such as FastStream: call it before they are
    imported. The library itself needn't be installed. A second call does nothing.
    Raises `IllegalStateError` where the library itself was imported already.

    >>> from odradek.compat import install
    >>> install("aiokafka")
    """
    if library not in LIBRARIES:
        raise ArgumentError(f"library must be one of {', '.join(LIBRARIES)}, not {shown(library)}")
    if library in _names.libraries:
        return
    if library in sys.modules:
        raise IllegalStateError(
            f"{library} itself was imported already: call install({library!r}) first of all"
        )
    _names.libraries.add(library)
    if _names not in sys.meta_path:
        sys.meta_path.insert(0, _names)
