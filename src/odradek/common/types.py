"""Define small value types that all packages share.

In: nothing. Out: addresses, topic-partitions, and the interfaces of locks and random generators.
`str()` of an address or partition is printable (R-IN-3), its fields are unchanged. Must not: read a
clock or draw a random number.
"""

from __future__ import annotations

import sys
from collections.abc import MutableSequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from odradek.common.printable import printable

if TYPE_CHECKING:  # `default` needs Python 3.13 at run time
    from typing_extensions import TypeVar

    K_co = TypeVar("K_co", covariant=True, default=bytes | None)
    V_co = TypeVar("V_co", covariant=True, default=bytes | None)
    K_contra = TypeVar("K_contra", contravariant=True, default=bytes)
    V_contra = TypeVar("V_contra", contravariant=True, default=bytes)
else:
    from typing import TypeVar

    K_co, V_co, K_contra, V_contra = map(TypeVar, ("K_co", "V_co", "K_contra", "V_contra"))

FREE_THREADS = "t" in getattr(sys, "abiflags", "")
"""Whether this Python is a free-threaded build (such as 3.14t), even if the GIL is on."""


class Rng(Protocol):
    """Interface of a random generator; each client has its own, also after a fork (R-BO-4)."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


class PartitionFunction(Protocol):
    """A function for the option `partitioner`, which returns the partition of a record.

    It is called in the thread that calls `send`, for each record without an explicit partition. If
    several threads share a producer, they may call it at the same time.
    """

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, /
    ) -> int: ...


# Named tuples, because nearly every dict has them as keys, and a dataclass's hash is slower.


class Address(NamedTuple):
    """Host name and port of a broker, as configured or advertised (never a resolved IP address)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = printable(self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def is_host(text: str) -> bool:
    """Return whether a text can be a host name or IP.

    It isn't empty, and has no spaces or control characters.
    """
    return bool(text) and not any(char <= " " or char == "\x7f" for char in text)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{printable(self.topic)}-{self.partition}"


class NullLock:
    """The lock of a client that only one thread uses; its methods do nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def is_mine(self) -> bool:
        """Return False, because no thread ever holds this lock."""
        return False


class Lock(Protocol):
    """Interface of a client's lock, which is a reentrant C lock (R-HO-1) or a `NullLock`."""

    def __enter__(self) -> object: ...
    def __exit__(self, *args: object) -> object: ...
    def is_mine(self) -> bool:
        """Return whether this thread holds the lock."""
