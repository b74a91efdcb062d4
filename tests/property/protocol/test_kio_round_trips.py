"""Every message in every version against kio, another implementation of the same definitions.

kio's dataclasses say which fields a version has; Hypothesis fills Odradek's message; both write the
same bytes, and each reads the other's. kio can't represent everything (an unknown error code, a
timestamp outside of `datetime`), so a second test round-trips full ranges with Odradek alone.
"""

from __future__ import annotations

import dataclasses
import io
import types
import typing
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.volume import PART, some

from odradek.protocol.api_keys import API_NAMES, GENERATED
from odradek.protocol.message import Message, Struct, field_names
from odradek.protocol.primitives import records_view
from odradek.protocol.registry import request_class
from odradek.simulation.brokers.injected_errors import APIS

VERSIONS = {  # API key: versions of Kafka 4.4's brokers, without unstable ones
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 5),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 6),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 3),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    71: (0, 0),
    72: (0, 0),
    74: (0, 1),
    77: (1, 1),
    80: (0, 1),
    81: (0, 0),
    89: (0, 1),
    90: (0, 1),
    91: (0, 0),
    92: (0, 0),
    94: (0, 0),
}
LIGHT = settings(
    max_examples=10 if PART == 1 else 4,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LIGHTER = settings(LIGHT, max_examples=4 if PART == 1 else 2)
"""Settings for messages of admin clients, which are many and simple."""
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "error_code": 16}
INTEGERS |= {"timedelta_i32": 32, "timedelta_i64": 64, "datetime_i64": 64}
MILLISECONDS = timedelta(milliseconds=1)


def all_pairs() -> list[tuple[type[Message], int]]:
    pairs: list[tuple[type[Message], int]] = []
    for key, (low, high) in VERSIONS.items():
        request = request_class(key)
        for message in (request, request.RESPONSE):
            pairs += [(message, version) for version in range(low, high + 1)]
    return pairs


NOT_IN_KIO = frozenset(
    (
        "ApiVersionsRequest-5",
        "ApiVersionsResponse-5",
        "DeleteGroupsRequest-3",
        "DeleteGroupsResponse-3",
        "StreamsGroupDescribeRequest-1",
        "StreamsGroupDescribeResponse-1",
        "TxnOffsetCommitRequest-6",
        "TxnOffsetCommitResponse-6",
        "UnregisterControllerRequest-0",
        "UnregisterControllerResponse-0",
    )
)
"""Messages that kio 0.6.5 lacks (of Kafka 4.4; `unit/protocol/test_messages.py` has their bytes
from Java). A message in this list must really be missing there.
"""
ALL = all_pairs()
PAIRS = [(m, version) for m, version in ALL if f"{m.__name__}-{version}" not in NOT_IN_KIO]
NAMES = [f"{message.__name__}-{version}" for message, version in PAIRS]
CLIENTS = frozenset(APIS) | {"ApiVersions", "SaslAuthenticate", "SaslHandshake"}
"""Requests of producers and consumers."""
RENAMED = {"generation_id_or_member_epoch": "generation_id"}
"""Fields whose names Kafka has changed since kio's release."""


def effort(message: type[Message]) -> settings:
    return LIGHT if API_NAMES[message.API_KEY] in CLIENTS else LIGHTER


def kio_class(message: type[Message], version: int) -> type[Any]:
    folder = message.__module__.rpartition(".")[2]
    kind = "request" if message.__name__.endswith("Request") else "response"
    module = import_module(f"kio.schema.{folder}.v{version}.{kind}")
    found: type[Any] = getattr(module, message.__name__)
    return found


def kio_serial() -> tuple[Callable[..., Any], Callable[..., Any]]:
    serial = import_module("kio.serial")
    return serial.entity_reader, serial.entity_writer


def kio_name(ours: str, theirs: dict[str, Any]) -> str | None:
    """Return kio's name for our field, None if its version doesn't have the field."""
    for name in (ours, ours.removesuffix("_ms"), f"{ours}_", RENAMED.get(ours, ours)):
        if name in theirs:
            return name
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """One field of a version: our name, kio's name, and both types."""

    ours: str
    theirs: str
    kind: str
    array: bool
    nullable: bool
    element: Any
    our_struct: Any


def struct_in(annotation: Any) -> Any:
    """Return the class inside `list[X]`, `X | None` or `X`."""
    for part in typing.get_args(annotation):
        found = struct_in(part)
        if found is not None:
            return found
    ours = isinstance(annotation, type) and issubclass(annotation, Struct)
    return annotation if ours else None


_SLOTS: dict[Any, list[Slot]] = {}


def slots(ours: type[Any], theirs: type[Any]) -> list[Slot]:
    """Pair the fields of both classes; every field of kio's must have a counterpart."""
    if (ours, theirs) in _SLOTS:
        return _SLOTS[ours, theirs]
    fields = {field.name: field for field in dataclasses.fields(theirs)}
    their_types = typing.get_type_hints(theirs)
    our_types = typing.get_type_hints(ours.__init__)
    made = _SLOTS[ours, theirs] = []
    for our_name in field_names(ours):
        name = kio_name(our_name, fields)
        if name is None:
            continue
        annotation = their_types[name]
        options = typing.get_args(annotation)
        nullable = isinstance(annotation, types.UnionType) and type(None) in options
        if nullable:
            annotation = next(option for option in options if option is not type(None))
        array = typing.get_origin(annotation) is tuple
        element = typing.get_args(annotation)[0] if array else annotation
        kind = fields[name].metadata.get("kafka_type", "struct")
        made.append(
            Slot(our_name, name, kind, array, nullable, element, struct_in(our_types[our_name]))
        )
    missing = set(fields) - {slot.theirs for slot in made}
    assert not missing, f"{ours.__name__} lacks {missing}"
    return made


def values(slot: Slot, *, for_kio: bool) -> st.SearchStrategy[Any]:
    """Return values for a field; with `for_kio` only those that kio's types can represent."""
    plain: st.SearchStrategy[Any]
    if slot.kind == "struct":
        plain = instances(slot.our_struct, slot.element, for_kio=for_kio)
    elif slot.kind == "error_code" and for_kio:
        plain = st.sampled_from(sorted(int(code) for code in slot.element))
    elif slot.kind == "datetime_i64" and for_kio:
        plain = st.integers(0, 250_000_000_000).map(lambda second: second * 1000)
        plain |= st.just(-1) if slot.nullable else st.nothing()
    elif slot.kind == "timedelta_i64" and for_kio:
        plain = st.integers(-(10**12), 10**12)
    elif slot.kind == "uint16":
        plain = st.integers(0, 0xFFFF)
    elif slot.kind == "float64":
        plain = st.floats(allow_nan=False, allow_infinity=False)
    elif slot.kind in INTEGERS:
        half = 1 << (INTEGERS[slot.kind] - 1)
        plain = st.integers(-half, half - 1)
    elif slot.kind == "bool":
        plain = st.booleans()
    elif slot.kind == "string":
        plain = st.text(max_size=4) | st.just("x" * 200)
    elif slot.kind == "uuid":
        plain = st.binary(min_size=16, max_size=16)
    elif slot.kind in ("bytes", "records"):
        plain = st.binary(max_size=20) | st.just(b"r" * 300)
    else:
        raise AssertionError(slot.kind)
    if slot.array:
        plain = st.lists(plain, max_size=3)
    absent = slot.nullable and slot.kind not in ("uuid", "datetime_i64")
    return st.none() | plain if absent else plain


def instances(ours: type[Any], theirs: type[Any], *, for_kio: bool) -> st.SearchStrategy[Any]:
    fields = {slot.ours: values(slot, for_kio=for_kio) for slot in slots(ours, theirs)}
    return st.builds(ours, **fields)


def to_kio(ours: Any, theirs: type[Any]) -> Any:
    """Convert our message to kio's."""
    made: dict[str, Any] = {}
    for slot in slots(type(ours), theirs):
        value = getattr(ours, slot.ours)
        if value is not None and slot.array:
            made[slot.theirs] = tuple(convert(slot, item) for item in value)
        else:
            made[slot.theirs] = None if value is None else convert(slot, value)
    return theirs(**made)


def convert(slot: Slot, value: Any) -> Any:
    if slot.kind == "struct":
        return to_kio(value, slot.element)
    if slot.kind == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    if slot.kind.startswith("timedelta"):
        return value * MILLISECONDS
    if slot.kind == "datetime_i64":
        return None if value == -1 else datetime.fromtimestamp(value / 1000, UTC)
    if slot.kind == "error_code":
        return slot.element(value)
    return value


def flat(message: Message, version: int) -> bytes:
    return b"".join(message.encode(version))


def plain(value: Any) -> Any:
    """Convert every records field to bytes, so that `==` compares contents."""
    if isinstance(value, Struct):
        fields = {name: plain(getattr(value, name)) for name in field_names(type(value))}
        return type(value)(**fields)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, memoryview)):
        view = records_view(value)
        return None if view is None else bytes(view)
    return value


def test_kio_has_every_message_except_the_listed_ones() -> None:
    """Check only the listed messages in short runs: importing all of kio takes long."""
    missing = set()
    for message, version in ALL if PART == 1 else set(ALL) - set(PAIRS):
        try:
            kio_class(message, version)
        except ImportError:
            missing.add(f"{message.__name__}-{version}")
    assert missing == NOT_IN_KIO


def test_messages_have_the_versions_of_the_version_table() -> None:
    for key, versions in VERSIONS.items():
        request = request_class(key)
        for message in (request, request.RESPONSE):
            assert versions == (message.MIN_VERSION, message.MAX_VERSION)
            assert key == message.API_KEY
    assert {API_NAMES[key] for key in VERSIONS} == GENERATED


NEWEST = dict(PAIRS)
MOST = [
    pytest.param(message, version, id=name)
    for at, ((message, version), name) in enumerate(zip(PAIRS, NAMES, strict=True))
    if PART == 1 or at % 18 == 0 or version == NEWEST[message]
]
"""The newest version of each message and some of the others; all of them in a whole run."""


@pytest.mark.parametrize(("message", "version"), MOST)
def test_kio_and_odradek_write_the_same_bytes_and_read_each_others_messages(
    message: type[Message], version: int
) -> None:
    theirs = kio_class(message, version)
    entity_reader, entity_writer = kio_serial()
    write, read = entity_writer(theirs), entity_reader(theirs)

    @effort(message)
    @given(instances(message, theirs, for_kio=True))
    def check(ours: Message) -> None:
        entity = to_kio(ours, theirs)
        with io.BytesIO() as buffer:
            write(buffer, entity)
            their_bytes = buffer.getvalue()
        our_bytes = flat(ours, version)
        assert our_bytes == their_bytes
        assert plain(message.decode(their_bytes, version)) == plain(ours)
        decoded, size = read(our_bytes, 0)
        assert size == len(our_bytes)
        assert decoded == entity

    check()


FEWER = [
    pytest.param(message, version, id=name)
    for (message, version), name in some(zip(PAIRS, NAMES, strict=True), len(PAIRS) // 12)
]


@pytest.mark.parametrize(("message", "version"), FEWER)
def test_values_of_full_ranges_are_decoded_unchanged(message: type[Message], version: int) -> None:
    @effort(message)
    @given(instances(message, kio_class(message, version), for_kio=False), st.binary(max_size=5))
    def check(ours: Message, before: bytes) -> None:
        encoded = flat(ours, version)
        found = message.decode(bytearray(before + encoded), version, offset=len(before))
        assert plain(found) == plain(ours)
        assert flat(found, version) == encoded

    check()
