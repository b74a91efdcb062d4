"""Define the base classes of requests and responses; generated modules add fields and layouts.

In: a message and a version, or bytes and a version. Out: buffers ready for the socket, or the
message. Must not: guess a version, raise anything but `MalformedMessageError` for invalid bytes, or
copy records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import error as StructError  # noqa: N812  # an exception class with a function's name
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from odradek.common.errors import MalformedMessageError
from odradek.common.errors.kafka import InvalidRequestError, UnsupportedVersionError
from odradek.protocol.primitives import (
    AbsentFieldError,
    Buffer,
    Buffers,
    Output,
    WireError,
    as_bytes_view,
)

NEW: Any = object()
"""Default of a field that gets a new list or struct for each object."""
Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[Output, Any], None]


class Api(NamedTuple):
    """An API's key and name, and its lowest and highest version that this client supports.

    `flexible_from` is the first version, if any, with compact lengths and tagged fields (KIP-482).
    """

    key: int
    name: str
    low: int
    high: int
    flexible_from: int | None


class Struct:
    """A message or a part of a message; the slots of its class are its fields.

    Decoded messages share structs whose fields all have defaults: to change a field, replace the
    struct by a new one.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()
    __hash__ = None  # type: ignore[assignment]  # two that are equal may change

    def __eq__(self, other: object) -> bool:
        """Return whether the other object has the same class and equal fields."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in field_names(type(self)))

    def __repr__(self) -> str:
        """Return an expression that creates an equal object."""
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in field_names(type(self)))
        return f"{type(self).__qualname__}({told})"


def field_names(cls: type) -> tuple[str, ...]:
    """Return the names of a class's fields, first those of its base classes."""
    return tuple(name for each in reversed(cls.__mro__) for name in vars(each).get("__slots__", ()))


class Message(Struct):
    """A request or response of one API, in any of its versions."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    API_NAME: ClassVar[str]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int | None]
    """The first version with compact lengths and tagged fields (KIP-482); None without one."""
    READERS: ClassVar[tuple[Reader, ...]]
    """Functions that decode each version, from `MIN_VERSION` on; equal layouts share a function."""
    WRITERS: ClassVar[tuple[Writer, ...]]

    @classmethod
    def define(cls, api: Api, readers: Mapping[int, Reader], writers: Mapping[int, Writer]) -> None:
        """Set the API, and its decoding and encoding functions, by the first version of each."""
        cls.API_KEY, cls.API_NAME, cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM = api
        versions = range(api.low, api.high + 1)
        cls.READERS = tuple(readers[max(v for v in readers if v <= at)] for at in versions)
        cls.WRITERS = tuple(writers[max(v for v in writers if v <= at)] for at in versions)

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether `version` has compact lengths and tagged fields."""
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM

    @classmethod
    def _index(cls, version: int) -> int:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise UnsupportedVersionError(
                f"{cls.__name__} supports versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not "
                f"{version}"
            )
        return version - cls.MIN_VERSION

    def encode(self, version: int) -> Buffers:
        """Encode the message, without length and header; record buffers are separate items.

        Raises UnsupportedVersionError if this version has no field for a value, and
        InvalidRequestError if a value doesn't fit its field (null, too long, out of range).
        """
        out = Output()
        self.write(out, version)
        return out.buffers()

    def write(self, out: Output, version: int) -> None:
        """Append the encoded message to `out`."""
        at = version - self.MIN_VERSION
        writer = self.WRITERS[at if 0 <= at < len(self.WRITERS) else self._index(version)]
        try:
            writer(out, self)
        except AbsentFieldError as error:
            raise UnsupportedVersionError(
                f"{type(self).__name__} v{version} can't contain {error}{self._cure(version)}"
            ) from None
        except (StructError, AttributeError, TypeError, ValueError) as error:
            raise InvalidRequestError(
                f"{type(self).__name__} v{version} can't be encoded: {error}"
            ) from error

    def _cure(self, version: int) -> str:
        """Return a text that advises a newer version with all fields; empty if there is none."""
        unfit = (AbsentFieldError, StructError, AttributeError, TypeError, ValueError)
        for newer in range(version + 1, self.MAX_VERSION + 1):
            with suppress(*unfit):
                self.WRITERS[newer - self.MIN_VERSION](Output(), self)
                return f", which needs version {newer}: leave it out, or upgrade the brokers"
        return ""

    @classmethod
    def decode(cls, buffer: Buffer, version: int, offset: int = 0, *, whole: bool = True) -> Self:
        """Decode the message in `buffer` from `offset` to the end.

        With `whole=False`, bytes after the message are ignored, as Kafka's brokers do. Raises
        MalformedMessageError if the bytes don't have the expected layout, or if bytes are left.
        """
        return cls.read(as_bytes_view(buffer), version, offset, whole=whole)

    @classmethod
    def read(cls, view: memoryview, version: int, offset: int, *, whole: bool = True) -> Self:
        """Decode a message from a view whose items are single bytes."""
        at = version - cls.MIN_VERSION
        reader = cls.READERS[at if 0 <= at < len(cls.READERS) else cls._index(version)]
        message: Self
        pos = offset
        try:
            if not 0 <= offset <= len(view):
                raise WireError(f"it starts at byte {offset}")
            message, pos = reader(view, offset)
            if whole and pos != len(view):
                raise WireError(f"{len(view) - pos} unread bytes at the end")
        except (WireError, StructError, IndexError, UnicodeDecodeError) as error:
            raise malformed(f"{cls.__name__} v{version}", len(view), error, pos) from error
        return message


R = TypeVar("R", bound=Message)


class Response(Message):
    """Base class of responses."""

    __slots__ = ()


class Request(Message, Generic[R]):
    """Base class of requests; `R` is the class of the response."""

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]


def malformed(what: str, size: int, error: Exception, position: int = 0) -> MalformedMessageError:
    """Return the error for bytes that can't be decoded, with the position of the failure.

    `position` is the position in the caller's frame.
    """
    reason = "it is truncated" if isinstance(error, (StructError, IndexError)) else str(error)
    return MalformedMessageError(
        f"{what}: {reason}, at byte {_position(error, position)} of {size}"
    )


def _position(error: Exception, position: int) -> int:
    """Return the local variable `pos` of the innermost decoding function that has one."""
    # Skip the frame that caught the error: reading its locals would create a reference cycle with
    # the error, and keep the received buffer alive until the garbage collector runs.
    trace: TracebackType | None = error.__traceback__
    trace = trace.tb_next if trace is not None else None
    while trace is not None:
        found = trace.tb_frame.f_locals.get("pos", position)
        position = found if isinstance(found, int) else position
        trace = trace.tb_next
    return position
