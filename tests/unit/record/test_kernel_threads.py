"""Test the kernels with several threads at once: in one object, and in their pools.

With a GIL, threads only overlap where it is released; without it (3.14t) they overlap everywhere.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.time_limits import HANG_S

from odradek.common.types import FREE_THREADS
from odradek.compat.confluent_kafka.sent_messages import Reports, SentMessages
from odradek.compat.confluent_kafka.settings import Given
from odradek.record import SentBinary, SentColumns, apart, decode, kernel_sources

if isinstance(kernel_sources.load(kernel_sources.ENCODER), str):
    pytest.skip("the native encoder isn't built", allow_module_level=True)

from odradek.record import kernel, kernel_encode, reference

THREADS = 4
RECORDS = 3000
"""Number of records of each thread."""


@pytest.fixture(autouse=True)
def switch_threads_often() -> Iterator[None]:
    """If Python has a GIL, make it switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.skipif(not FREE_THREADS, reason="needs a build without the GIL")
def test_importing_the_kernels_does_not_enable_the_gil() -> None:
    code = f"import sys, {', '.join(kernel_sources.KERNELS)}; assert not sys._is_gil_enabled()"
    free = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S, env=free)


def at_once(*calls: Callable[[], object]) -> None:
    """Run each call in its own thread, start them at the same time, and raise the first error."""
    begin, errors = threading.Barrier(len(calls)), []

    def run(call: Callable[[], object]) -> None:
        try:
            begin.wait(30)
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def key(thread: int, number: int) -> bytes:
    return b"%d-%d" % (thread, number)


def keys_in(batch: Any) -> list[bytes | None]:
    columns: Any = decode(memoryview(batch.build()), start_offset=0).columns
    return columns.keys.values(0, columns.count)  # type: ignore[no-any-return]


def test_concurrent_appends_return_the_records_index_and_add_nothing_after_close() -> None:
    for closes in (False, True):
        batch = kernel_encode.BatchBuilder(1 << 30, None)
        places: dict[int, bytes] = {}

        def append(thread: int, batch: Any = batch, places: Any = places) -> None:
            for number in range(RECORDS):
                name = key(thread, number)
                index = batch.append(name, bytearray(b"v" * (number % 50)), (("h", name),), 5)
                if index is None:
                    return
                places[index] = name

        def close(batch: Any = batch) -> None:
            while batch.count < RECORDS:
                batch.limit_bytes = 1 << 30
            batch.close()

        others = [close] if closes else []
        at_once(*(lambda t=t: append(t) for t in range(THREADS)), *others)
        assert sorted(places) == list(range(batch.count))
        assert batch.count >= RECORDS
        assert closes or batch.count == THREADS * RECORDS
        assert keys_in(batch) == [places[index] for index in range(batch.count)]


def test_an_encoder_and_other_threads_can_append_to_the_same_batch() -> None:
    """While the encoder writes, other threads' `append` returns None, as for a full batch."""
    rows = 200
    ends = b"".join((4 * n).to_bytes(4, "little") for n in range(rows + 1))
    given = b"".join(b"c%03d" % n for n in range(rows))
    columns = SentColumns(rows, None, keys=SentBinary(ends, given, None))
    for _ in range(20):
        batch = kernel_encode.BatchBuilder(1 << 30, None)
        taken: list[bytes] = []
        encoder = kernel_encode.ColumnEncoder(columns, 1, 1 << 20)
        encoder.use(0, batch)

        def append(thread: int, batch: Any = batch, taken: Any = taken) -> None:
            for number in range(RECORDS // 10):
                if batch.append(key(thread, number), None, (), 5) is not None:
                    taken.append(key(thread, number))

        def encode(encoder: Any = encoder, batch: Any = batch) -> None:
            at, room = 0, 1 << 40
            while at < rows:
                at = encoder.encode(
                    at, min(at + 3, rows), timestamp_ms=5, room=room, sticky=0, sticky_room=room
                )[0]
                encoder.use(0, batch)  # needed if other threads appended meanwhile

        at_once(encode, *(lambda t=t: append(t) for t in range(THREADS - 1)))
        written = [given[4 * n : 4 * n + 4] for n in range(rows)]
        found = keys_in(batch)
        assert sorted(found) == sorted([*written, *taken])  # type: ignore[type-var]
        assert [one for one in found if one and one[:1] == b"c"] == written


@pytest.mark.slow
def test_a_memory_block_of_a_pool_is_never_used_twice_at_once() -> None:
    gc.collect()
    lent = kernel_encode.pool_state()[2], kernel.pool_state()[2]

    def use(thread: int) -> None:
        kept = []
        for number in range(RECORDS // 10):
            batch = kernel_encode.BatchBuilder(1 << 20, "gzip" if number % 5 == 0 else None)
            for record in range(30):
                batch.append(key(thread, record), b"%d" % thread * (number * 40 % 3000), (), 5)
            columns: Any = decode(memoryview(batch.build()), start_offset=0).columns
            kept.append((number, columns))
            if number % 10 == 0:
                kernel.set_pool_limit((number % 3) << 20)
                kernel_encode.set_pool_limit((number % 3) << 20)
            if len(kept) > 7:
                last, columns = kept.pop(number % 7)
                wanted = b"%d" % thread * (last * 40 % 3000)
                assert columns.values.values(0, 30) == [wanted] * 30
                assert columns.keys.values(0, 30) == [key(thread, n) for n in range(30)]

    limits = kernel_encode.pool_state()[1], kernel.pool_state()[1]
    try:
        at_once(*(lambda t=t: use(t) for t in range(THREADS)))
    finally:
        kernel_encode.set_pool_limit(limits[0])
        kernel.set_pool_limit(limits[1])
    assert (kernel_encode.pool_state()[2], kernel.pool_state()[2]) == lent


def test_threads_can_decode_the_same_response() -> None:
    batch = kernel_encode.BatchBuilder(1 << 20, "lz4")
    for number in range(500):
        batch.append(key(0, number), b"v" * number, (("h", b"1"),) if number % 3 else (), 5)
    answer = bytes(batch.build())
    wanted: Any = reference.decode(memoryview(answer), start_offset=0)
    rows = wanted.columns.count

    def read() -> None:
        for _ in range(100):
            columns: Any = decode(memoryview(answer), start_offset=0).columns
            assert columns.values.values(0, rows) == wanted.columns.values.values(0, rows)
            assert columns.headers.lists(0, rows) == wanted.columns.headers.lists(0, rows)

    at_once(*(read for _ in range(THREADS)))


def test_several_threads_can_send_through_the_fast_path_at_once() -> None:
    """Each topic's records go to its own batch, whichever topic another thread has just used."""
    snapshot = object()
    topics = [f"topic-{number}" for number in range(3)]
    batches = {
        topic: SimpleNamespace(builder=kernel_encode.BatchBuilder(1 << 30, None))
        for topic in topics
    }
    lanes = {
        topic: SimpleNamespace(
            snapshot=snapshot, open={0: batches[topic]}, count=1, by_key=True, place=None
        )
        for topic in topics
    }
    metadata, process = SimpleNamespace(snapshot=snapshot), SimpleNamespace(here=True)

    def make(*parts: Any) -> tuple[Any, ...]:
        return parts

    ways = kernel_encode.OpenBatches(lanes, metadata, process, lambda: 5.0, make)

    def send(thread: int) -> None:
        for number in range(RECORDS):
            topic = topics[(thread + number) % 3]
            _, batch, _, _ = ways.send(None, topic, key(thread, number), None, (), None, None)
            assert batch is batches[topic]

    at_once(*(lambda t=t: send(t) for t in range(THREADS)))
    for at, topic in enumerate(topics):
        wanted = [key(t, n) for t in range(THREADS) for n in range(RECORDS) if (t + n) % 3 == at]
        assert sorted(keys_in(batches[topic].builder)) == sorted(wanted)  # type: ignore[type-var]


def test_a_delivery_report_contains_the_data_of_one_message() -> None:
    """Data of messages that other threads send at the same time must not be mixed."""
    snapshot, room = object(), kernel_encode.Room(1 << 40, 1 << 40)
    waiting = SentMessages(Given({}), lambda _: None)
    batch = SimpleNamespaceByIdentity(builder=kernel_encode.BatchBuilder(1 << 30, None))
    reports = Reports(waiting, batch)  # type: ignore[arg-type]
    lane = SimpleNamespace(snapshot=snapshot, open={0: batch}, count=1, by_key=True, place=None)
    ways = kernel_encode.OpenBatches(
        {"topic": lane},
        SimpleNamespace(snapshot=snapshot),
        SimpleNamespace(here=True),
        lambda: 5.0,
        lambda *_: None,
    )

    def send(thread: int) -> None:
        for number in range(RECORDS):
            name = key(thread, number)
            done = ways.report(room, {batch: reports}, 0.0, "topic", name, name, 0, 7, thread)
            assert done is True

    at_once(*(lambda t=t: send(t) for t in range(THREADS)))
    parts = reports.items()
    assert len(parts) == THREADS * RECORDS
    size = 2 * sum(len(key(t, n)) for t in range(THREADS) for n in range(RECORDS))
    assert (reports.size, room.messages, room.size) == (
        size,
        (1 << 40) - len(parts),
        (1 << 40) - size,
    )
    found = keys_in(batch.builder)
    for index, begun, at, name, value, thread in parts:
        assert (begun, at, value) == (0.0, 7, name)
        assert found[index] == name
        assert name is not None
        assert name.startswith(b"%d-" % thread)


@pytest.mark.parametrize("apart", [apart, kernel.apart])
def test_threads_can_use_separate_views_of_the_same_memory(apart: Any) -> None:
    """A memoryview of a memoryview shares a counter that CPython 3.14t changes without a lock."""
    memory = bytearray(range(100))
    whole = memoryview(memory)[3:90]
    mine = [apart(whole[20:60]) for _ in range(THREADS)]
    memory[30] = 200
    whole.release()

    def read(view: memoryview) -> None:
        for _ in range(RECORDS):
            assert bytes(view[4:9]) == bytes((27, 28, 29, 200, 31))

    at_once(*(lambda view=view: read(view) for view in mine))


def test_a_list_may_change_while_a_column_is_built_from_it() -> None:
    """If another thread changes the list, the column still has whole items of the right sizes."""
    gathered: Any = kernel_encode.gather
    items: list[bytes] = [b"a" * 100] * 500
    done = threading.Event()

    def change() -> None:
        try:
            for turn in range(RECORDS // 10):
                for at in range(0, len(items), 7):
                    items[at] = b"%c" % (97 + turn % 3) * (turn * 37 % 900)
                del items[-5:]
                items.extend([b"d" * turn] * 5)
        finally:
            done.set()

    def gather() -> None:
        while not done.is_set():
            count, column = gathered(items, 0, 480, 1 << 30)
            assert count == 480
            assert len(set(column.data)) <= 4

    at_once(change, gather, gather)


class SimpleNamespaceByIdentity(SimpleNamespace):
    """A namespace that is hashed by identity, as batches are."""

    __hash__ = object.__hash__  # type: ignore[assignment]
