"""Memory that a codec writes into, as cramjam takes it (milesgranger/cramjam#213).

In: a function of its that writes into what it is given. Out: one that takes a writable view; the
very same where there is a GIL. Made for Pythons without it, cramjam refuses to write into any
`memoryview`, as one may lie over memory that must not change; what lends its bytes it takes.
Must not: cost anything where there is a GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.common.types import FREE_THREADS

F = TypeVar("F", bound=Callable[..., Any])


class Lent:
    """Lends the bytes of a view (PEP 688)."""

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def __buffer__(self, flags: int) -> memoryview:
        return self._view


def into_views(function: F) -> F:
    """Have a function write into the view that is its second argument."""
    if not FREE_THREADS:
        return function

    def write(data: memoryview, room: memoryview, **options: Any) -> Any:
        return function(data, Lent(room), **options)

    return write  # type: ignore[return-value]  # it takes what the other takes
