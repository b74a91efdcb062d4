"""Small value types that every room shares; nothing here reads a clock or draws a number.

In: nothing. Out: addresses, topic-partitions and the protocols of what is handed in from outside.
`str()` of them is for people (R-IN-3); their fields stay what they are.
"""

from __future__ import annotations

import sys
from collections.abc import MutableSequence
from typing import Any, NamedTuple, Protocol, Self

from odradek.common.printable import printable

FREE_THREADS = "t" in getattr(sys, "abiflags", "")
"""Whether this Python was built to run threads without a GIL (3.14t), be it on or off just now."""


class Rng(Protocol):
    """The random generator that is handed in: one per client, never shared by a fork (R-BO-4)."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


class PartitionFunction(Protocol):
    """What `partitioner` may be besides a name: a function that gives a record's partition.

    It is asked on the thread that sends, for each record whose partition its sender leaves open;
    where threads share a producer it must bear calls from several at once.
    """

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, /
    ) -> int: ...


# Tuples, because these two are the keys of nearly every map, and a dataclass hashes in Python.


class Address(NamedTuple):
    """A broker's host name and port as configured or advertised (never a resolved IP)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = printable(self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def is_host(text: str) -> bool:
    """Whether a text can be a host's name or IP: not empty, no blanks or control characters."""
    return bool(text) and not any(char <= " " or char == "\x7f" for char in text)


class TopicPartition(NamedTuple):
    """One partition of one topic, as Kafka's own clients name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{printable(self.topic)}-{self.partition}"


class NullLock:
    """The lock of a client that only one thread uses: costs a method call, guards nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def is_mine(self) -> bool:
        """Nobody ever has it."""
        return False


class Lock(Protocol):
    """What a host hands to the engine: a reentrant C lock (R-HO-1); a null lock in simulations."""

    def __enter__(self) -> object: ...
    def __exit__(self, *args: object) -> object: ...
    def is_mine(self) -> bool:
        """Whether this thread has it."""
