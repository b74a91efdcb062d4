"""Define small value types that every package shares.

In: nothing. Out: addresses, topic-partitions and the protocols of objects that hosts pass to the
engine. `str()` of them is for people (R-IN-3); their fields remain unchanged. Must not: read a
clock or draw a random number.
"""

from __future__ import annotations

import sys
from collections.abc import MutableSequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from odradek.common.printable import printable

if TYPE_CHECKING:  # before Python 3.13 only type checkers know `default`
    from typing_extensions import TypeVar

    K_co = TypeVar("K_co", covariant=True, default=bytes | None)
    V_co = TypeVar("V_co", covariant=True, default=bytes | None)
    K_contra = TypeVar("K_contra", contravariant=True, default=bytes)
    V_contra = TypeVar("V_contra", contravariant=True, default=bytes)
else:
    from typing import TypeVar

    K_co, V_co, K_contra, V_contra = map(TypeVar, ("K_co", "V_co", "K_contra", "V_contra"))

FREE_THREADS = "t" in getattr(sys, "abiflags", "")
"""Whether this Python is a free-threaded build (3.14t), with the GIL on or off."""


class Rng(Protocol):
    """Random generator that is an argument: one per client, never shared by a fork (R-BO-4)."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


class PartitionFunction(Protocol):
    """A function for the option `partitioner`, which returns the partition of a record.

    It is called in the thread that sends, for each record without an explicit partition. If several
    threads share a producer, they may call it at the same time.
    """

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, /
    ) -> int: ...


# Tuples, because these two are the keys of nearly every map, and a dataclass hashes in Python.


class Address(NamedTuple):
    """Host name and port of a broker, as configured or advertised (never a resolved IP address)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = printable(self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def is_host(text: str) -> bool:
    """Return whether a text can be a host's name or IP.

    Not empty, no blanks or control characters.
    """
    return bool(text) and not any(char <= " " or char == "\x7f" for char in text)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{printable(self.topic)}-{self.partition}"


class NullLock:
    """The lock of a client that only one thread uses: costs a method call, and locks nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def is_mine(self) -> bool:
        """Return whether this thread holds the lock: never."""
        return False


class Lock(Protocol):
    """Lock that a host passes to the engine: a reentrant C lock (R-HO-1), or a null lock."""

    def __enter__(self) -> object: ...
    def __exit__(self, *args: object) -> object: ...
    def is_mine(self) -> bool:
        """Return whether this thread holds the lock."""
