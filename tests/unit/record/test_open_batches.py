"""Test the fast path of `send`, which appends to an open batch: Python and native code."""

from __future__ import annotations

import gc
import sys
import weakref
from types import FrameType, SimpleNamespace
from typing import Any, Self

import pytest
from tests.unit.record.implementations import ENCODINGS, PYTHON, Encoding

NOW = 1234.5678
AT = 1234567


class Future:
    """A minimal future that `send` returns."""

    _blank = (("_cancelled", False), ("_listeners", None))
    __slots__ = (*("_batch", "_cancelled", "_index", "_listeners", "_producer", "_timestamp_ms"),)

    def __init__(self, producer: Any, batch: Any, index: int, timestamp_ms: int) -> None:
        self._producer, self._batch, self._index = producer, batch, index
        self._timestamp_ms = timestamp_ms
        self._cancelled, self._listeners = False, None


class Message:
    """A minimal delivery report, as of confluent-kafka's API."""

    __slots__ = ("_error", "_more", "_record")


class CustomNew:
    """A class with its own `__new__`."""

    _blank = ()

    def __new__(cls, *_: object) -> Self:
        return object.__new__(cls)


class Batch:
    """An open batch, hashable by identity."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder


class Lane:
    """A topic with four partitions, some of which have an open batch."""

    def __init__(self, use: Encoding, snapshot: object, batches: dict[int, Batch]) -> None:
        self.use, self.snapshot, self.open = use, snapshot, batches
        self.by_key, self.count = True, 4
        self.placed: list[tuple[Any, Any]] = []

    def choose(self, key: Any, value: Any) -> int:
        if key is None or not self.by_key:
            return self.place(key, value)
        return self.use.partition_for_key(key, self.count)

    def place(self, key: Any, value: Any) -> int:
        self.placed.append((key, value))
        return 1


def notes_of(use: Encoding) -> Any:
    """Return a batch's queue of messages that counts those added after the batch's outcome."""

    class Reports(use.Notes):  # type: ignore[misc, name-defined]
        lates = 0

        def late(self) -> None:
            self.lates += 1

    return Reports()


class Scene:
    """A producer with open batches for partitions 1 and 2 of topic t."""

    def __init__(self, use: Encoding, *, make: Any = Future, limit: int = 400) -> None:
        self.use = use
        self.metadata = SimpleNamespace(snapshot=object())
        self.process = SimpleNamespace(here=True)
        self.batches = {n: Batch(use.BatchBuilder(limit, None)) for n in (1, 2)}
        self.lane = Lane(use, self.metadata.snapshot, self.batches)
        self.lanes = {"t": self.lane}
        self.open = use.OpenBatches(self.lanes, self.metadata, self.process, lambda: NOW, make)
        self.room = use.Room(100, 10_000)
        self.reports = {batch: notes_of(use) for batch in self.batches.values()}
        self.by_batch = dict(self.reports.items())

    def send(
        self, topic: Any = "t", key: Any = None, value: Any = b"v", *, headers: Any = (),
        at: Any = None, partition: Any = None,
    ) -> Any:  # fmt: skip
        return self.open.send(self, topic, key, value, headers, at, partition)

    def report(
        self, topic: Any = "t", key: Any = None, value: Any = b"v", partition: Any = None,
        *, at: Any = 0, call: Any = None,
    ) -> Any:  # fmt: skip
        return self.open.report(
            self.room, self.by_batch, 0.5, topic, key, value, partition, at, call
        )

    def counts(self) -> list[int]:
        return [batch.builder.count for batch in self.batches.values()]


def test_sending_a_record_returns_its_future(use: Encoding) -> None:
    scene = Scene(use)
    found = scene.send()
    assert type(found) is Future
    assert (found._producer, found._batch, found._index) == (scene, scene.batches[1], 0)
    assert (found._timestamp_ms, found._cancelled, found._listeners) == (AT, False, None)
    again = scene.send(at=77, headers=(("n", b"h"),))
    assert (again._index, again._timestamp_ms) == (1, 77)
    assert scene.lane.placed == [(None, b"v")] * 2


def test_futures_may_be_created_by_a_function_of_the_caller(use: Encoding) -> None:
    scene = Scene(use, make=lambda *given: given)
    assert scene.send(partition=2) == (scene, scene.batches[2], 0, AT)


def test_a_class_with_its_own_new_method_is_rejected(use: Encoding) -> None:
    with pytest.raises(TypeError, match="plain class"):
        Scene(use, make=CustomNew)
    for cls in (CustomNew, int, FrameType):  # FrameType inherits `__new__`, but isn't plain
        with pytest.raises(TypeError, match="plain class"):
            use.build_reports(cls, 0, "t", 0, (0, 0), None, 1.0, use.Notes())


def test_the_key_selects_the_partition(use: Encoding) -> None:
    scene = Scene(use, make=lambda *given: given[1])
    keys = [b"%d" % n for n in range(40)]
    for key in keys:
        at = use.partition_for_key(key, 4)
        found = scene.send(key=key, value=None, at=0)
        assert found is scene.batches[at] if at in scene.batches else found == at
    assert scene.lane.placed == []
    other = scene.lanes["t"] = Lane(use, scene.metadata.snapshot, scene.batches)
    other.by_key = False
    assert scene.send(key=keys[0]) is scene.batches[1]
    assert other.placed == [(keys[0], b"v")]


def test_if_a_record_cannot_be_appended_its_partition_is_returned_if_known(use: Encoding) -> None:
    scene = Scene(use)
    for put in (scene.send, scene.report):
        assert put("other") is None
        assert put("other", partition=3) == 3
        assert put(partition=3) == 3
        assert put(partition=7) == 7
        scene.process.here = False
        assert put() == 1
        scene.process.here = True
        scene.metadata.snapshot = object()
        assert put() is None
        scene.metadata.snapshot = scene.lane.snapshot
    before = scene.counts()
    while type(scene.send(value=b"v" * 90)) is Future:
        pass
    full = scene.counts()
    assert full > before
    assert scene.send(value=b"v" * 90) == scene.report(value=b"v" * 90) == 1
    scene.batches[2].builder.close()
    assert scene.send(partition=2) == scene.report(partition=2) == 2
    assert scene.counts() == full


def test_invalid_arguments_of_send_are_rejected_and_append_nothing(use: Encoding) -> None:
    scene = Scene(use)
    wrong: dict[str, Any]
    for wrong in ({"value": "text"}, {"key": 7, "partition": 1}, {"at": 0.5},
                  {"headers": [(1, b"")]}, {"topic": []}):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            scene.send(**wrong)
    with pytest.raises(ValueError, match="timestamp_ms"):
        scene.send(at=1 << 63)
    assert scene.counts() == [0, 0]
    assert scene.send(value=bytearray(b"v"))._index == 0


def test_messages_are_queued_until_their_delivery_reports_are_built(use: Encoding) -> None:
    scene = Scene(use)
    assert scene.report(key=None, value=b"1234", call=print) is True
    assert scene.report(value=None, at=55, partition=1) is True
    assert scene.report(at=-3, partition=1) is True
    notes = scene.reports[scene.batches[1]]
    assert notes.items() == [
        (0, 0.5, AT, None, b"1234", print),
        (1, 0.5, 55, None, None, None),
        (2, 0.5, AT, None, b"v", None),
    ]
    assert notes.calls == [print, None, None]
    assert (notes.size, notes.lates) == (5, 0)
    assert (scene.room.messages, scene.room.size) == (97, 9995)
    assert scene.counts() == [3, 0]


def test_messages_with_unusual_argument_types_are_not_appended(use: Encoding) -> None:
    scene = Scene(use)
    for unusual in ({"topic": 7}, {"key": "k"}, {"value": bytearray(b"v")}, {"at": 0.5},
                    {"at": True}, {"at": 1 << 63}, {"topic": b"t"}):  # fmt: skip
        for partition in (None, 2):
            assert scene.report(partition=partition, **unusual) is partition
    assert (scene.counts(), scene.lane.placed) == ([0, 0], [])
    assert (scene.room.messages, scene.room.size) == (100, 10_000)


def test_a_message_is_not_appended_if_the_queue_has_no_space(use: Encoding) -> None:
    scene = Scene(use)
    scene.room.messages = 1
    assert scene.report() is True
    assert scene.report() == 1
    scene.room.messages, scene.room.size = 9, 3
    assert scene.report(key=b"kk", value=b"vv", partition=1) == 1
    assert scene.report(key=b"k", value=b"vv", partition=1) is True
    assert (scene.room.messages, scene.room.size) == (8, 0)
    assert scene.report(value=None) is True
    scene.room.size = 9
    del scene.by_batch[scene.batches[1]]
    assert scene.report() == 1
    assert scene.counts() == [3, 0]


def test_a_message_queued_after_its_batchs_outcome_counts_as_late(use: Encoding) -> None:
    scene = Scene(use)
    notes = scene.reports[scene.batches[1]]
    notes.can_be_made = True
    assert scene.report() is True
    assert (notes.count, notes.lates) == (1, 1)


def made(use: Encoding, outcome: tuple[int, int], *rows: tuple[Any, ...]) -> list[Any]:
    given = use.Notes()
    for row in rows:
        given.add(row, 0)
    error = LookupError if outcome == (-1, -1) else None
    found = use.build_reports(Message, 0, "t", 3, outcome, error, 10.0, given)
    assert all(type(message) is Message for message in found)
    return [(message._record, message._error, message._more) for message in found]


def test_delivery_reports_contain_offset_timestamp_error_and_latency(use: Encoding) -> None:
    first, second = (0, 9.0, 55, b"k", b"v", print), (4, 9.5, 56, None, None, None)
    assert made(use, (70, -1), first, second) == [
        (("t", 3, 70, 55, 0, b"k", b"v", None, -1), None, 1.0),
        (("t", 3, 74, 56, 0, None, None, None, -1), None, 0.5),
    ]
    assert made(use, (70, 99), first)[0][0][:4] == ("t", 3, 70, 99)
    assert made(use, (-1, -1), first) == [
        (("t", 3, None, 55, 0, b"k", b"v", None, -1), LookupError, 1.0)
    ]
    assert made(use, (0, -1)) == []
    with pytest.raises(TypeError):
        use.build_reports(Message, 0, "t", 3, (0, -1), None, 1.0)


def test_queued_messages_can_be_taken_and_put_back(use: Encoding) -> None:
    notes, held = use.Notes(), str(object()).encode()
    before = sys.getrefcount(held)
    wanted = [(n, float(n), n, held, None, n) for n in range(50)]
    for note in wanted[:40]:
        notes.add(note, 7)
    first = notes.take(15)
    assert (first.items(), first.calls) == (wanted[:15], [*range(15)])
    for note in wanted[40:]:
        notes.add(note, 7)
    notes.put_back(first, 4)
    assert (first.items(), notes.items()) == (wanted[:4], wanted[4:])
    assert notes.calls == [*range(4, 50)]
    assert (notes.count, notes.size, first.size) == (46, 350, 0)
    assert notes.take(-1).count == notes.take(0).count == 0
    rest = notes.take(1000)
    assert (rest.items(), notes.items(), notes.calls) == (wanted[4:], [], [])
    with pytest.raises(ValueError, match="taken from this queue"):
        notes.put_back(rest, 47)
    with pytest.raises(ValueError, match="taken from this queue"):
        notes.put_back(rest, -1)
    del notes, first, wanted, note
    assert sys.getrefcount(held) == before + 46
    del rest
    assert sys.getrefcount(held) == before


def test_a_queued_callback_in_a_reference_cycle_is_garbage_collected(use: Encoding) -> None:
    class Held:
        notes: Any = None

    held, notes = Held(), use.Notes()
    held.notes = notes
    notes.add((0, 0.0, 0, None, None, held), 0)
    found = weakref.ref(held)
    del held, notes
    gc.collect()
    assert found() is None


def test_both_implementations_build_the_same_batches() -> None:
    written = []
    for use in ENCODINGS:
        scene = Scene(use, limit=10_000)
        for n in range(60):
            scene.send(key=b"%d" % n, value=b"v" * n, at=n, headers=(("n", b"h"),))
            scene.report(key=b"%d" % n, value=b"w" * n, at=n + 1)
        written.append(
            [(bytes(b.builder.build()), scene.reports[b].items()) for b in scene.batches.values()]
        )
    assert written == [written[0]] * len(ENCODINGS)
    assert ENCODINGS[0] is PYTHON
