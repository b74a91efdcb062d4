"""Threads that misuse a running encoder: they change its columns or use its batches.

The encoder runs without the GIL, so both happen in the middle of a row. In any case no byte beyond
a buffer may be read or written (a sanitizer watches), and complete batches are valid.
"""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.sent import HOSTILE, exact, headers, integers, numbers, packed

from odradek.common.errors import IllegalStateError, KafkaError
from odradek.record import reference
from odradek.record.sent_columns import SentBinary, SentColumns, SentHeaders, StopReason

ROWS = 12_000
FEW_ROWS, HEADERS = 16, 1000
NAME_BYTES = 900_000
"""Size of the names' buffer, of which the names use 48,000 bytes; also an invalid offset."""
PARTITIONS = 3


def columns(rng: random.Random) -> SentColumns:
    """Create valid columns with a header or two in each row."""
    ends = [0]
    for _ in range(ROWS):
        ends.append(ends[-1] + rng.randrange(40))
    return SentColumns(
        ROWS,
        SentBinary(integers(ends, False), memoryview(bytearray(rng.randbytes(ends[-1])))),
        None,
        headers(rng, ROWS),
        numbers(rng, [rng.randrange(PARTITIONS) for _ in range(ROWS)], False),
    )


def long_rows(rng: random.Random) -> SentColumns:
    """Create a few rows with many headers each, whose names are a small part of their data."""
    lists = array("i", range(0, FEW_ROWS * HEADERS + 1, HEADERS))
    ends = array("i", range(0, 3 * lists[-1] + 1, 3))
    names = SentBinary(exact(ends.tobytes()), exact(bytes(NAME_BYTES)))
    values = SentBinary(exact(ends.tobytes()), exact(rng.randbytes(NAME_BYTES)))
    return SentColumns(
        FEW_ROWS, None, None, SentHeaders(exact(lists.tobytes()), names, values, lists[-1])
    )


def flicker(
    rng: random.Random, sent: SentColumns, ready: threading.Event, over: threading.Event
) -> None:
    """Write an invalid value and the valid one alternately, as fast as possible.

    The invalid value must appear between the encoder's measuring and writing of a row.
    """
    assert sent.headers is not None
    column = rng.choice((sent.headers.keys, sent.headers.values))
    view = memoryview(column.offsets).cast("i")
    at = rng.randrange(1, len(view))
    truth, lie = view[at], rng.choice((NAME_BYTES, NAME_BYTES, 0))
    ready.set()
    while not over.is_set():
        for _ in range(50):
            view[at] = lie
            view[at] = truth


def spoil(
    rng: random.Random, sent: SentColumns, ready: threading.Event, over: threading.Event
) -> None:
    """Write invalid numbers into the columns, and restore them."""
    assert sent.values is not None
    assert sent.headers is not None
    assert sent.partitions is not None
    lists = sent.headers
    places: list[tuple[Any, bool]] = [
        (sent.values.offsets, False),
        (lists.offsets, lists.wide),
        (lists.keys.offsets, lists.keys.wide),
        (lists.keys.offsets, lists.keys.wide),
        (lists.values.offsets, lists.values.wide),
        (sent.partitions.data, False),
    ]
    truth = [bytes(view) for view, _ in places]
    ready.set()
    while not over.is_set():
        which = rng.randrange(len(places))
        view, wide = places[which]
        width = 8 if wide else 4
        changed = []
        for _ in range(8):
            at = rng.randrange(len(view) // width) * width
            lie = rng.choice(HOSTILE) if rng.random() < 0.5 else rng.randrange(60_000)
            view[at : at + width] = packed(lie, wide)
            changed.append(at)
        for at in changed:
            view[at : at + width] = truth[which][at : at + width]
    for (view, _), told in zip(places, truth, strict=True):
        view[:] = told


def meddle(
    rng: random.Random,
    kernel: Any,
    encoder: Any,
    batches: list[Any],
    ready: threading.Event,
    over: threading.Event,
) -> None:
    """Use the encoder and its batches from another thread."""
    other = b"x" * 300
    ready.set()
    while not over.is_set():
        batch = rng.choice(batches)
        calls: list[Callable[[], Any]] = [
            lambda batch=batch: batch.append(other, other, (), 5),  # type: ignore[misc]
            lambda batch=batch: batch.append(None, b"", (), 5),  # type: ignore[misc]
            lambda: encoder.use(0, kernel.BatchBuilder(1000, None)),
            lambda: encoder.encode(0, 10, timestamp_ms=5, room=1000),
            encoder.pieces,
        ]
        if rng.random() < 0.05:
            calls = [batch.build, batch.release]
        try:
            rng.choice(calls)()
        except (IllegalStateError, KafkaError):
            continue


def races(kernel: Any, seed: int) -> Iterator[int]:
    """Run rounds without end; yield each round's number of encoded rows."""
    rng = random.Random(seed)
    while True:
        yield race(kernel, rng)


def race(kernel: Any, rng: random.Random) -> int:
    """Encode rows while another thread misuses the encoder; return their number."""
    few = rng.random() < 0.5
    sent = long_rows(rng) if few else columns(rng)
    try:
        encoder = kernel.ColumnEncoder(sent, PARTITIONS, 1 << 20)
    except KafkaError:  # a name may not be UTF-8
        return 0
    batches = [kernel.BatchBuilder(1 << 20, None) for _ in range(PARTITIONS)]
    for place, batch in enumerate(batches):
        encoder.use(place, batch)
    ready, over = threading.Event(), threading.Event()
    seeds = random.Random(rng.random())
    work = (spoil, (seeds, sent, ready, over))
    if few:
        work = (flicker, (seeds, sent, ready, over))
    elif rng.random() < 0.5:
        work = (meddle, (seeds, kernel, encoder, batches, ready, over))  # type: ignore[assignment]
    thread = threading.Thread(target=work[0], args=work[1], daemon=True)
    thread.start()
    ready.wait(10)
    try:
        rows = once(kernel, encoder, batches)
        for _ in range(20 if few else 0):  # few rows end quickly, so repeat them
            for place in range(PARTITIONS):
                encoder.use(place, kernel.BatchBuilder(1 << 20, None))
            append_all(kernel, encoder, batches)
    finally:
        over.set()
        thread.join()
    return rows


def once(kernel: Any, encoder: Any, batches: list[Any]) -> int:
    """Encode all rows, perhaps repeatedly; then check the batches."""
    row = append_all(kernel, encoder, batches)
    for batch in batches:
        try:
            built = batch.build()
        except IllegalStateError:
            continue
        reference.decode(built, start_offset=0)
    return row


def append_all(kernel: Any, encoder: Any, batches: list[Any]) -> int:
    """Encode rows until all were tried; return their number."""
    row = turns = 0
    while row < encoder.count and turns < 300:
        turns += 1
        try:
            found = encoder.encode(
                row, encoder.count, timestamp_ms=5, room=1 << 40, sticky=0, sticky_room=1 << 40
            )
        except (IllegalStateError, KafkaError):
            row += 1
            continue
        row = found.row
        if found.reason == StopReason.BATCH:
            batches[found.partition] = kernel.BatchBuilder(1 << 20, None)
            try:
                encoder.use(found.partition, batches[found.partition])
            except IllegalStateError:
                continue
        elif found.reason == StopReason.STICKY:
            row += 1
    return row
