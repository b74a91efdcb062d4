"""Invalid bytes from a peer are decoded to a message, or raise the one typed error.

Seeded mutations of valid frames (bits flipped, bytes removed, inserted and duplicated, lengths
increased) for every message in every version, and every truncation of a frame. Memory is measured,
because a hostile length must not allocate.
"""

from __future__ import annotations

import gc
import re
import typing
import weakref
import zlib
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.peak_memory import peak_below
from tests.volume import some

from odradek.common.errors import MalformedMessageError
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.protocol.api_keys import API_NAMES, GENERATED
from odradek.protocol.message import Message, Struct, field_names
from odradek.protocol.registry import request_class

MUTATIONS = 40
VALUES: dict[Any, Any] = {int: 1, float: 1.5, bool: True, str: "flights", bytes: bytes(range(16))}
HOSTILE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x00\x00\x00")


def full(annotation: Any) -> Any:
    """Return a value for a field of this type, with two elements in every list."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        hints = typing.get_type_hints(annotation.__init__)
        made: Any = annotation
        return made(**{name: full(hints[name]) for name in field_names(annotation)})
    if typing.get_origin(annotation) is list:
        (element,) = typing.get_args(annotation)
        return [full(element), full(element)]
    if annotation in VALUES:
        return VALUES[annotation]
    options = typing.get_args(annotation)
    if memoryview in options:
        return b"some records"
    return full(next(option for option in options if option is not type(None)))


def fitted(message: type[Message], version: int) -> Message:
    """Return a message with every field that this version can carry."""
    made: Message = full(message)
    while True:
        try:
            made.encode(version)
        except UnsupportedVersionError as error:
            absent = re.search(r"can't contain (\w+)\.(\w+)", str(error))
            assert absent is not None
            reset(made, absent[1], absent[2])
        else:
            return made


def reset(value: Any, struct: str, name: str) -> None:
    """Set a field back to its default wherever its struct occurs."""
    if isinstance(value, list):
        for item in value:
            reset(item, struct, name)
    elif isinstance(value, Struct):
        if type(value).__name__ == struct:
            made: Any = type(value)
            setattr(value, name, getattr(made(), name))
        for field in field_names(type(value)):
            reset(getattr(value, field), struct, name)


def frames() -> list[tuple[type[Message], int]]:
    made: list[tuple[type[Message], int]] = []
    for key in sorted(key for key, name in API_NAMES.items() if name in GENERATED):
        request = request_class(key)
        for message in (request, request.RESPONSE):
            versions = range(message.MIN_VERSION, message.MAX_VERSION + 1)
            made += [(message, version) for version in versions]
    return made


PAIRS = frames()
NAMES = [f"{message.__name__}-{version}" for message, version in PAIRS]

FLEXIBLE = [(message, version) for message, version in PAIRS if message.is_flexible(version)]


def mutated(frame: bytes, rng: Random) -> bytes:
    """Apply one to three random changes."""
    found = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(7):
            case 0 | 5 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + rng.randint(1, 8)]
            case 2:
                found[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                found[at : at + 4] = rng.choice(HOSTILE)
            case 4:
                del found[at:]
            case _:
                found[at:at] = found[at : at + rng.randint(1, 30)]
    return bytes(found)


FEWER = [
    pytest.param(message, version, id=name)
    for (message, version), name in some(zip(PAIRS, NAMES, strict=True), len(PAIRS) // 6)
]


@pytest.mark.parametrize(("message", "version"), FEWER)
def test_mutated_frames_are_decoded_or_rejected_with_the_typed_error(
    message: type[Message], version: int
) -> None:
    frame = b"".join(fitted(message, version).encode(version))
    rng = Random(zlib.crc32(f"{message.__name__} {version}".encode()))
    refused = []
    for _ in range(MUTATIONS):
        broken = mutated(frame, rng)
        try:
            found = message.decode(broken, version)
        except MalformedMessageError as error:
            refused.append(str(error))
        else:
            assert type(found) is message
    assert all(text.startswith(f"{message.__name__} v{version}: ") for text in refused)
    assert refused or len(frame) < 12, "no mutation was refused: they don't reach the reader"


@pytest.mark.parametrize(("message", "version"), FEWER)
def test_truncated_and_too_long_frames_are_rejected(message: type[Message], version: int) -> None:
    frame = b"".join(fitted(message, version).encode(version))
    assert type(message.decode(frame, version)) is message
    for size in range(len(frame)):
        with pytest.raises(MalformedMessageError, match=f"at byte [0-9]+ of {size}"):
            message.decode(frame[:size], version)
    with pytest.raises(MalformedMessageError, match="1 unread bytes at the end"):
        message.decode(frame + b"\x00", version)


class Pinned(bytearray):
    """A received frame that can be weakly referenced."""


def test_hostile_lengths_allocate_no_memory() -> None:
    broken: list[tuple[type[Message], int, bytes]] = []
    for message, version in some(PAIRS, len(PAIRS) // 3):
        frame = b"".join(fitted(message, version).encode(version))
        broken.extend(
            (message, version, frame[:at] + hostile + frame[at + 4 :])
            for at in range(0, len(frame), 3)
            for hostile in HOSTILE
        )
    Random(7).shuffle(broken)
    with peak_below(512 * 1024):
        for message, version, frame in broken[:1500]:
            with suppress(MalformedMessageError):
                message.decode(frame, version)


def test_an_undecodable_frame_is_released_immediately() -> None:
    """Release the frame's memory without the garbage collector: a frame may have many megabytes."""
    refused = 0
    gc.collect()
    gc.disable()
    try:
        for message, version in PAIRS:
            frame = Pinned(b"".join(fitted(message, version).encode(version))[:-1])
            kept = weakref.ref(frame)
            try:
                message.decode(memoryview(frame), version)
            except MalformedMessageError:
                refused += 1
            del frame
            assert kept() is None, message.__name__
    finally:
        gc.enable()
    assert refused > len(PAIRS) * 0.9


@pytest.mark.parametrize(
    ("message", "version"), FLEXIBLE, ids=[f"{m.__name__}-{version}" for m, version in FLEXIBLE]
)
def test_unknown_tagged_fields_are_skipped(message: type[Message], version: int) -> None:
    frame = b"".join(message().encode(version))
    assert frame[-1] == 0, "no tagged fields, so their count is the last byte"
    tagged = frame[:-1] + b"\x02" + b"\x63\x03abc" + b"\x87\x68\x00"
    assert message.decode(tagged, version) == message.decode(frame, version)
    with pytest.raises(MalformedMessageError):
        message.decode(frame[:-1] + b"\x01" + b"\x63\x04abc", version)
