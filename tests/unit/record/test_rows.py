"""Test records (named tuples) built from columns, by Python and by the native kernel."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import tracemalloc
import weakref
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import odradek.record
from odradek.clients.consumer.records import ConsumerRecord, UnreadRecord
from odradek.common.types import FREE_THREADS
from odradek.record import KERNEL, build_rows, collectable, decode, reference, rows
from odradek.record.columns import EMPTY, MOST_READ, Headers, RecordColumns, Row, ViewColumn
from odradek.record.reference import encode

BUILDERS = [rows.build_rows, *([build_rows] if build_rows is not rows.build_rows else [])]
LONG = b"a value that doesn't fit into twelve bytes"
ROWS: list[Row] = [
    (5, 1000, 0, b"k", b"", ()),
    (6, 999, 0, None, LONG, (("name", b"x"), ("none", None))),
    (9, 2000, 0, b"", None, ()),
    (10, 2001, 0, b"\xff" * 300, b"v", (("", b""),)),
]


@pytest.fixture(params=BUILDERS, ids=lambda builder: builder.__module__)
def build(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    found: Callable[..., list[Any]] = request.param
    return found


def decoded(**options: Any) -> RecordColumns:
    return decode(memoryview(encode(ROWS)), start_offset=0, **options).columns


def expected(epochs: list[int]) -> list[ConsumerRecord]:
    return [ConsumerRecord("t", 3, *row, epoch) for row, epoch in zip(ROWS, epochs, strict=True)]


def test_records_contain_every_column_of_every_row(build: Callable[..., list[Any]]) -> None:
    made = build(ConsumerRecord, "t", 3, decoded(), 7)
    assert made == expected([7] * 4)
    assert all(type(record) is ConsumerRecord for record in made)
    assert made[1].headers[1] == ("none", None)
    assert build(ConsumerRecord, "t", 3, decoded(), [1, 1, 2, 3]) == expected([1, 1, 2, 3])


def changed(columns: RecordColumns, **changes: Any) -> RecordColumns:
    made = copy.copy(columns)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_records_can_be_built_from_slices_and_from_columns_without_keys_or_values(
    build: Callable[..., list[Any]],
) -> None:
    part = build(ConsumerRecord, "t", 3, decoded().slice(1, 3), 7)
    assert part == expected([7] * 4)[1:3]
    bare = build(ConsumerRecord, "t", 3, decoded(want_key=False, want_headers=False), 7)
    assert bare == [r._replace(key=None, headers=()) for r in expected([7] * 4)]
    assert build(ConsumerRecord, "t", 3, EMPTY, 7) == []


def test_values_in_binary_view_columns_are_copied_to_bytes(build: Callable[..., list[Any]]) -> None:
    columns = decoded()
    inline = b"\1\0\0\0k" + bytes(11)
    there = len(LONG).to_bytes(4, "little") + LONG[:4] + bytes(4) + (2).to_bytes(4, "little")
    views = ViewColumn(memoryview(inline + there + bytes(16) + inline), (b"__" + LONG,), b"\x0b")
    made = build(ConsumerRecord, "t", 3, changed(columns, values=views), 7)
    assert [record.value for record in made] == [b"k", LONG, None, b"k"]


def many(count: int) -> Headers:
    return tuple((f"name {n}", None if n % 3 == 0 else b"%d" % n) for n in range(count))


def raw_records(build: Callable[..., list[Any]], *headers: Headers) -> list[ConsumerRecord]:
    """Build records with unparsed headers, as `poll()` does."""
    encoded = encode([(n, 1, 0, b"k", b"v", each) for n, each in enumerate(headers)])
    decoder = reference.decode if build is rows.build_rows else decode
    columns = decoder(memoryview(encoded), start_offset=0, raw_headers=True).columns
    return list(build(ConsumerRecord, "t", 3, columns, 7, UnreadRecord))


def test_few_headers_are_parsed_with_their_record_and_many_only_when_they_are_read(
    build: Callable[..., list[Any]],
) -> None:
    some = (("ñ", b"\xff"), ("", None), ("bad \ufffd", b""))
    made = raw_records(build, some, (), many(MOST_READ), many(MOST_READ + 1))
    assert [type(r) for r in made] == [ConsumerRecord] * 3 + [UnreadRecord]
    assert [r.headers for r in made] == [some, (), many(MOST_READ), many(MOST_READ + 1)]
    assert made[0].headers is made[0][7]  # headers are parsed only once
    assert all(type(r[7]) is tuple and all(type(h) is tuple for h in r[7]) for r in made)
    if build is not rows.build_rows:  # records that can't be in a reference cycle
        assert not any(gc.is_tracked(r) or gc.is_tracked(r[7]) for r in made[:3])


def test_a_record_with_many_headers_behaves_like_any_other_record(
    build: Callable[..., list[Any]],
) -> None:
    headers = many(MOST_READ + 1)
    (made,) = raw_records(build, headers)
    same = ConsumerRecord("t", 3, 0, 1, 0, b"k", b"v", headers, 7)
    assert isinstance(made, ConsumerRecord)
    assert made == same == made
    assert same == made
    assert (hash(made), repr(made).partition("(")[2]) == (hash(same), repr(same).partition("(")[2])
    assert made[7] == made[-2] == headers
    assert (made[7:], made[2], made.offset) == ((headers, 7), 0, 0)
    assert made.timestamp == same.timestamp == made.timestamp_ms == 1
    both: list[Any] = [made, same]
    for record in both:
        with pytest.raises(AttributeError, match="'error', and needs none, because poll.. raises"):
            _ = record.error
    assert all(type(part) is tuple for part in (made.headers, made[7], made[6:8][1], [*made][7]))
    assert tuple(made) == same
    assert made._asdict() == same._asdict()
    assert type(made._asdict()["headers"]) is tuple
    for other in (
        pickle.loads(pickle.dumps(made)),  # noqa: S301 - our own
        copy.copy(made),
        copy.deepcopy(made),
    ):
        assert type(other) is ConsumerRecord
        assert other == same
        assert type(other[7]) is tuple
    changed = made._replace(key=b"other")
    assert changed == same._replace(key=b"other")
    assert changed.headers == changed[7] == headers
    assert made._replace(headers=()).headers == ()
    topic, *_, last_headers, epoch = made
    assert (topic, last_headers, epoch) == ("t", headers, 7)
    match made:
        case ConsumerRecord(headers=[("name 0", None), *rest]):
            assert len(rest) == MOST_READ
        case _:
            raise AssertionError


def test_record_classes_have_no_attribute_hook() -> None:
    """Python 3.11 accesses fields slowly in a class with `__getattr__` or `__getattribute__`."""
    for cls in (ConsumerRecord, UnreadRecord):
        assert not hasattr(cls, "__getattr__")
        assert cls.__getattribute__ is tuple.__getattribute__
    record = ConsumerRecord[str, int]("t", 0, 1, 2, 0, "k", 5, (), 0)
    assert type(record) is ConsumerRecord


@pytest.mark.slow
def test_many_headers_only_use_their_encoded_size_until_they_are_read(
    build: Callable[..., list[Any]],
) -> None:
    headers = tuple((f"name {n}", b"") for n in range(10_000))
    encoded = memoryview(encode([(0, 1, 0, None, None, headers)]))
    decoder = reference.decode if build is rows.build_rows else decode
    columns = decoder(encoded, start_offset=0, raw_headers=True).columns
    del headers
    tracemalloc.start()
    try:
        (made,) = build(ConsumerRecord, "t", 3, columns, 7, UnreadRecord)
        held, _ = tracemalloc.get_traced_memory()
        assert len(made.headers) == 10_000
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * len(encoded)
    assert peak > 10 * held
    assert after < 3 * held  # the parsed headers were freed


@pytest.mark.skipif(KERNEL != "native", reason="the Python builder's tuples are tracked one by one")
def test_the_garbage_collector_is_paused_while_rows_are_built() -> None:
    rows_of_it: list[Row] = [(n, n, 0, b"k", b"v", ()) for n in range(9000)]
    columns = decode(memoryview(encode(rows_of_it)), start_offset=0).columns
    looks: list[str] = []

    def note(phase: str, _: object) -> None:
        looks.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    try:
        made = build_rows(ConsumerRecord, "t", 3, columns, 7, UnreadRecord)
    finally:
        gc.callbacks.remove(note)
    assert len(made) == 9000
    assert len(looks) <= 4  # at most two collections, with a start and a stop each
    assert gc.isenabled()
    values: Any = columns.values
    wrong = changed(columns, values=values._replace(offsets=array("i", [0, 9, 1])))
    with pytest.raises(ValueError, match="in order"):
        build_rows(ConsumerRecord, "t", 3, changed(wrong, count=2, keys=None), 7)
    assert gc.isenabled()
    gc.disable()
    try:
        assert build_rows(ConsumerRecord, "t", 3, columns, 7) == made
        assert not gc.isenabled()
    finally:
        gc.enable()


class Named(NamedTuple):
    """A named tuple of three items."""

    first: object
    second: object = b"2"
    third: object = None


class Derived(Named):
    """A subclass that overrides a field."""

    __slots__ = ()

    @property
    def second(self) -> object:
        return "made"


class WithDict(Named):
    """A subclass with a `__dict__`."""


def test_named_tuples_read_as_slots_behave_the_same(build: Callable[..., list[Any]]) -> None:
    twin: Any = rows if build is rows.build_rows else odradek.record
    twin.read_as_slots(Named)
    held = object()
    made, derived, roomy = Named(held), Derived(1, 2, 3), WithDict(4, 5, 6)
    for _ in range(100):  # often, so that the interpreter specializes the access
        assert (made.first, made.second, made.third) == (held, b"2", None)
        assert (derived.first, derived.second, derived.third) == (1, "made", 3)
        assert (roomy.first, roomy.third) == (4, 6)
    for name in Named._fields:
        with pytest.raises(AttributeError):
            setattr(made, name, 1)
        with pytest.raises(AttributeError):
            delattr(made, name)
        if twin is not rows:
            with pytest.raises(TypeError):
                getattr(Named, name).__get__((1, 2, 3))
    assert made._replace(second=5) == (held, 5, None)
    assert made._asdict() == {"first": held, "second": b"2", "third": None}
    assert repr(Named(1)) == "Named(first=1, second=b'2', third=None)"
    assert pickle.loads(pickle.dumps(Named(1))) == Named(1)  # noqa: S301 - our own
    before = sys.getrefcount(held)
    assert all(made.first is held for _ in range(1000))
    assert sys.getrefcount(held) == before
    if twin is not rows:
        for wrong in (WithDict, int, Filled):
            with pytest.raises(TypeError, match="named tuple"):
                twin.read_as_slots(wrong)


def test_a_missing_item_of_a_too_short_named_tuple_raises(build: Callable[..., list[Any]]) -> None:
    """Fields are read without a check of the tuple's length, which once crashed the process."""
    twin: Any = rows if build is rows.build_rows else odradek.record
    twin.read_as_slots(Named)

    class Short(Named):
        """A subclass with its own `__new__`."""

        def __new__(cls, *items: object) -> Any:
            return tuple.__new__(cls, items)

    for _ in range(1000):
        for made in (tuple.__new__(Named, ()), Short("topic"), Short()):
            if len(made):
                assert made.first == "topic"
            with pytest.raises((AttributeError, IndexError)):
                _ = made.third
    assert Short(1, 2, 3).third == 3
    assert Short(1).__dict__ == {}


class Filled:
    """A class whose objects are created without `__init__`."""

    __slots__ = ("__weakref__", "a", "b")
    a: object


class Shown(Filled):
    """A subclass with the same slots and its own `__setattr__`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        collectable(self)
        object.__setattr__(self, name, value)


class Larger(Filled):
    """A subclass with an additional slot."""

    __slots__ = ("c",)


TWINS = [rows, odradek.record] if KERNEL == "native" else [rows]


@pytest.mark.parametrize("twin", TWINS)
def test_objects_created_without_init_can_get_attributes_and_another_class(twin: Any) -> None:
    made = twin.blanks(Filled, 3)
    assert [type(one) for one in made] == [Filled] * 3
    for n, one in enumerate(made):
        one.a = n
    twin.become(made, Filled, Shown)
    assert [(type(one), one.a, hasattr(one, "b")) for one in made] == [
        (Shown, n, False) for n in range(3)
    ]
    assert twin.blanks(Filled, 0) == []
    gone = [weakref.ref(one) for one in made]
    del made, one
    assert [ref() for ref in gone] == [None] * 3


@pytest.mark.skipif(FREE_THREADS, reason="each thread counts references of classes there")
@pytest.mark.parametrize("twin", TWINS)
def test_objects_created_without_init_hold_references_to_their_class(twin: Any) -> None:
    before = sys.getrefcount(Filled), sys.getrefcount(Shown)
    made = twin.blanks(Filled, 100)
    twin.become(made, Filled, Shown)
    assert sys.getrefcount(Filled) - before[0] < 10
    del made
    assert (sys.getrefcount(Filled), sys.getrefcount(Shown)) == before


def test_objects_with_references_to_themselves_are_garbage_collected() -> None:
    made = odradek.record.blanks(Filled, 2)
    odradek.record.become(made, Filled, Shown)
    if KERNEL == "native":
        assert not any(gc.is_tracked(one) for one in made)
    gone = weakref.ref(made[0])
    made[0].a = made[0]
    assert gc.is_tracked(made[0])
    collectable(made[0])
    collectable(3)
    del made
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("twin", TWINS)
def test_blanks_rejects_unplain_classes_and_become_those_that_add_more_than_methods(
    twin: Any,
) -> None:
    for cls in (int, tuple, list, Exception, type):
        with pytest.raises(TypeError, match="plain class"):
            twin.blanks(cls, 1)
    made = twin.blanks(Filled, 1)
    wrong = [(Filled, Larger), (Filled, Filled), (Larger, Shown), (object, Filled)]
    for base, other in wrong:
        with pytest.raises(TypeError, match="that only adds methods"):
            twin.become(made, base, other)
    with pytest.raises(TypeError, match="isn't"):
        twin.become([3], Filled, Shown)
    assert type(made[0]) is Filled
