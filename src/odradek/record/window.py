"""Let cramjam's codecs write into a memoryview, also without a GIL (milesgranger/cramjam#213).

In: a function of cramjam that writes into its argument. Out: a function that takes a writable view;
with a GIL, the unchanged function. Without a GIL, cramjam refuses to write into a `memoryview`,
because its memory might be immutable, but accepts other objects with a writable buffer. Must not:
take time with a GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.common.types import FREE_THREADS

F = TypeVar("F", bound=Callable[..., Any])


class Lent:
    """Object that exposes the bytes of a view as a buffer (PEP 688)."""

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def __buffer__(self, flags: int) -> memoryview:
        return self._view


def into_views(function: F) -> F:
    """Wrap a function so that it writes into its second argument, a view."""
    if not FREE_THREADS:
        return function

    def write(data: memoryview, room: memoryview, **options: Any) -> Any:
        return function(data, Lent(room), **options)

    return write  # type: ignore[return-value]  # it takes what the other takes
