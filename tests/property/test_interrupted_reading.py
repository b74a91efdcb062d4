"""R-GR-1, R-HO-1: interrupted readers get each offset once, without gaps.

An exception is raised at a bytecode of a call that returns records, or of the sorting in `pause`
and `resume`; then all offsets are compared. `ODRADEK_EVERY_BYTECODE=1` tries all bytecodes.
"""

from __future__ import annotations

import dis
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.property.interrupting import At, Interruption, places
from tests.unit.api.loopback_scene import PATIENCE, one_broker
from tests.volume import WHOLE, pairs

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.completed_fetch import CompletedFetch
from odradek.clients.consumer.fetching.waiting_records import WaitingRecords
from odradek.clients.consumer.undelivered_records import UndeliveredRecords
from odradek.common.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 700
MOST = 30 if WHOLE else 12
FINAL = {UndeliveredRecords.done.__code__: "taken", CompletedFetch._walk.__code__: "row"}
"""Attributes by function: records belong to the caller once the attribute is assigned."""
SORTING = frozenset(
    getattr(WaitingRecords, name).__code__
    for name in ("_sort", "_put_aside", "_let_go", "_count", "_drop", "drop", "head")
)
SORTED_BY, FEW = 250, 12 if WHOLE else 5
groups = count()


class Alarm(Exception):  # noqa: N818  # as programs call it
    """The exception that a program's signal handler raises and the program catches."""


@cache
def behind_the_store(code: CodeType) -> int:
    return next(
        i.offset
        for i in dis.get_instructions(code)
        if i.opname == "STORE_ATTR" and i.argval == FINAL[code]
    )


class ReadingAt(At):
    """Raise one kind of exception, in chosen functions, where CPython looks for signals."""

    def __init__(self, number: float, kind: type[BaseException], within: Any = None) -> None:
        super().__init__(number)
        self.kind, self.within = kind, within
        self.handed = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if event == "call":
            self.handed = False
        elif event == "opcode" and code in FINAL and frame.f_lasti > behind_the_store(code):
            self.handed = True
        if event == "opcode" and (self.handed or (self.within and code not in self.within)):
            return self
        try:
            return super().__call__(frame, event, argument)
        except Interruption as error:
            raise self.kind(self.where) from error


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with one_broker(partitions=2) as (_, servers):
        with Producer(bootstrap_servers=servers, batch_size=300, linger_ms=0) as producer:
            written = [
                producer.send("t", b"%06d" % number * 4, partition=partition)
                for number in range(RECORDS)
                for partition in (0, 1)
            ]
        offsets = [delivery.result(PATIENCE).offset for delivery in written]
        assert offsets == [number for number in range(RECORDS) for _ in (0, 1)]
        yield servers


class Reader:
    """A reader that keeps the offsets that it got."""

    def __init__(self, servers: str, kind: str) -> None:
        options: dict[str, Any] = {"fetch_max_wait_ms": 5, "background": kind == "background"}
        if kind == "group":
            options |= {"group_id": f"g{next(groups)}", "auto_commit_interval_ms": 20}
        self.consumer = Consumer(
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            fetch_max_bytes=8000,
            max_partition_fetch_bytes=1000,
            **options,
        )
        if kind == "group":
            self.consumer.subscribe(["t"])
        else:
            self.consumer.assign([A, B])
        self.found: dict[int, list[int]] = defaultdict(list)

    def begin(self) -> None:
        """Read until there are records of both partitions."""
        while len(self.found) < 2:
            assert self.poll(), str(self.consumer.explain())

    def poll(self, most: int = 7, timeout: float = PATIENCE) -> int:
        records = self.consumer.poll(timeout, max_records=most)
        for record in records:
            self.found[record.partition].append(record.offset)
        return len(records)

    def records(self) -> None:
        records = self.consumer.records(PATIENCE)
        for _ in range(3):
            record = next(records)
            self.found[record.partition].append(record.offset)

    def arrow(self) -> None:
        self._note(self.consumer.poll_arrow(PATIENCE))

    def batches(self) -> None:
        self._note(next(self.consumer.batches(PATIENCE)))

    def _note(self, batch: Any) -> None:
        for row in batch.to_pylist():
            self.found[row["partition"]].append(row["offset"])

    @property
    def complete(self) -> bool:
        return sum(map(len, self.found.values())) >= 2 * RECORDS

    def check(self, where: str) -> None:
        """Check that no offset is missing or duplicated, and compare positions and commits."""
        for partition, offsets in self.found.items():
            assert offsets == list(range(len(offsets))), (where, partition)
            assert self.consumer.position(TopicPartition("t", partition)) == len(offsets), where


ACTIONS: dict[str, Callable[[Reader], object]] = {
    "poll": Reader.poll,
    "records": Reader.records,
    "poll_arrow": Reader.arrow,
    "batches": Reader.batches,
}


def interrupt(action: Callable[[], object], tracer: ReadingAt) -> str:
    try:
        with tracer:
            action()
    except (Interruption, Alarm):
        return tracer.where
    return ""


KINDS = [
    ("alone", Interruption),
    ("background", Alarm),
    ("alone", Alarm),
    ("group", Interruption),
    ("group", Alarm),
]
"""Kinds of readers, and the exceptions that interrupt them."""


@pytest.mark.parametrize(
    ("kind", "exception", "what"), [(*kind, what) for kind, what in pairs(KINDS, ACTIONS)]
)
def test_an_interrupted_reader_misses_no_record(
    servers: str, what: str, kind: str, exception: type[BaseException]
) -> None:
    reader = Reader(servers, kind)
    with reader.consumer:
        reader.begin()
        action = ACTIONS[what]
        tracer = ReadingAt(float("inf"), exception)
        with tracer:
            action(reader)
        for number in places(tracer.seen, MOST, seed=4):
            where = interrupt(partial(action, reader), ReadingAt(number, exception))
            if number % 3 == 0:
                reader.consumer.pause([A])
                reader.poll(2, 0.01)
                reader.consumer.resume([A])
            if not reader.complete:
                reader.poll(3)
            reader.check(where)
            if reader.complete:
                break
        while not reader.complete:
            assert reader.poll(500)
        reader.check("the end")


@pytest.mark.parametrize(
    ("kind", "exception", "what"),
    [(*kind, what) for kind, what in pairs(KINDS[:3], ["pause", "resume"])],
)
def test_interrupted_sorting_loses_no_buffered_record(
    servers: str, what: str, kind: str, exception: type[BaseException]
) -> None:
    for number in places(SORTED_BY, FEW, seed=5):
        reader = Reader(servers, kind)
        with reader.consumer:
            reader.begin()
            reader.consumer.pause([A])
            if what == "resume":
                reader.poll(1, 0.01)
                reader.consumer.resume([A])
            tracer = ReadingAt(number, exception, SORTING)
            where = interrupt(partial(reader.poll, 1, 0.01), tracer)
            reader.consumer.resume([A])
            while not reader.complete:
                assert reader.poll(500), where
            reader.check(where)
